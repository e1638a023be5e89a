"""Expected releases: which capacity becomes free when, from terminating pods and known runtimes.

GPUs of the whole cluster, without the names of workloads: the reader may not be allowed to see
them. O(pods) per cycle that is explained.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

MAX_RELEASES = 3


@dataclass(frozen=True, slots=True)
class ExpectedRelease:
    """By ``at`` (seconds since the epoch) pods with ``gpus`` in total are expected to have ended.

    ``at`` is 0 for pods that are terminating already. ``is_observed``: some of the runtimes are not
    declared, but those of earlier pods of the same kind.
    """

    at: float
    gpus: float
    is_observed: bool = False


def expected_ends(snapshot: Snapshot, ends: ExpectedEnds) -> tuple[ExpectedRelease, ...]:
    """The GPUs of each pod that is about to end, the first end first; not summed up."""
    return tuple(sorted(_ends(snapshot, ends), key=lambda each: (each.at, each.gpus)))


def _ends(snapshot: Snapshot, ends: ExpectedEnds) -> Iterator[ExpectedRelease]:
    for member in snapshot.terminating:
        yield ExpectedRelease(0.0, member.charged_gpus)
    for gang in snapshot.gangs.values():
        for member in gang.bound:
            at = ends.end_of(gang, member)
            if snapshot.now < at < math.inf:
                declared = gang.expected_runtime
                is_observed = declared is None or at != member.bound_since + declared
                yield ExpectedRelease(at, member.charged_gpus, is_observed)


def releases_for(gang: Gang, ends: Sequence[ExpectedRelease]) -> tuple[ExpectedRelease, ...]:
    """Sums over the first ``ends`` until as many GPUs have ended as the gang waits for."""
    wanted = sum(member.charged_gpus for member in gang.pending)
    sums: dict[float, tuple[float, bool]] = {}
    ended, is_observed = 0.0, False
    for each in ends:
        if ended >= wanted and each.at not in sums:
            break
        ended += each.gpus
        is_observed |= each.is_observed
        if ended:
            sums[each.at] = ended, is_observed
    found = [ExpectedRelease(at, *known) for at, known in sums.items()]
    return (*found[: MAX_RELEASES - 1], *found[MAX_RELEASES - 1 :][-1:])
