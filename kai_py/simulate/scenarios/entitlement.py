"""What queues are entitled to over time, in GPUs, and samples of it.

    entitled = min(fair share, allocated + what of the waiting gangs fits into the rest of it whole)

Of all sets of waiting gangs that fit, the one with the most GPUs counts; elastic gangs count with
any number of pods from their minimum on. A gang is placed whole or not at all, so a waiting gang
that is larger than the rest of the fair share entitles its queue to nothing: no scheduler may evict
for it, and none could give its queue a part of it. What a queue runs stays its own, so it is not
entitled to have its own gangs replaced by larger ones either. A queue that has nothing is entitled
to the most of what waits. A parent is entitled to what its children are.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from kai_py.simulate.scenarios.scenario import Scenario, ScenarioJob, queue_spec
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.tables.queue_objects import queue_info
from kai_py.snapshot.tables.queue_tree import QueueTable, build_queue_table

MAX_SAMPLES = 240
MILLI = 1000
"""GPUs are compared in thousandths."""
MAX_PLACES = 10_000_000
"""Sums that are told apart; among more, some set of gangs is taken to fill the share exactly."""


class GangRest(Struct, frozen=True):
    """The pods of a gang that do not run: ``least`` of them start together, if any do."""

    queue: str
    gpus_per_pod: float
    pods: int
    least: int


def gang_rest(job: ScenarioJob, missing: int) -> GangRest:
    """A gang of ``job`` of whose pods ``missing`` neither run nor have ended."""
    least = max((job.min_available or job.pods) - (job.pods - missing), 0)
    return GangRest(job.queue, job.gpus_per_pod, missing, least)


class EntitledGpus(NamedTuple):
    """GPUs of a queue: those allocated, and those of its fair share or its entitlement."""

    allocated: float = 0.0
    due: float = 0.0


class EntitlementSample(Struct, frozen=True):
    """GPUs of each queue at one time, with those that it is entitled to."""

    seconds: float
    shares: Mapping[str, EntitledGpus]


class EntitlementSamples(Struct):
    """Samples at distances of at least ``seconds`` / ``MAX_SAMPLES`` of the simulated time."""

    seconds: float
    samples: list[EntitlementSample] = field(default_factory=list)

    def add(self, seconds: float, shares: Mapping[str, EntitledGpus]) -> None:
        """Add the state at ``seconds`` if the last sample is old enough."""
        if not self.samples or seconds - self.samples[-1].seconds >= self.seconds / MAX_SAMPLES:
            self.samples.append(EntitlementSample(seconds, dict(shares)))


def queue_table(scenario: Scenario) -> QueueTable:
    """The queues of a scenario, with their GPUs as the only resource."""
    return build_queue_table([queue_info(queue_spec(each)) for each in scenario.queues], (GPU,))[0]


def entitled_gpus(
    queues: QueueTable, shares: Mapping[str, EntitledGpus], waiting: Iterable[GangRest]
) -> dict[str, EntitledGpus]:
    """The GPUs to which each queue is entitled; ``shares``: by their fair shares."""
    by_queue = dict[str, Counter[GangRest]]()
    for gang in waiting:
        by_queue.setdefault(gang.queue, Counter())[gang] += 1
    own = np.zeros((1, len(queues)), np.float64)
    for name, at in queues.positions.items():
        if queues.is_leaf[at]:
            allocated, fair = shares.get(name, EntitledGpus())
            fitting = _most_within(fair - allocated, by_queue.get(name, {}))
            own[0, at] = min(fair, allocated + fitting)
    entitled = queues.subtree_sums(own)
    return {
        name: EntitledGpus(shares.get(name, EntitledGpus()).allocated, float(entitled[0, at]))
        for name, at in queues.positions.items()
    }


def _most_within(rest: float, gangs: Mapping[GangRest, int]) -> float:
    """The most GPUs, at most ``rest``, of a set of ``gangs``; O(sizes x log number x rest)."""
    sizes = [(round(gang.gpus_per_pod * MILLI), gang, number) for gang, number in gangs.items()]
    sizes = [each for each in sizes if each[0] > 0]
    if rest <= 0 or not sizes:
        return 0.0
    limit = math.floor(rest * MILLI + 0.5)
    total = sum(size * gang.pods * number for size, gang, number in sizes)
    if total <= limit:
        return total / MILLI
    unit = math.gcd(*(size for size, _, _ in sizes))
    places = limit // unit
    if places > MAX_PLACES:
        return limit / MILLI
    # Bit n: some set of gangs requests n units.
    sums, mask = 1, (1 << (places + 1)) - 1
    for size, gang, number in sizes:
        pod = size // unit
        if gang.least >= gang.pods:
            sums = _with_up_to(sums, pod * gang.pods, number, mask)
            continue
        for _ in range(min(number, places // (pod * max(gang.least, 1)))):
            whole = (sums << (pod * gang.least)) & mask
            sums |= _with_up_to(whole, pod, gang.pods - gang.least, mask)
    return (sums.bit_length() - 1) * unit / MILLI


def _with_up_to(sums: int, size: int, number: int, mask: int) -> int:
    """``sums`` with up to ``number`` times ``size`` added to each."""
    places = mask.bit_length()
    left, step = min(number, places // size), 1
    while left > 0:
        added = min(step, left)
        sums |= (sums << (size * added)) & mask
        left, step = left - added, step * 2
    return sums
