"""Decisions as pages: a plan, or two plans side by side, and those of a scheduler over time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from kai_py.api.times import HOUR, MINUTE
from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.plan.plan import Plan
from kai_py.report.page import (
    COLORS,
    Curve,
    bars,
    curves,
    heading,
    html_page,
    paragraph,
    plot,
    table,
    waiting_times,
)
from kai_py.snapshot.accounting import GPU

PERIODS = 60
MAX_ROWS = 50
"""Gangs in the list of those that were evicted most often."""
_SHOWN = (DecisionKind.PLACED, DecisionKind.EVICTED, DecisionKind.PENDING)


def decisions_page(decisions: Sequence[Decision], *, title: str) -> str:
    """The whole page; ``decisions`` oldest first."""
    if not decisions:
        return html_page(title, [paragraph("No decisions.")])
    first, last = _clock(decisions[0].time), _clock(decisions[-1].time)
    kinds = Counter(decision.kind for decision in decisions)
    counts = ", ".join(f"{kinds[kind]} {kind.value}" for kind in DecisionKind)
    return html_page(
        title,
        [
            paragraph(f"{len(decisions)} decisions from {first} to {last}: {counts}."),
            heading("Decisions over time"),
            _over_time(decisions),
            heading("Waiting times by pods of the gang"),
            _waits(decisions),
            heading("Evictions"),
            _evictions(decisions),
            _evicted_gangs(decisions),
            heading("Still pending"),
            _pending(decisions),
        ],
    )


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _over_time(decisions: Sequence[Decision]) -> str:
    start = decisions[0].time
    period = max((decisions[-1].time - start) / PERIODS, 1.0)
    unit, seconds = ("hours", HOUR) if period >= MINUTE else ("minutes", MINUTE)
    times = [at * period / seconds for at in range(PERIODS + 1)]
    found = Counter(
        (each.kind, min(int(max(each.time - start, 0.0) / period), PERIODS)) for each in decisions
    )
    panel = [
        Curve(kind.value, times, [found[kind, at] for at in range(PERIODS + 1)], color)
        for kind, color in zip(_SHOWN, COLORS, strict=False)
    ]
    figure = curves({"": panel}, x_title=unit, y_title=f"decisions in {period:.0f} s")
    return plot(figure, name="time", caption="Decisions made in each period, by kind.")


def _waits(decisions: Sequence[Decision]) -> str:
    return waiting_times(
        {"": waits_by_pods(decisions)},
        caption="How many of the gangs that were placed had been placed after so many minutes, by "
        "their number of pods. Time counts from the first decision that left a gang pending.",
    )


def waits_by_pods(decisions: Sequence[Decision]) -> dict[str, list[float | None]]:
    """Seconds from the first decision that left a gang pending until it was placed."""
    since: dict[str, float] = {}
    waits: dict[int, list[float | None]] = {}
    for decision in decisions:
        if decision.kind is DecisionKind.PENDING:
            since.setdefault(decision.gang, decision.time)
        elif decision.kind is DecisionKind.DELETED:
            since.pop(decision.gang, None)
        elif decision.kind is DecisionKind.PLACED:
            waited = decision.time - since.pop(decision.gang, decision.time)
            size = 1 << max(len(decision.pods) - 1, 0).bit_length()
            waits.setdefault(size, []).append(waited)
    return {_pods(size): waits[size] for size in sorted(waits)}


def _pods(size: int) -> str:
    if size <= 2:
        return ("1 pod", "2 pods")[size - 1]
    return f"{size // 2 + 1} to {size} pods"


def _evictions(decisions: Sequence[Decision]) -> str:
    evicted = [each for each in decisions if each.kind is DecisionKind.EVICTED]
    if not evicted:
        return paragraph("No pod was evicted.")
    by_rule: Counter[str] = Counter()
    by_queue: Counter[str] = Counter()
    for each in evicted:
        by_rule[each.action] += len(each.pods)
        by_queue[each.queue] += len(each.pods)
    panels = {
        "Evicted pods by rule": {"pods": _sorted(by_rule)},
        "Evicted pods by queue": {"pods": _sorted(by_queue)},
    }
    return plot(
        bars(panels, y_titles=("pods", "pods")),
        name="evictions",
        caption="Pods that were evicted.",
    )


def _sorted(counts: Counter[str]) -> dict[str, float]:
    return {name: float(count) for name, count in counts.most_common(MAX_ROWS)}


def _evicted_gangs(decisions: Sequence[Decision]) -> str:
    evicted = [each for each in decisions if each.kind is DecisionKind.EVICTED]
    times = Counter(each.gang for each in evicted)
    newest = {each.gang: each for each in evicted}
    rows = [
        (gang, newest[gang].queue, str(count), newest[gang].action, newest[gang].preemptor)
        for gang, count in times.most_common(MAX_ROWS)
    ]
    return table(("gang", "queue", "evictions", "last rule", "last for"), rows)


def _pending(decisions: Sequence[Decision]) -> str:
    newest = {each.gang: each for each in decisions}
    pending = [each for each in newest.values() if each.kind is DecisionKind.PENDING]
    if not pending:
        return paragraph("These decisions leave no gang pending.")
    stages = Counter(each.stage for each in pending)
    return plot(
        bars({"": {"gangs": _sorted(stages)}}, y_titles=("gangs",)),
        name="pending",
        caption=f"Gangs that these decisions leave pending, by stage: {len(pending)}.",
    )


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
        parts += [heading(f"Pending under {name}"), _pending_table(plan)]
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


def _pending_table(plan: Plan) -> str:
    rows = [(gang.gang, gang.queue, gang.stage.value, gang.message) for gang in plan.unplaced]
    return table(("gang", "queue", "stage", "message"), rows) or paragraph("No gang is pending.")
