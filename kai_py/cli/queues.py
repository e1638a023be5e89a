"""``kai-py queues``: what ``kubectl get queues`` cannot show: fair share, use and who waits.

The cluster is read once and one cycle is run on it, so the shares are those the scheduler works
with now.
"""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from kai_py.cli.configuration import configuration_from
from kai_py.cli.connection import Context, Kubeconfig, cluster_client
from kai_py.cli.reading import read_and_plan
from kai_py.cli.tables import print_table
from kai_py.config import Configuration
from kai_py.plan.decisions import Plan, QueueShare
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.queue_objects import in_api_units

HEADINGS = (
    "QUEUE", "DESERVED", "MAX", "FAIR SHARE", "ALLOCATED", "REQUESTED", "PENDING", "PROBLEM",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue; amounts by resource, cpu in cores; a ``max`` of None is no limit."""

    queue: str
    deserved: dict[str, float]
    max: dict[str, float | None]
    fair_share: dict[str, float]
    allocated: dict[str, float]
    requested: dict[str, float]
    pending_gangs: int
    pending_by_stage: dict[str, int]
    problems: tuple[str, ...]


def command(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: Annotated[Path | None, typer.Option(help="The scheduler's configuration.")] = None,
    resource: Annotated[str, typer.Option(help="Resource to show: gpu, cpu, memory, …")] = GPU,
    json: Annotated[bool, typer.Option("--json", help="All resources, as JSON.")] = False,
) -> None:
    """List queues with fair share, use and pending gangs."""
    plan = asyncio.run(_plan(kubeconfig, context, configuration_from(config)))
    rows = list(queue_rows(plan))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2))
        return
    print_table(HEADINGS, (_cells(row, resource) for row in rows))


async def _plan(kubeconfig: str, context: str, configuration: Configuration) -> Plan:
    async with cluster_client(kubeconfig, context) as client:
        _, plan = await read_and_plan(client, configuration)
    return plan


def queue_rows(plan: Plan) -> Iterator[QueueRow]:
    """One row per queue, by name."""
    for share in plan.queues:
        stages: dict[str, int] = {}
        for unplaced in plan.unplaced:
            if unplaced.queue == share.queue:
                stages[unplaced.stage.value] = stages.get(unplaced.stage.value, 0) + 1
        yield _row(share, stages)


def _row(share: QueueShare, stages: dict[str, int]) -> QueueRow:
    return QueueRow(
        queue=share.queue,
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


def _cells(row: QueueRow, resource: str) -> tuple[str, ...]:
    stages = ", ".join(f"{count} {stage}" for stage, count in sorted(row.pending_by_stage.items()))
    views = (row.deserved, row.max, row.fair_share, row.allocated, row.requested)
    return (
        row.queue,
        *(_amount(view.get(resource, 0.0)) for view in views),
        stages or "-",
        "; ".join(row.problems),
    )


def _amount(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.10g}" if amount >= 1e6 else f"{amount:.6g}"
