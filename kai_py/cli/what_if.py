"""``kai-py what-if``: the simulated effect of changes to the cluster.

Nothing is written to any cluster. Exit codes: 0 when no gang is pending afterwards, 1 otherwise.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Struct

from kai_py.api.sent_objects import encode_objects
from kai_py.api.texts import count_of
from kai_py.cli import completion
from kai_py.cli.connection import ClusterOptions
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.input_files import documents_in
from kai_py.cli.naming import context_namespace, gang_key
from kai_py.cli.options import takes_groups
from kai_py.cli.other_schedulers import say_other_schedulers
from kai_py.cli.output import OutputOptions, not_found, print_document, print_table, progress, say
from kai_py.cli.reading import SavedCluster, cluster_objects, known_names
from kai_py.cli.scheduler_http import (
    SEARCH_SECONDS,
    Query,
    SchedulerAddress,
    SchedulerOptions,
    decoded,
    read_or_ask,
)
from kai_py.config import Configuration
from kai_py.observe.share_steps import format_amount
from kai_py.simulate.added_nodes import group_node, machine_group
from kai_py.simulate.change_texts import parse_changes
from kai_py.simulate.changes import (
    AddNodes,
    AddObjects,
    ChangeError,
    ClusterChange,
    UnknownNameError,
    node_pattern,
)
from kai_py.simulate.files.objects import Document
from kai_py.simulate.what_if import Comparison, NodesNeeded, PlacedGang, nodes_needed, what_if

LISTED_BY = {
    "node": "kubectl get nodes",
    "gang": "kai-py gangs",
    "Queue": "kai-py queues",
}
FILES = (".yaml", ".yml", ".json")


class ChangeOptions(Struct, frozen=True):
    """The options that say what would change."""

    add: Annotated[
        list[Path] | None, typer.Option("--add", "-f", help="Create the objects of a manifest.")
    ] = None
    set_queue: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a Queue's field: NAME.maxGPUs=16.",
            autocompletion=completion.queue_fields,
        ),
    ] = None
    add_nodes: Annotated[
        list[str] | None,
        typer.Option(
            help="Add nodes like an existing one, one in a file, or of a group: NODE=COUNT.",
            autocompletion=completion.added_nodes,
        ),
    ] = None
    drain: Annotated[
        list[str] | None, typer.Option(help="Drain a node.", autocompletion=completion.nodes)
    ] = None
    remove: Annotated[
        list[str] | None,
        typer.Option(help="Remove a gang: NS/KIND/NAME.", autocompletion=completion.gangs),
    ] = None
    until_placed: Annotated[
        str,
        typer.Option(
            help="Find how many nodes like NODE, or the one in a file, have to be added until no "
            "gang lacks capacity.",
            autocompletion=completion.nodes,
        ),
    ] = ""

    def texts(self, namespace: str) -> Iterator[tuple[str, str]]:
        """Changes by kind and text, but for nodes and objects to add; of gangs in ``namespace``."""
        removed = [gang_key(name, namespace) for name in self.remove or ()]
        texts_by_kind = {"set": self.set_queue, "drain": self.drain, "remove": removed}
        for kind, texts in texts_by_kind.items():
            yield from ((kind, text) for text in texts or ())


@takes_groups
def command(
    *,
    saved: SavedCluster = None,
    cluster: ClusterOptions,
    change: ChangeOptions,
    scheduler: SchedulerOptions,
    output: OutputOptions,
) -> None:
    """Tell what a change would do: gangs that start, stop or stay pending, shares of queues."""
    configuration = cluster.configuration()
    address = scheduler.address(cluster)
    namespace = "default" if saved else context_namespace(cluster.kubeconfig, cluster.context)
    answer = read_or_ask(
        address,
        lambda: _simulate(change, saved, cluster, configuration, namespace),
        lambda: asyncio.run(_ask_scheduler(change, address)),
    )
    if not print_document(answer, output.form):
        if isinstance(answer, NodesNeeded):
            _print_needed(answer)
        else:
            _print_comparison(answer)
    if answer.nodes is None if isinstance(answer, NodesNeeded) else answer.pending:
        raise typer.Exit(ExitCode.FOUND)


def _simulate(
    change: ChangeOptions,
    saved: Path | None,
    cluster: ClusterOptions,
    configuration: Configuration,
    namespace: str,
) -> Comparison | NodesNeeded:
    documents, now = cluster_objects(saved, cluster), time.time()
    try:
        changes: tuple[ClusterChange, ...] = (
            *parse_changes(change.texts(namespace)),
            *map(_nodes, change.add_nodes or ()),
            *map(_manifest, change.add or ()),
        )
        with progress("simulating"):
            if change.until_placed:
                like, pattern = _pattern(change.until_placed)
                return nodes_needed(
                    documents, changes, configuration, like=like, pattern=pattern, now=now
                )
            answer = what_if(documents, changes, configuration, now=now)
    except UnknownNameError as error:
        hint = known_names(saved, error.known, LISTED_BY[error.what])
        raise not_found(f"{error.what} {error.name}", error.name, error.known, hint=hint) from None
    except ChangeError as error:
        raise CommandError(str(error)) from None
    added = (each for each in changes if isinstance(each, AddObjects))
    say_other_schedulers(chain(*(each.documents for each in added)), configuration)
    return answer


async def _ask_scheduler(
    change: ChangeOptions, address: SchedulerAddress
) -> Comparison | NodesNeeded:
    """The scheduler's answer, in which gangs that you may not see are only counted."""
    added = change.add_nodes or ()
    names = (*(text.rpartition("=")[0] for text in added), change.until_placed)
    if any(map(_is_file, names)):
        raise CommandError("nodes in files are simulated only where you may read the cluster")
    namespace = context_namespace(address.kubeconfig, address.context)
    query = (
        *change.texts(namespace),
        *_sent(change.add or (), namespace),
        *(("add-nodes", text) for text in added),
        *((("until-placed", change.until_placed),) if change.until_placed else ()),
        ("namespace", namespace),
    )
    async with address.connect(SEARCH_SECONDS) as link:
        with progress("simulating"):
            body = await link.get("/v1/what-if", query)
    if change.until_placed:
        return decoded(body, NodesNeeded)
    for name, count in decoded(body, _Others).others.items():
        say(f"Of other namespaces: {count} {name}.", err=True)
    return decoded(body, Comparison)


