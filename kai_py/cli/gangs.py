"""``kai-py gangs``: the gangs, their members and why they wait; ``kubectl get`` has none of it.

The cluster is read once and one cycle is run on it; STATE and WHY are what that cycle says.
"""

import asyncio
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
from kai_py.plan.decisions import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

HEADINGS = ("GANG", "QUEUE", "PRIORITY", "BOUND", "FLOOR", "PODS", "STATE", "WHY")
RUNNING = "Running"
STARTING = "Starting"


@dataclass(frozen=True, slots=True)
class GangRow:
    """A gang: ``bound`` of ``pods`` hold room, ``floor`` are needed; ``why`` when it waits."""

    gang: str
    queue: str
    priority: int
    bound: int
    floor: int
    pods: int
    state: str
    why: str


def command(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: Annotated[Path | None, typer.Option(help="The scheduler's configuration.")] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Only gangs of this namespace.")
    ] = "",
    queue: Annotated[str, typer.Option(help="Only gangs of this queue.")] = "",
    pending: Annotated[bool, typer.Option("--pending", help="Only gangs that wait.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List gangs with their members and why they wait."""
    snapshot, plan = asyncio.run(_read(kubeconfig, context, configuration_from(config)))
    rows = [
        row
        for row in gang_rows(snapshot, plan)
        if row.gang.startswith(f"{namespace}/" if namespace else "")
        and queue in ("", row.queue)
        and not (pending and row.state in (RUNNING, STARTING))
    ]
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2))
        return
    print_table(HEADINGS, (_cells(row) for row in rows))


async def _read(
    kubeconfig: str, context: str, configuration: Configuration
) -> tuple[Snapshot, Plan]:
    async with cluster_client(kubeconfig, context) as client:
        return await read_and_plan(client, configuration)


def gang_rows(snapshot: Snapshot, plan: Plan) -> Iterator[GangRow]:
    """One row per gang, by key."""
    waiting = {unplaced.gang: unplaced for unplaced in plan.unplaced}
    placed = {gang.gang for gang in plan.placements}
    for key, gang in sorted(snapshot.gangs.items()):
        unplaced = waiting.get(key)
        if unplaced is not None:
            yield _row(gang, unplaced.stage.value, unplaced.message)
        else:
            yield _row(gang, STARTING if key in placed else RUNNING, "")


def _row(gang: Gang, state: str, why: str) -> GangRow:
    return GangRow(
        gang=gang.key,
        queue=gang.queue,
        priority=gang.priority,
        bound=len(gang.bound),
        floor=gang.tree.floor(),
        pods=len(gang.members),
        state=state,
        why=why,
    )


def _cells(row: GangRow) -> tuple[str, ...]:
    counts = (row.priority, row.bound, row.floor, row.pods)
    return (row.gang, row.queue or "-", *map(str, counts), row.state, row.why)
