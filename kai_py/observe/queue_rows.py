"""Rows of queues for the command line, the API and the dashboard."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kai_py.plan.plan import Plan, QueueShare
from kai_py.snapshot.tables.queue_objects import in_api_units


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue; amounts by resource, CPU in cores.

    Unlimited is None in ``max``, infinite in ``deserved``. Amounts include the queues below;
    pending gangs are those of the queue itself.
    """

    queue: str
    parent: str
    deserved: dict[str, float]
    max: dict[str, float | None]
    fair_share: dict[str, float]
    allocated: dict[str, float]
    requested: dict[str, float]
    pending_gangs: int
    pending_by_stage: dict[str, int]
    problems: tuple[str, ...]


def queue_rows(plan: Plan) -> Iterator[QueueRow]:
    """One row per queue, in the plan's order."""
    stages: dict[str, dict[str, int]] = {}
    for unplaced in plan.unplaced:
        counts = stages.setdefault(unplaced.queue, {})
        counts[unplaced.stage.value] = counts.get(unplaced.stage.value, 0) + 1
    for share in plan.queues:
        yield _row(share, stages.get(share.queue, {}))


def _row(share: QueueShare, stages: dict[str, int]) -> QueueRow:
    return QueueRow(
        queue=share.queue,
        parent=share.parent,
        deserved=in_api_units(share.deserved),
        max={
            name: None if math.isinf(amount) else amount
            for name, amount in in_api_units(share.maximum).items()
        },
        fair_share=in_api_units(share.fair_share),
        allocated=in_api_units(share.allocated),
        requested=in_api_units(share.requested),
        pending_gangs=sum(stages.values()),
        pending_by_stage=stages,
        problems=tuple(problem.reason for problem in share.problems),
    )


def in_tree_order(rows: Iterable[QueueRow]) -> Iterator[tuple[int, QueueRow]]:
    """Every queue after its parent, with its depth; the rows of a plan form a forest."""
    children: dict[str, list[QueueRow]] = {}
    for row in rows:
        children.setdefault(row.parent, []).append(row)
    stack = [(0, row) for row in reversed(children.get("", ()))]
    while stack:
        depth, row = stack.pop()
        yield depth, row
        stack += [(depth + 1, child) for child in reversed(children.get(row.queue, ()))]
