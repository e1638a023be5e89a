"""What do queues have? One row per queue, for the command line, the API and the dashboard."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kai_py.plan.plan import Plan, QueueShare
from kai_py.snapshot.tables.queue_objects import in_api_units


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue; amounts by resource, cpu in cores. Unlimited is None in ``max``, infinite in
    ``deserved``.

    Amounts include the queues below; pending gangs are those of the queue itself.
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
    """One row per queue, by name."""
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
    """Every queue below its parent, with its depth; rows of a plan know no circles."""
    children: dict[str, list[QueueRow]] = {}
    for row in rows:
        children.setdefault(row.parent, []).append(row)
    to_show = [(0, row) for row in reversed(children.get("", ()))]
    while to_show:
        depth, row = to_show.pop()
        yield depth, row
        to_show += [(depth + 1, child) for child in reversed(children.get(row.queue, ()))]
