"""Which small change would let a waiting gang start? Each one proven by a simulation.

What is tried follows from the stage that stops the gang: its queue's bounds, a missing queue, or
room; for room: fewer pods, fewer gangs, more nodes. A change is only told when the gang starts in
the simulation in which it was made, with what it costs others.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kai_py.api.queue import API_VERSION
from kai_py.config import Configuration
from kai_py.plan.decisions import QueueShare, Stage
from kai_py.simulate.changes import AddNodes, AddObjects, Change, RemoveGang, SetFloor, SetQueue
from kai_py.simulate.objects import Document
from kai_py.simulate.what_if import ROOM_STAGES, Settled, Waiting, compare, least, settle_changed
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

MOST_NODES = 64
NODE_KINDS_TRIED = 3
GANGS_TRIED = 8


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change with which the gang starts, and whom it costs what.

    ``command`` shows the change in full; empty where ``kai-py what-if`` has no option for it.
    """

    text: str
    changes: tuple[Change, ...]
    command: str = ""
    evicts: tuple[str, ...] = ()
    """Gangs that lose pods."""


@dataclass(frozen=True, slots=True)
class _Question:
    """One gang in one cluster; ``starts`` simulates."""

    documents: Sequence[Document]
    configuration: Configuration
    now: float
    snapshot: Snapshot
    queues: dict[str, QueueShare]
    gang: Gang
    without: Settled

    def starts(self, *changes: Change) -> Settled | None:
        """The settled cluster if the gang runs in it."""
        given = settle_changed(self.documents, changes, self.configuration, self.now)
        return given if self.gang.key in given.running else None


def suggest(
    documents: Sequence[Document],
    configuration: Configuration,
    *,
    now: float,
    snapshot: Snapshot,
    without: Settled,
    gang: str,
) -> tuple[Suggestion, ...]:
    """Changes with which ``gang`` would start, the smallest of each kind; () if it runs."""
    waiting = next((each for each in without.waiting if each.gang == gang), None)
    if waiting is None or gang not in snapshot.gangs:
        return ()
    question = _Question(
        documents, configuration, now, snapshot, dict(without.queues), snapshot.gangs[gang], without
    )
    return tuple(_suggestions(question, waiting))


def _suggestions(question: _Question, waiting: Waiting) -> Iterator[Suggestion]:
    for stages, tried in _BY_STAGE:
        if waiting.stage in stages:
            yield from tried(question)


def _missing_queue(question: _Question) -> Iterator[Suggestion]:
    name = question.gang.queue
    if not name:
        return
    document = {
        "apiVersion": API_VERSION,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": 0},
    }
    yield from _proven(question, f"create the Queue {name}", AddObjects([document]))


def _larger_maximum(question: _Question) -> Iterator[Suggestion]:
    yield from _larger(question, "maxGPUs", lambda share: share.maximum.get(GPU, math.inf))


def _larger_guarantee(question: _Question) -> Iterator[Suggestion]:
    yield from _larger(question, "deservedGPUs", lambda share: share.deserved.get(GPU, 0.0))


def _larger(
    question: _Question, field: str, bound: Callable[[QueueShare], float]
) -> Iterator[Suggestion]:
    """Room for the gang alone; where others of the queue would take it, room for all of them."""
    asked = sum(member.charge.get(GPU, 0.0) for member in question.gang.pending)
    path = tuple(_path(question))
    alone = [share.allocated[GPU] + asked for share in path]
    for wanted in (alone, [share.requested[GPU] for share in path]):
        changes = tuple(
            SetQueue(share.queue, (field,), math.ceil(amount))
            for share, amount in zip(path, wanted, strict=True)
            if bound(share) < amount
        )
        wishes = (f"{field} of Queue {each.queue} {each.value}" for each in changes)
        found = list(_proven(question, f"make {' and '.join(wishes)}", *changes))
        if found:
            yield found[0]
            return


