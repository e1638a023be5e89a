"""Claims that are hard to place: each is answered, or given up, soon for the whole cluster.

Shares of uneven size that nearly fill shareable devices, constraints on three attributes of 128
devices, MIG requests on GPUs with 19 partitions each, and eight alternatives in every request. All
on several nodes, of which each has other devices in use, so that no node shares the answer of
another.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kai_py.api.records.resource import ResourceClaim, ResourceSlice
from kai_py.dra.spending import STEPS_PER_GANG
from kai_py.plan.plan import Stage
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.scenario import (
    claim_of,
    claiming,
    cluster,
    device_class,
    device_slice,
    node,
    placed,
    pod,
    queue,
)

DRIVER = "gpu.nvidia.com"
NODES, SECONDS, SLOWER = 4, 0.3, 3
"""Processor time on a quiet machine, and how much longer it may take beside others."""
PROFILES = [(1, 1, range(7)), (1, 2, (0, 2, 4, 6)), (2, 2, (0, 2, 4)), (3, 4, (0, 4)),
            (4, 4, (0,)), (7, 8, (0,)), (1, 1, (0,))]  # fmt: skip
"""Compute slices, memory slices, and where in the memory a partition may start."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Puzzle:
    """What a claim requests of the devices of each node; ``counters``: of its sets."""

    devices: list[Json]
    requests: list[Json]
    constraints: Sequence[Json] = ()
    counters: Sequence[Json] = ()


def request(number: int, **exactly: Any) -> Json:
    return {"name": f"r{number}", "exactly": {"deviceClassName": DRIVER} | exactly}


