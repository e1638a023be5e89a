"""``kai-py queues``: what ``kubectl get queues`` cannot show: fair share, use and who waits.

The cluster is read once and one cycle is run on it, so the shares are those the scheduler works
with now.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from kai_py.cli.configuration import configuration_from
from kai_py.cli.connection import Context, Kubeconfig, cluster_client
from kai_py.cli.reading import read_and_plan
from kai_py.cli.tables import print_table
from kai_py.config import Configuration
from kai_py.observe.queue_rows import QueueRow, in_tree_order, queue_rows
from kai_py.plan.decisions import Plan
from kai_py.snapshot.accounting import GPU

HEADINGS = (
    "QUEUE", "DESERVED", "MAX", "FAIR SHARE", "ALLOCATED", "REQUESTED", "PENDING", "PROBLEM",
)  # fmt: skip


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
    print_table(HEADINGS, (_cells(row, depth, resource) for depth, row in in_tree_order(rows)))


async def _plan(kubeconfig: str, context: str, configuration: Configuration) -> Plan:
    async with cluster_client(kubeconfig, context) as client:
        _, plan = await read_and_plan(client, configuration)
    return plan


def _cells(row: QueueRow, depth: int, resource: str) -> tuple[str, ...]:
    stages = ", ".join(f"{count} {stage}" for stage, count in sorted(row.pending_by_stage.items()))
    views = (row.deserved, row.max, row.fair_share, row.allocated, row.requested)
    return (
        "  " * depth + row.queue,
        *(_amount(view.get(resource, 0.0)) for view in views),
        stages or "-",
        "; ".join(row.problems),
    )


def _amount(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.10g}" if amount >= 1e6 else f"{amount:.6g}"