def _fewer_pods(question: _Question) -> Iterator[Suggestion]:
    """The largest smaller floor that has room; fewer pods never need more of it."""
    floor = question.gang.tree.floor()
    if question.gang.tree.children or floor < 2:
        return
    given_up = least(lambda less: less > 0 and _starts_with(question, floor - less), most=floor - 1)
    if given_up:
        change = SetFloor(question.gang.key, floor - given_up)
        text = f"let it start with {floor - given_up} of its {floor} pods (min-available)"
        yield from _proven(question, text, change)


def _starts_with(question: _Question, count: int) -> bool:
    return question.starts(SetFloor(question.gang.key, count)) is not None


def _one_gang_less(question: _Question) -> Iterator[Suggestion]:
    """The first running gang, the smallest and least important ones first, whose end is enough."""
    running = sorted(
        (gang for gang in question.snapshot.gangs.values() if gang.bound),
        key=lambda gang: (gang.allocated.get(GPU, 0.0), gang.priority, gang.key),
    )
    asked = sum(member.charge.get(GPU, 0.0) for member in question.gang.pending)
    fitting = [gang for gang in running if gang.allocated.get(GPU, 0.0) >= asked] or running[::-1]
    for gang in fitting[:GANGS_TRIED]:
        found = list(_proven(question, f"let {gang.key} end", RemoveGang(gang.key)))
        if found:
            yield found[0]
            return


def _more_nodes(question: _Question) -> Iterator[Suggestion]:
    """For the node kinds there are, the most frequent first: the least number of more of them."""
    for like in _node_kinds(question.snapshot)[:NODE_KINDS_TRIED]:
        enough = least(_with_nodes(question, like), most=MOST_NODES)
        if enough:
            plural = "s" if enough > 1 else ""
            text = f"add {enough} node{plural} like {like}"
            yield from _proven(question, text, AddNodes(like, enough))
            return


def _with_nodes(question: _Question, like: str) -> Callable[[int], bool]:
    return lambda count: count > 0 and question.starts(AddNodes(like, count)) is not None


def _node_kinds(snapshot: Snapshot) -> list[str]:
    """A node of each kind: nodes with the same amounts of everything and the same taints."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for name, node in zip(snapshot.nodes.names, snapshot.nodes.records, strict=True):
        amounts = tuple(sorted((key, str(value)) for key, value in node.status.allocatable.items()))
        kinds.setdefault((amounts, node.spec.taints), []).append(name)
    return [names[0] for names in sorted(kinds.values(), key=lambda names: (-len(names), names[0]))]


def _proven(question: _Question, text: str, *changes: Change) -> Iterator[Suggestion]:
    given = question.starts(*changes)
    if given is not None:
        victims = compare(question.without, given).victims
        yield Suggestion(
            text,
            changes,
            command=" ".join(filter(None, map(_option, changes))),
            evicts=tuple(dict.fromkeys(eviction.gang for eviction in victims)),
        )


def _option(change: Change) -> str:
    match change:
        case SetQueue():
            return f"--set {change.queue}.{'.'.join(change.path)}={change.value}"
        case AddNodes():
            return f"--add-nodes {change.like}={change.count}"
        case RemoveGang():
            return f"--remove {change.gang}"
    return ""


def _path(question: _Question) -> Iterator[QueueShare]:
    name = question.gang.queue
    while name in question.queues:
        yield question.queues[name]
        name = question.queues[name].parent


_BY_STAGE: tuple[tuple[frozenset[Stage], Callable[[_Question], Iterator[Suggestion]]], ...] = (
    (frozenset({Stage.QUEUE}), _missing_queue),
    (frozenset({Stage.QUEUE_MAX}), _larger_maximum),
    (frozenset({Stage.NON_PREEMPTIBLE}), _larger_guarantee),
    (ROOM_STAGES | {Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE}, _fewer_pods),
    (ROOM_STAGES, _one_gang_less),
    (ROOM_STAGES, _more_nodes),
)