def shares(seed: int, count: int, cards: int, filled: float) -> Puzzle:
    """``filled``: the part of all memory that the shares take."""
    chance, total = random.Random(seed), int(80 * cards * filled)
    drawn = [chance.randint(15, 39) for _ in range(count)]
    sizes = [max(1, size * total // sum(drawn)) for size in drawn]
    memory = {"memory": {"value": "80Gi"}}
    return Puzzle(
        [
            {"name": f"g{i}", "allowMultipleAllocations": True, "capacity": memory}
            for i in range(cards)
        ],
        [
            request(i, capacity={"requests": {"memory": f"{size}Gi"}})
            for i, size in enumerate(sizes)
        ],
    )


def attributes(seed: int, count: int, values: int, *, distinct: bool) -> Puzzle:
    """Three constraints on three attributes, each of so many values."""
    chance = random.Random(seed)
    devices = [
        {"name": f"d{i}", "attributes": {k: {"int": chance.randrange(values)} for k in "abc"}}
        for i in range(128)
    ]
    names, half = [f"r{i}" for i in range(count)], count // 2
    constraints: list[Json] = [{"distinctAttribute": f"{DRIVER}/{k}"} for k in "abc"]
    if not distinct:
        constraints = [
            {"matchAttribute": f"{DRIVER}/a", "requests": names[:half]},
            {"distinctAttribute": f"{DRIVER}/b", "requests": names},
            {"matchAttribute": f"{DRIVER}/c", "requests": names[half - 1 :]},
        ]
    return Puzzle(devices, [request(i) for i in range(count)], constraints)


def partitions(seed: int, cards: int, count: int, *, paired: bool) -> Puzzle:
    """``paired``: every two requests must be on one GPU."""
    chance = random.Random(seed)
    sets = [
        {
            "name": f"s{card}",
            "counters": {f"memory-slice-{i}": {"value": "1"} for i in range(8)}
            | {"slices": {"value": "7"}},
        }
        for card in range(cards)
    ]
    devices = [
        partition(card, number, start)
        for card in range(cards)
        for number, (_, _, starts) in enumerate(PROFILES)
        for start in starts
    ]
    requests = []
    for i in range(count):
        compute, memory, _ = chance.choice(PROFILES[:4])
        cel = f'device.attributes["{DRIVER}"].profile == "{compute}g.{memory}0gb"'
        requests.append(request(i, selectors=[{"cel": {"expression": cel}}]))
    constraints = [
        {"matchAttribute": f"{DRIVER}/parentUUID", "requests": [f"r{i}", f"r{i + 1}"]}
        for i in range(0, count - 1, 2)
    ]
    return Puzzle(devices, requests, constraints if paired else (), sets)


def partition(card: int, number: int, start: int) -> Json:
    compute, memory, _ = PROFILES[number]
    counters = {f"memory-slice-{i}": {"value": "1"} for i in range(start, start + memory)}
    counters["slices"] = {"value": str(compute)}
    return {
        "name": f"g{card}-{number}-{start}",
        "attributes": {
            "profile": {"string": f"{compute}g.{memory}0gb"},
            "parentUUID": {"string": f"u{card}"},
            "number": {"int": number},
        },
        "consumesCounters": [{"counterSet": f"s{card}", "counters": counters}],
    }


def listed(number: int, options: list[Json]) -> Json:
    alternatives = [{"name": f"s{i}", "deviceClassName": DRIVER} | o for i, o in enumerate(options)]
    return {"name": f"r{number}", "firstAvailable": alternatives}


def of_eight(seed: int, count: int, values: int) -> Puzzle:
    """Requests with eight alternatives, told apart by an attribute; two constraints."""
    plain, chance = attributes(seed, count, values, distinct=True), random.Random(seed)

    def option() -> Json:
        cel = f'device.attributes["{DRIVER}"].a == {chance.randrange(values)}'
        return {"count": chance.randint(1, 4), "selectors": [{"cel": {"expression": cel}}]}

    requests = [listed(i, [option() for _ in range(8)]) for i in range(count)]
    matched: Json = {"matchAttribute": f"{DRIVER}/c", "requests": ["r0", "r1"]}
    return Puzzle(plain.devices, requests, [{"distinctAttribute": f"{DRIVER}/b"}, matched])


def profiles_of_eight(seed: int, cards: int, count: int) -> Puzzle:
    """Requests for one or two partitions of one of eight profiles; every two on one GPU."""
    paired, chance = partitions(seed, cards, count, paired=True), random.Random(seed)
    selectors = [each["exactly"]["selectors"] for each in paired.requests]

    def option() -> Json:
        return {"count": chance.randint(1, 2), "selectors": chance.choice(selectors)}

    requests = [listed(i, [option() for _ in range(8)]) for i in range(count)]
    return Puzzle(paired.devices, requests, paired.constraints, paired.counters)


def boards(seed: int, count: int, each: int, rails: int) -> Puzzle:
    """Requests for several devices of one board on distinct rails, all of one revision."""
    chance = random.Random(seed)
    devices = [
        {
            "name": f"d{i}",
            "attributes": {
                "board": {"int": i // 8},
                "rail": {"int": chance.randrange(rails)},
                "revision": {"int": chance.randrange(3)},
            },
        }
        for i in range(128)
    ]
    names = [f"r{i}" for i in range(count)]
    constraints: list[Json] = [{"matchAttribute": f"{DRIVER}/revision", "requests": names}]
    for name in names:
        constraints.append({"matchAttribute": f"{DRIVER}/board", "requests": [name]})
        constraints.append({"distinctAttribute": f"{DRIVER}/rail", "requests": [name]})
    return Puzzle(devices, [request(i, count=each) for i in range(count)], constraints)


PUZZLES = {
    "12 requests of eight alternatives": of_eight(13, 12, 12),
    "20 requests of eight alternatives": of_eight(14, 20, 16),
    "16 requests of eight profiles": profiles_of_eight(16, 6, 16),
    "10 requests of three devices of a board": boards(31, 10, 3, 4),
    **{
        f"{count} shares of {cards} GPUs, {filled:.1%} full": shares(seed, count, cards, filled)
        for seed, (count, cards, filled) in enumerate(
            [(24, 8, 0.997), (24, 8, 0.99), (30, 8, 0.995), (20, 8, 0.999), (32, 8, 0.999),
             (12, 4, 1.0), (16, 4, 0.998)]
        )
    },
    **{
        f"{count} of 128 with three constraints, {values} values": attributes(
            seed, count, values, distinct=False
        )
        for seed, (count, values) in enumerate([(8, 12), (12, 12), (16, 16), (10, 24)])
    },
    **{
        f"{count} of 128 distinct in three, {values} values": attributes(
            seed, count, values, distinct=True
        )
        for seed, (count, values) in enumerate([(12, 12), (16, 16), (20, 20), (24, 24)])
    },
    **{
        f"{count} partitions of {cards} GPUs{', in pairs' * paired}": partitions(
            seed, cards, count, paired=paired
        )
        for seed, (cards, count, paired) in enumerate(
            [(6, 18, True), (6, 24, False), (6, 30, False), (6, 20, True), (6, 28, True)]
        )
    },
}  # fmt: skip


def slices(name: str, puzzle: Puzzle) -> Iterator[ResourceSlice]:
    parts = [{"devices": puzzle.devices[at : at + 64]} for at in range(0, len(puzzle.devices), 64)]
    if puzzle.counters:
        parts.append({"sharedCounters": list(puzzle.counters)})
    for number, part in enumerate(parts):
        yield device_slice(name, driver=DRIVER, part=str(number), of=len(parts), **part)


def claim(puzzle: Puzzle) -> ResourceClaim:
    return claim_of("c", *puzzle.requests, owner="p", constraints=list(puzzle.constraints))


@pytest.mark.slow
@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=PUZZLES)
def test_a_puzzle_is_answered_or_given_up(puzzle: Puzzle):
    world = cluster(device_class(), queue("team", 1e6), claim(puzzle))
    world.add(claiming(pod("p", 0, queue="team"), "c"))
    for number in range(NODES):
        # One device less on each node: none shares the answer of another.
        fewer = Puzzle(puzzle.devices[number:], [], counters=puzzle.counters)
        world.add(node(f"n{number}", 0), *slices(f"n{number}", fewer))
    with cpu_limit(processor_seconds(SLOWER * SECONDS)):
        plan = world.plan()
    if not placed(plan):
        [waits] = plan.unplaced
        assert waits.stage is Stage.DEVICES
    steps = world.devices.spending.steps
    assert steps.left >= 0
    assert steps.per_gang == STEPS_PER_GANG


@pytest.mark.slow
def test_an_explanation_does_not_cut_the_search_short():
    """The claim is infeasible in 30 steps; without a constraint, searches are much longer."""
    puzzle = PUZZLES["20 requests of eight alternatives"]
    world = cluster(device_class(), queue("team", 1e6), claim(puzzle))
    world.add(claiming(pod("p", 0, queue="team"), "c"), node("n", 0), *slices("n", puzzle))
    assert not placed(world.plan())
    assert not world.memory.is_unfinished
    assert not world.memory.cut_short
