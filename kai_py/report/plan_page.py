"""A plan as a page, or two plans side by side: queues, evictions, and what stays pending."""

from collections import Counter
from collections.abc import Iterable, Mapping

from kai_py.plan.plan import Plan
from kai_py.report.page import bars, heading, html_page, paragraph, plot, table
from kai_py.snapshot.accounting import GPU

MAX_QUEUES = 40
"""Queues with bars: those with the most GPUs allocated or entitled."""


def plan_page(plans: Mapping[str, Plan], *, title: str) -> str:
    """The whole page; ``plans`` by the names under which they are compared."""
    parts = [paragraph(f"{name}: {_counts(plan)}.") for name, plan in plans.items()]
    parts += [
        heading("Queues"),
        _queues(plans),
        heading("Placements, evictions and pending gangs"),
        _decisions(plans),
    ]
    for name, plan in plans.items():
        parts += [heading(f"Pending under {name}"), _pending(plan)]
    return html_page(title, parts)


def _counts(plan: Plan) -> str:
    return (
        f"gangs placed: {len(plan.placements)}, pods evicted: {len(plan.evictions)}, "
        f"pods nominated: {len(plan.nominations)}, gangs pending: {len(plan.unplaced)}"
    )


def _queues(plans: Mapping[str, Plan]) -> str:
    most: dict[str, float] = {}
    for plan in plans.values():
        for share in plan.queues:
            size = max(share.allocated.get(GPU, 0.0), share.fair_share.get(GPU, 0.0))
            most[share.queue] = max(most.get(share.queue, 0.0), size)
    shown = sorted(sorted(most, key=lambda queue: (-most[queue], queue))[:MAX_QUEUES])
    panels = {}
    for name, plan in plans.items():
        shares = {share.queue: share for share in plan.queues}
        found = [shares[queue] for queue in shown if queue in shares]
        panels[name] = {
            "allocated": {share.queue: share.allocated.get(GPU, 0.0) for share in found},
            "fair share": {share.queue: share.fair_share.get(GPU, 0.0) for share in found},
            "requested": {share.queue: share.requested.get(GPU, 0.0) for share in found},
            "deserved": {share.queue: share.deserved.get(GPU, 0.0) for share in found},
        }
    left_out = len(most) - len(shown)
    return plot(
        bars(panels, y_titles=["GPUs"] * len(plans)),
        name="queues",
        caption="GPUs of each queue with its subtree."
        + (f" {left_out} queues with fewer are left out." if left_out else ""),
    )


def _decisions(plans: Mapping[str, Plan]) -> str:
    placed, evicted, pending = {}, {}, {}
    for name, plan in plans.items():
        placed[name] = _counter(gang.action.value for gang in plan.placements)
        evicted[name] = _counter(eviction.action.value for eviction in plan.evictions)
        pending[name] = _counter(gang.stage.value for gang in plan.unplaced)
    panels = {
        "Gangs placed by action": placed,
        "Pods evicted by rule": evicted,
        "Gangs pending by stage": pending,
    }
    panels = {title: counts for title, counts in panels.items() if any(counts.values())}
    if not panels:
        return paragraph("The cycle decided nothing.")
    return plot(
        bars(panels, y_titles=[title.partition(" ")[0].lower() for title in panels]),
        name="decisions",
        caption="What the cycle decided.",
    )


def _counter(values: Iterable[str]) -> dict[str, float]:
    return {value: float(count) for value, count in sorted(Counter(values).items())}


def _pending(plan: Plan) -> str:
    rows = [(gang.gang, gang.queue, gang.stage.value, gang.message) for gang in plan.unplaced]
    return table(("gang", "queue", "stage", "message"), rows) or paragraph("No gang is pending.")
