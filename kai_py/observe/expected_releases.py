"""What frees up when, as far as it is known: terminating pods, and pods with a declared runtime.

GPUs of the whole cluster, without the names of workloads: the reader may not be allowed to see
them. O(pods) per cycle that is explained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

MAX_RELEASES = 3


@dataclass(frozen=True, slots=True)
class ExpectedRelease:
    """By ``at`` (seconds since the epoch) pods with ``gpus`` in total are expected to have ended.

    ``at`` is 0 for pods that are terminating already.
    """

    at: float
    gpus: float


def expected_ends(snapshot: Snapshot) -> tuple[ExpectedRelease, ...]:
    """The GPUs of each pod that is about to end, the first end first; not summed up."""
    return tuple(sorted(_ends(snapshot), key=lambda each: (each.at, each.gpus)))


def _ends(snapshot: Snapshot) -> Iterator[ExpectedRelease]:
    for member in snapshot.terminating:
        yield ExpectedRelease(0.0, member.charge.get(GPU, 0.0))
    for gang in snapshot.gangs.values():
        for member in gang.bound if gang.expected_runtime else ():
            at = member.bound_since + (gang.expected_runtime or 0.0)
            if member.bound_since and at > snapshot.now:
                yield ExpectedRelease(at, member.charge.get(GPU, 0.0))


def releases_for(gang: Gang, ends: Sequence[ExpectedRelease]) -> tuple[ExpectedRelease, ...]:
    """Sums over the first ``ends`` until as many GPUs have ended as the gang waits for."""
    wanted = sum(member.charge.get(GPU, 0.0) for member in gang.pending)
    sums: dict[float, float] = {}
    ended = 0.0
    for each in ends:
        if ended >= wanted and each.at not in sums:
            break
        ended += each.gpus
        if ended:
            sums[each.at] = ended
    found = [ExpectedRelease(at, gpus) for at, gpus in sums.items()]
    return (*found[: MAX_RELEASES - 1], *found[MAX_RELEASES - 1 :][-1:])
