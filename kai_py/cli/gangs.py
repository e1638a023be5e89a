"""``kai-py gangs``: the gangs, their members and why they are pending.

The cluster is read once and one cycle is run on it; STATE and WHY are from that cycle.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from kai_py.api.problems import closest_match
from kai_py.cli.connection import ConfigFile, Context, Kubeconfig, configuration_from
from kai_py.cli.output import (
    JsonFlag,
    Output,
    OutputOption,
    check_known,
    print_document,
    print_table,
    say,
)
from kai_py.cli.reading import plan_cluster
from kai_py.observe.explanation import RUNNING, STARTING
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

HEADINGS = ("GANG", "QUEUE", "PRIORITY", "BOUND", "MIN MEMBER", "PODS", "STATE", "MESSAGE")


@dataclass(frozen=True, slots=True)
class GangRow:
    """A gang: ``bound`` of ``pods`` are bound; ``floor`` is minMember; ``why`` if pending.

    ``nodes``: where the bound pods are. ``gained``: points of priority for waiting.
    """

    gang: str
    queue: str
    priority: int
    bound: int
    min_members: int
    pods: int
    state: str
    nodes: tuple[str, ...]
    message: str
    ageing_points: int = 0


def command(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Only gangs of this namespace.")
    ] = "",
    queue: Annotated[str, typer.Option(help="Only gangs of this queue.")] = "",
    pending: Annotated[bool, typer.Option("--pending", help="Only pending gangs.")] = False,
    output: OutputOption = Output.TABLE,
    json: JsonFlag = False,
) -> None:
    """List gangs with their members and why they wait."""
    configuration = configuration_from(config)
    snapshot, plan = plan_cluster(kubeconfig, context, configuration)
    gang_queues = {gang.queue for gang in snapshot.gangs.values()}
    queues = gang_queues.union(share.queue for share in plan.queues)
    check_known("--queue", queue, queues, hint="kai-py queues lists them")
    rows = [
        row
        for row in gang_rows(snapshot, plan)
        if row.gang.startswith(f"{namespace}/" if namespace else "")
        and queue in ("", row.queue)
        and not (pending and row.state in (RUNNING, STARTING))
    ]
    namespaces = {gang.partition("/")[0] for gang in snapshot.gangs}
    if namespace and namespace not in namespaces:
        suggestion = closest_match(namespace, sorted(namespaces))
        hint = f" (did you mean {suggestion}?)" if suggestion else ""
        say(f"no gangs in namespace {namespace}{hint}", err=True)
    elif not namespaces:
        say(f"no gangs: no pod has schedulerName {configuration.scheduler_name}", err=True)
    if print_document(rows, output, json=json):
        return
    wide = output is Output.WIDE
    headings = (*HEADINGS[:-1], "NODES", HEADINGS[-1]) if wide else HEADINGS
    print_table(headings, (_cells(row, wide=wide) for row in rows))


def gang_rows(snapshot: Snapshot, plan: Plan) -> Iterator[GangRow]:
    """One row per gang, by key."""
    waiting = {unplaced.gang: unplaced for unplaced in plan.unplaced}
    placed = {gang.gang for gang in plan.placements}
    for key, gang in sorted(snapshot.gangs.items()):
        unplaced = waiting.get(key)
        if unplaced is not None:
            yield _row(gang, unplaced.stage.value, unplaced.message, unplaced.ageing_points)
        else:
            yield _row(gang, STARTING if key in placed else RUNNING, "")


def _row(gang: Gang, state: str, message: str, gained: int = 0) -> GangRow:
    return GangRow(
        gang=gang.key,
        queue=gang.queue,
        priority=gang.priority,
        bound=len(gang.bound),
        min_members=gang.tree.min_pods(),
        pods=len(gang.members),
        state=state,
        nodes=tuple(sorted({member.node for member in gang.bound})),
        message=message,
        ageing_points=gained,
    )


def _cells(row: GangRow, *, wide: bool) -> tuple[str, ...]:
    priority = f"{row.priority}+{row.ageing_points}" if row.ageing_points else row.priority
    counts = (priority, row.bound, row.min_members, row.pods)
    nodes = (", ".join(row.nodes) or "-",) if wide else ()
    return (row.gang, row.queue or "-", *map(str, counts), row.state, *nodes, row.message)
