"""``kai-py gangs``: the gangs, their members and why they are pending.

The cluster is read once and one cycle is run on it; STATE and WHY are from that cycle.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, NamedTuple

import typer

from kai_py.api.problems import closest_match
from kai_py.cli import completion
from kai_py.cli.connection import ConfigFile, Context, Kubeconfig, configuration_from
from kai_py.cli.errors import CommandError
from kai_py.cli.gang_tree import print_tree
from kai_py.cli.output import (
    JsonFlag,
    Output,
    OutputOption,
    check_known,
    count_of,
    print_document,
    print_table,
    say,
)
from kai_py.cli.reading import WATCH_SECONDS, plan_cluster, watch_cluster
from kai_py.cli.scheduler_http import (
    DEFAULT_SERVICE,
    SchedulerAddress,
    Service,
    TokenFile,
    Url,
    ask_list,
    read_or_ask,
)
from kai_py.config import Configuration
from kai_py.observe.explanation import DELETED, RUNNING, STARTING
from kai_py.observe.gang_rows import GangRow, gang_rows
from kai_py.observe.http_lists import GangList
from kai_py.observe.share_steps import format_amount
from kai_py.plan.plan import Plan
from kai_py.snapshot.snapshot import Snapshot

HEADINGS = ("GANG", "QUEUE", "PRIORITY", "BOUND", "MIN MEMBER", "PODS", "STATE", "MESSAGE")


def command(
    *,
    name: Annotated[
        str,
        typer.Argument(
            help="Only this gang: NAMESPACE/KIND/NAME, or an end of it.",
            autocompletion=completion.gangs,
        ),
    ] = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Only gangs of this namespace.",
            autocompletion=completion.namespaces,
        ),
    ] = "",
    queue: Annotated[
        str,
        typer.Option(help="Only gangs of this queue.", autocompletion=completion.queues),
    ] = "",
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces, which is the default.")
    ] = False,
    pending: Annotated[bool, typer.Option("--pending", help="Only pending gangs.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on and print the gangs that change.")
    ] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="Show subgroups with minMember and topology, and the rule of each gang."
        ),
    ] = False,
    url: Url = "",
    token_file: TokenFile = None,
    service: Service = DEFAULT_SERVICE,
    output: OutputOption = Output.TABLE,
    json: JsonFlag = False,
) -> None:
    """List gangs with their members and why they wait.

    Without the right to read the cluster, the scheduler tells the gangs of the namespaces whose
    pods you may list.
    """
    configuration = configuration_from(config)
    if namespace and all_namespaces:
        raise CommandError("--namespace and --all-namespaces exclude each other")
    wanted = _Wanted(namespace, queue, name, pending_only=pending)
    address = SchedulerAddress(url, token_file, service, kubeconfig, context)
    if watch:
        show = _print_trees if tree else partial(print_gangs, output=output)
        changes = _Changes(wanted, show)
        read_or_ask(
            address,
            lambda: watch_cluster(kubeconfig, context, configuration, changes.show),
            lambda: _follow_scheduler(address, namespace, changes),
        )
        return
    listing = read_or_ask(
        address,
        lambda: _read(kubeconfig, context, configuration),
        lambda: ask_list(address, "list/gangs", GangList, namespace),
    )
    gangs = listing.gangs
    if listing.others is None:
        queues = {*listing.queues, *(gang.queue for gang in gangs)}
        check_known("--queue", queue, queues, hint="kai-py queues lists them")
    rows = list(filter(wanted.includes, gangs))
    namespaces = {row.gang.partition("/")[0] for row in gangs}
    if namespace and namespace not in namespaces:
        suggestion = closest_match(namespace, sorted(namespaces))
        hint = f" (did you mean {suggestion}?)" if suggestion else ""
        say(f"no gangs in namespace {namespace}{hint}", err=True)
    elif not namespaces and listing.others is None:
        say(f"no gangs: no pod has schedulerName {configuration.scheduler_name}", err=True)
    if name and not rows:
        raise CommandError(f"gang {name}: not found", hint="kai-py gangs lists them")
    if print_document(rows, output, json=json, names=(row.gang for row in rows)):
        return
    if tree:
        _print_trees(rows)
        return
    print_gangs(rows, output)
    _print_others(listing)


def _read(kubeconfig: str, context: str, configuration: Configuration) -> GangList:
    snapshot, plan = plan_cluster(kubeconfig, context, configuration)
    queues = tuple(share.queue for share in plan.queues)
    return GangList(0, list(gang_rows(snapshot, plan)), queues=queues)


def _follow_scheduler(address: SchedulerAddress, namespace: str, changes: "_Changes") -> None:
    """Print changes as the scheduler tells them, until an interrupt."""
    while True:
        changes.show_rows(ask_list(address, "list/gangs", GangList, namespace).gangs)
        time.sleep(WATCH_SECONDS)


def _print_others(listing: GangList) -> None:
    others = listing.others
    if others is None:
        return
    gangs = count_of(others.running + others.pending, "gang")
    say(
        f"Other namespaces: {gangs}, {others.pending} of them pending, with "
        f"{format_amount(others.gpus)} GPUs allocated.",
        err=True,
    )
    if listing.unreviewed:
        left_out = count_of(listing.unreviewed, "namespace")
        say(f"{left_out} not looked at: name yours by -n", err=True)


class _Wanted(NamedTuple):
    """Which gangs are listed; empty texts stand for all."""

    namespace: str
    queue: str
    name: str
    pending_only: bool

    def includes(self, row: GangRow) -> bool:
        return (
            row.gang.startswith(f"{self.namespace}/" if self.namespace else "")
            and self.queue in ("", row.queue)
            and (not self.name or f"/{row.gang}".endswith(f"/{self.name}"))
            and not (self.pending_only and row.state in (RUNNING, STARTING))
        )


class _Changes:
    """Prints the gangs of each cycle that are not as they were in the one before."""

    def __init__(self, wanted: _Wanted, show: Callable[[Sequence[GangRow]], None]) -> None:
        self._wanted, self._show = wanted, show
        self._last: dict[str, GangRow] = {}

    def show(self, snapshot: Snapshot, plan: Plan) -> None:
        """Print what has changed, by the plan of a cycle."""
        self.show_rows(gang_rows(snapshot, plan))

    def show_rows(self, found: Iterable[GangRow]) -> None:
        """Print what has changed."""
        rows = {row.gang: row for row in found if self._wanted.includes(row)}
        gone = (replace(row, state=DELETED) for key, row in self._last.items() if key not in rows)
        changed = [row for key, row in rows.items() if self._last.get(key) != row]
        changed += gone
        if changed or not self._last:
            self._show(changed)
        self._last = rows


def _print_trees(rows: Sequence[GangRow]) -> None:
    for row in rows:
        state = f"{row.state}: {row.message}" if row.message else row.state
        facts = (
            f"queue {row.queue or '-'}, priority {_priority(row)}, {row.preemptibility}",
            f"made by: {row.rule}",
            state,
        )
        print_tree(row.gang, facts, row.tree)


def print_gangs(rows: Sequence[GangRow], output: Output) -> None:
    """Print the table of gangs."""
    wide = output is Output.WIDE
    headings = (*HEADINGS[:-1], "NODES", HEADINGS[-1]) if wide else HEADINGS
    print_table(headings, (_cells(row, wide=wide) for row in rows))


def _priority(row: GangRow) -> str:
    return f"{row.priority}+{row.ageing_points}" if row.ageing_points else str(row.priority)


def _cells(row: GangRow, *, wide: bool) -> tuple[str, ...]:
    counts = (_priority(row), row.bound, row.min_members, row.pods)
    nodes = (", ".join(row.nodes) or "-",) if wide else ()
    return (row.gang, row.queue or "-", *map(str, counts), row.state, *nodes, row.message)
