"""Decisions of a running scheduler as a page: placements, evictions and waits over time."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from kai_py.api.times import HOUR, MINUTE
from kai_py.observe.decision_log import Decision, DecisionKind
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