def _sent(paths: Sequence[Path], namespace: str) -> Query:
    """The objects of the files as a part of the query; those without a namespace get this one."""
    documents = [each for path in paths for each in _objects(path)]
    for each in documents:
        if isinstance(each["metadata"], dict):
            each["metadata"].setdefault("namespace", namespace)
    try:
        return (("add", encode_objects(documents)),) if documents else ()
    except ValueError as error:
        raise CommandError(f"--add: {error}") from None


class _Others(msgspec.Struct):
    """What the scheduler counts instead of naming it."""

    others: dict[str, int] = {}


def _nodes(text: str) -> ClusterChange:
    like, _, count = text.rpartition("=")
    if not _is_file(like):
        [change] = parse_changes([("add-nodes", text)])
        return change
    if not count.isdecimal():
        raise CommandError(f"--add-nodes {text}: is not of the form FILE=COUNT")
    name, pattern = _pattern(like)
    return AddNodes(name, int(count), pattern)


def _pattern(like: str) -> tuple[str, Sequence[Document]]:
    """The name of a node and, if it is in a file, the manifests there."""
    if not _is_file(like):
        return like, ()
    documents = _objects(Path(like))
    try:
        if group := machine_group(documents):
            return group.name, group_node(group)
        return node_pattern(documents), documents
    except ValueError as error:
        raise CommandError(f"{like}: {error}") from None


def _is_file(like: str) -> bool:
    return Path(like).suffix in FILES or "/" in like


def _manifest(path: Path) -> ClusterChange:
    return AddObjects(_objects(path))


def _objects(path: Path) -> list[Document]:
    documents = documents_in(str(path))
    for document in documents:
        line, value = document.node.start_mark.line + 1, document.value
        if not isinstance(value, dict):
            raise CommandError(f"{path}:{line}: is not a Kubernetes object")
        for field in ("apiVersion", "kind", "metadata"):
            if not value.get(field):
                hint = f"kai-py lint {path} lists every problem"
                raise CommandError(f"{path}:{line}: has no {field}", hint=hint)
    return [document.value for document in documents]


def _print_needed(needed: NodesNeeded) -> None:
    like, count = needed.like, needed.nodes
    if count is None:
        say(f"even {count_of(needed.most, 'more node')} like {like} would leave gangs pending")
    else:
        say(f"with {count_of(count, 'more node')} like {like}, no gang is short of capacity")


def _print_comparison(comparison: Comparison) -> None:
    for title, headings, rows in _sections(comparison):
        say(f"{title}:")
        print_table(headings, rows)
        typer.echo()
    if comparison == Comparison(pending=comparison.pending):
        typer.echo("The change makes no difference.")


GANG_HEADINGS = ("GANG", "QUEUE", "PODS", "NODES")
Section = tuple[str, tuple[str, ...], Sequence[tuple[str, ...]]]


def _sections(comparison: Comparison) -> Iterator[Section]:
    sections: tuple[Section, ...] = (
        ("Starts", GANG_HEADINGS, list(map(_placed, comparison.starts))),
        ("Stops", GANG_HEADINGS, list(map(_placed, comparison.stops))),
        ("Loses pods, and runs again", GANG_HEADINGS, list(map(_placed, comparison.restarts))),
        (
            "Evicted",
            ("POD", "GANG", "QUEUE", "EFFECT", "REASON"),
            [(str(e.pod), e.gang, e.queue, e.effect, e.reason) for e in comparison.victims],
        ),
        (
            "Pending",
            ("GANG", "QUEUE", "PODS", "STAGE", "REASON"),
            [
                (each.gang, each.queue, str(each.pods), each.stage.value, each.message)
                for each in comparison.pending
            ],
        ),
        (
            "Queues (GPUs)",
            ("QUEUE", "FAIR SHARE", "ALLOCATED"),
            [
                (each.queue, _change_text(each.fair_share), _change_text(each.allocated))
                for each in comparison.queues
            ],
        ),
        (
            "Problems",
            ("QUEUE", "PROBLEM"),
            [(each.queue, each.reason) for each in comparison.problems],
        ),
    )
    return (section for section in sections if section[2])


def _placed(placed: PlacedGang) -> tuple[str, ...]:
    return (placed.gang, placed.queue, str(len(placed.nodes)), " ".join(_node_counts(placed.nodes)))


def _node_counts(nodes: Sequence[str]) -> Iterator[str]:
    """Each node once, with the number of pods where there are several."""
    for node in dict.fromkeys(nodes):
        count = nodes.count(node)
        yield f"{node}(x{count})" if count > 1 else node


def _change_text(pair: tuple[float, float]) -> str:
    before, after = map(format_amount, pair)
    return before if before == after else f"{before} -> {after}"
