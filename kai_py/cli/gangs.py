"""``kai-py gangs``: the gangs, their members, their trees, and why they are pending.

The cluster is read once and one cycle is run on it; STATE and MESSAGE are from that cycle.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.problems import closest_match
from kai_py.api.texts import count_of
from kai_py.cli import completion
from kai_py.cli.connection import ClusterOptions
from kai_py.cli.errors import CommandError
from kai_py.cli.options import takes_groups
from kai_py.cli.output import (
    Output,
    OutputOptions,
    check_known,
    not_found,
    print_document,
    print_table,
    say,
)
from kai_py.cli.reading import WATCH_SECONDS, plan_cluster, watch_cluster
from kai_py.cli.scheduler_http import SchedulerAddress, SchedulerOptions, ask_list, read_or_ask
from kai_py.cli.sentences import folded, terminal_width
from kai_py.config import Configuration
from kai_py.grouping.gang import TopologyConstraint
from kai_py.observe.explanation import DELETED
from kai_py.observe.gang_rows import NOT_PENDING, GangRow, TreeRow, gang_rows
from kai_py.observe.http_lists import GangList
from kai_py.plan.plan import Plan
from kai_py.snapshot.snapshot import Snapshot

HEADINGS = ("GANG", "QUEUE", "STATE", "BOUND", "MIN", "PRIORITY", "MESSAGE")


class GangFilter(Struct, frozen=True):
    """The options that say which gangs are listed; empty texts stand for all."""

    name: Annotated[
        str,
        typer.Argument(
            help="Only this gang: NAMESPACE/KIND/NAME, or the last parts of it.",
            autocompletion=completion.gangs,
        ),
    ] = ""
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Only gangs of this namespace.",
            autocompletion=completion.namespaces,
        ),
    ] = ""
    queue: Annotated[
        str,
        typer.Option(help="Only gangs of this queue.", autocompletion=completion.queues),
    ] = ""
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces, which is the default.")
    ] = False
    pending: Annotated[bool, typer.Option("--pending", help="Only pending gangs.")] = False

    def includes(self, row: GangRow) -> bool:
        """Whether the gang is listed."""
        return (
            row.gang.startswith(f"{self.namespace}/" if self.namespace else "")
            and self.queue in ("", row.queue)
            and (not self.name or f"/{row.gang}".endswith(f"/{self.name}"))
            and not (self.pending and row.state in NOT_PENDING)
        )


@takes_groups
def command(
    *,
    cluster: ClusterOptions,
    wanted: GangFilter,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep running and print the gangs that change.")
    ] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="Show subgroups with minMember and topology, and the rule of each gang."
        ),
    ] = False,
    scheduler: SchedulerOptions,
    output: OutputOptions,
) -> None:
    """List gangs with their members and why they wait.

    Without the right to read the cluster, the scheduler lists the gangs of the namespaces whose
    pods you may list.
    """
    configuration = cluster.configuration()
    if wanted.namespace and wanted.all_namespaces:
        raise CommandError("--namespace and --all-namespaces exclude each other")
    address = scheduler.address(cluster)
    if watch:
        changes = _Changes(wanted, partial(_print_rows, tree=tree, form=output.form))
        read_or_ask(
            address,
            lambda: watch_cluster(cluster, configuration, changes.show),
            lambda: _follow_scheduler(address, wanted.namespace, changes),
        )
        return
    listing = read_or_ask(
        address,
        lambda: _read(cluster, configuration),
        lambda: ask_list(address, "list/gangs", GangList, wanted.namespace),
    )
    rows = _filtered(listing, wanted, configuration.scheduler_name)
    _print_rows(rows, tree=tree, form=output.form)
    if output.is_text and not tree:
        _print_others(listing)


def _print_rows(rows: Sequence[GangRow], *, tree: bool, form: Output) -> None:
    """Print gangs in the form asked for; a pipe gets them at once."""
    if not print_document(rows, form, names=(row.gang for row in rows)):
        if tree:
            _print_trees(rows)
        else:
            print_gangs(rows, form)
    sys.stdout.flush()


def _filtered(listing: GangList, wanted: GangFilter, scheduler_name: str) -> list[GangRow]:
    """The gangs to print; raises CommandError where the filter names what is not there."""
    gangs = listing.gangs
    if listing.others is None:
        queues = {*listing.queues, *(gang.queue for gang in gangs)}
        check_known("--queue", wanted.queue, queues, hint="kai-py queues lists them")
    namespaces = {row.gang.partition("/")[0] for row in gangs}
    if wanted.namespace and wanted.namespace not in namespaces:
        suggestion = closest_match(wanted.namespace, sorted(namespaces))
        hint = f" (did you mean {suggestion}?)" if suggestion else ""
        say(f"no gangs in namespace {wanted.namespace}{hint}", err=True)
    elif not namespaces and listing.others is None:
        say(f"no gangs: no pod has schedulerName {scheduler_name}", err=True)
    rows = list(filter(wanted.includes, gangs))
    if wanted.name and not rows:
        known = [row.gang for row in gangs]
        raise not_found(f"gang {wanted.name}", wanted.name, known, hint="kai-py gangs lists them")
    if wanted.pending and gangs and not rows:
        say("no such gang is pending", err=True)
    return rows


def _read(cluster: ClusterOptions, configuration: Configuration) -> GangList:
    snapshot, plan = plan_cluster(cluster, configuration)
    queues = tuple(share.queue for share in plan.queues)
    return GangList(0, list(gang_rows(snapshot, plan)), queues=queues)


def _follow_scheduler(address: SchedulerAddress, namespace: str, changes: "_Changes") -> None:
    """Print changes as the scheduler sends them, until an interrupt."""
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
        f"{count_of(round(others.gpus, 2), 'GPU')} allocated.",
        err=True,
    )
    if listing.unreviewed:
        left_out = count_of(listing.unreviewed, "namespace")
        say(f"{left_out} not reviewed; name yours with -n", err=True)


class _Changes:
    """Prints the gangs of each cycle that are not as they were in the one before."""

    def __init__(self, wanted: GangFilter, show: Callable[[Sequence[GangRow]], None]) -> None:
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


def print_gangs(rows: Sequence[GangRow], form: Output) -> None:
    """Print the table of gangs."""
    wide = form is Output.WIDE
    headings = (*HEADINGS[:-1], "NODES", HEADINGS[-1]) if wide else HEADINGS
    print_table(headings, (_cells(row, wide=wide) for row in rows))


def _priority(row: GangRow) -> str:
    return f"{row.priority}+{row.ageing_points}" if row.ageing_points else str(row.priority)


def _cells(row: GangRow, *, wide: bool) -> tuple[str, ...]:
    bound = f"{row.bound}/{row.pods}"
    nodes = (", ".join(row.nodes) or "-",) if wide else ()
    state = (row.gang, row.queue or "-", row.state, bound, str(row.min_members))
    return (*state, _priority(row), *nodes, row.message)


LAST, NEXT = "└─ ", "├─ "
BELOW_LAST, BELOW_NEXT = "   ", "│  "
INDENT = "  "
WHOLE_GANG = "(whole)"


def print_tree(title: str, facts: Sequence[str], tree: TreeRow) -> None:
    """Print a gang: its title, sentences about it, and its subgroups; folded on a terminal."""
    for line in tree_lines(title, facts, tree, width=terminal_width(sys.stdout)):
        say(line)


def tree_lines(
    title: str, facts: Sequence[str], tree: TreeRow, *, width: int | None
) -> Iterator[str]:
    """The lines of a gang; ``width`` is None where they are not folded."""
    yield title
    for fact in facts:
        yield from _folded(fact, INDENT, INDENT * 2, width)
    yield from _lines(tree, INDENT, INDENT, width)


def _lines(row: TreeRow, first: str, rest: str, width: int | None) -> Iterator[str]:
    below = rest + (BELOW_NEXT if row.children else BELOW_LAST)
    yield from _folded(_description(row), first, below, width)
    for number, child in enumerate(row.children, 1):
        is_last = number == len(row.children)
        branch, further = (LAST, BELOW_LAST) if is_last else (NEXT, BELOW_NEXT)
        yield from _lines(child, rest + branch, rest + further, width)


def _folded(text: str, first: str, rest: str, width: int | None) -> list[str]:
    return [first + text] if width is None else folded(text, width, first=first, rest=rest)


def _description(row: TreeRow) -> str:
    name = row.name or WHOLE_GANG
    parts = [f"{name}: minMember {row.min_members}, {row.bound} of {row.pods} pods bound"]
    if row.children and row.min_subgroups is not None:
        parts.append(f"{row.min_subgroups} of {len(row.children)} subgroups")
    return "; ".join((*parts, *_constraint(row.topology)))


def _constraint(topology: TopologyConstraint | None) -> Iterator[str]:
    if topology is None:
        return
    of = f" of topology {topology.topology}" if topology.topology else ""
    if topology.required_level:
        yield f"within one {topology.required_level}{of}"
    if topology.preferred_level:
        yield f"within one {topology.preferred_level}{of} if possible"
    if topology.fitting_level:
        yield f"within one {topology.fitting_level}{of} if an empty one is large enough"
