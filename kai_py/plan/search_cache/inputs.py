"""The inputs of a search, as one record, and how they differ from those of the last cycle.

``SearchInputs`` is what a session is built from; ``Decisions`` is what the cycle has changed since,
so the two are all that a search depends on beside its request. A result of the last cycle holds
while both are the same. Fields of the snapshot are compared as they are, so that a new field counts
from the start; these enter as the facts that they decide:

    now                        which running gangs are within their min runtimes
    next_device                the device that may be allocated again then (``devices``)
    gangs, gang_changes, pending
                               the gangs with pods on nodes
    queue_*, sharing           usage and shares of queues (``Decisions``)
    in_backoff, below_min_members, started_in_part, ignored_markers, misnamed_schedulers, starting
                               which gangs are tried, and pods placed before (``Decisions``)

Parts that did not change mostly are the same objects, so that comparing costs O(gangs that
changed); amounts cost O(nodes x resources).
"""

from collections.abc import Hashable
from enum import IntEnum
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.plan.state.capacity import Capacity
from kai_py.policy.min_runtime import within_min_runtime
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.shared_gpus import GpuSharing
from kai_py.snapshot.snapshot import Snapshot

ENTER_AS_FACTS = frozenset(
    {
        "now",
        "next_device",
        "next_overdue",
        "gangs",
        "gang_changes",
        "pending",
        "queue_allocated",
        "queue_requested",
        "queue_non_preemptible",
        "queue_leaving",
        "sharing",
        "ignored_markers",
        "in_backoff",
        "below_min_members",
        "started_in_part",
        "misnamed_schedulers",
        "starting",
    }
)
AMOUNTS = frozenset({"used", "releasing", "gpu_sharing"})


class InputsChange(IntEnum):
    """How inputs differ from those before."""

    CHANGED = 0
    NO_DEPARTURES = 1
    """Pods came or amounts changed, but every pod that ran is where it was."""
    UNCHANGED = 2


class SearchInputs(Struct, frozen=True, eq=False, dict=True):
    """What the session of a cycle is built from; ``min_runtimes``: all that are set, in seconds."""

    snapshot: Snapshot
    settings: Hashable
    min_runtimes: tuple[float, ...] = ()
    set_aside: frozenset[str] = frozenset()
    """Keys of gangs that are no candidates because they failed (``session.turns``)."""

    @cached_property
    def protected(self) -> frozenset[tuple[str, float]]:
        """Running gangs by key, and the min runtimes that they are within."""
        snapshot = self.snapshot
        return frozenset(
            (gang.key, runtime)
            for gang in (snapshot.gangs.values() if self.min_runtimes else ())
            if gang.bound
            for runtime in self.min_runtimes
            if within_min_runtime(gang.started, runtime, snapshot.now)
        )


class Decisions(Struct, frozen=True):
    """What the cycle has decided when a search begins, and what history and scores add.

    ``shares`` is empty for actions that do not look at them.
    """

    placed: tuple[tuple[str, int, Capacity], ...]
    evicted: tuple[str, ...]
    usage: tuple[bytes, ...]
    shares: tuple[bytes, ...]
    past_evictions: Hashable
    scores: Hashable

    def equal_beside_shares(self, other: "Decisions") -> bool:
        """Whether all but the shares of queues is the same."""
        return self == other or replace(self, shares=()) == replace(other, shares=())


class InputsHistory:
    """The inputs of this cycle and of the last."""

    def __init__(self) -> None:
        """No cycle has begun yet."""
        self._last: SearchInputs | None = None
        self._current: SearchInputs | None = None
        self._change: InputsChange | None = None

    def start_cycle(self, inputs: SearchInputs) -> None:
        """A cycle begins with ``inputs``."""
        self._last, self._current, self._change = self._current, inputs, None

    @property
    def change(self) -> InputsChange:
        """How the inputs differ from those of the last cycle; compared when first asked for."""
        if self._last is None or self._current is None:
            return InputsChange.CHANGED
        if self._change is None:
            self._change = inputs_change(self._last, self._current)
        return self._change


def inputs_change(before: SearchInputs, now: SearchInputs) -> InputsChange:
    """How ``now`` differs from ``before``."""
    if before.settings != now.settings or before.set_aside != now.set_aside:
        return InputsChange.CHANGED
    if before.snapshot is now.snapshot:
        return InputsChange.UNCHANGED
    names = set(Snapshot.__struct_fields__) - ENTER_AS_FACTS
    if not all(_field_equal(before.snapshot, now.snapshot, name) for name in names - AMOUNTS):
        return InputsChange.CHANGED
    gangs = _gangs_change(before.snapshot, now.snapshot)
    if gangs is InputsChange.CHANGED or not before.protected <= now.protected:
        return InputsChange.CHANGED
    same = gangs is InputsChange.UNCHANGED and before.protected == now.protected
    same = same and all(_field_equal(before.snapshot, now.snapshot, name) for name in AMOUNTS)
    return InputsChange.UNCHANGED if same else InputsChange.NO_DEPARTURES


def _field_equal(before: Snapshot, now: Snapshot, name: str) -> bool:
    ours, theirs = getattr(before, name), getattr(now, name)
    if ours is theirs:
        return True
    if isinstance(ours, np.ndarray):
        return np.array_equal(ours, theirs)
    if isinstance(ours, GpuSharing):
        return all(
            np.array_equal(getattr(ours, part), getattr(theirs, part))
            for part in GpuSharing.__struct_fields__
        )
    # Columns of nodes are built again with every change, and hold arrays without equality.
    return name != "nodes" and bool(ours == theirs)


def _gangs_change(before: Snapshot, now: Snapshot) -> InputsChange:
    """How the gangs with pods on nodes differ."""
    found = InputsChange.UNCHANGED
    for key in now.gang_changes.between(before.gangs, now.gangs):
        known, gang = before.gangs.get(key), now.gangs.get(key)
        ran, runs = _members_on_nodes(known), _members_on_nodes(gang)
        if known == gang or not (ran or runs):
            continue
        if known is not None and (
            gang is None or ran != runs[: len(ran)] or not _equally_evictable(known, gang)
        ):
            return InputsChange.CHANGED
        found = InputsChange.NO_DEPARTURES
    return found


def _members_on_nodes(gang: Gang | None) -> list[Member]:
    return [] if gang is None else [member for member in gang.members if member.node]


def _equally_evictable(known: Gang, gang: Gang) -> bool:
    """Whether all that decides about evicting the gang is as it was, its pods apart."""
    return (known.queue, known.priority, known.preemptible, known.semi_preemptible, known.tree) == (
        gang.queue,
        gang.priority,
        gang.preemptible,
        gang.semi_preemptible,
        gang.tree,
    )
