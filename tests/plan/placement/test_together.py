"""A gang with claims starts exactly if some choice of nodes and devices suffices for all pods."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import PodResourceClaim, PodResourceClaimStatus
from kai_py.plan.placement import together
from kai_py.plan.plan import Plan
from tests.support.examples import examples
from tests.support.scenario import (
    GPU_DRIVER,
    START,
    claim,
    claim_of,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job,
    node,
    nominated,
    partitions,
    placed,
    pod,
    queue,
)


class Device(NamedTuple):
    """A device of a node; ``draw``: how many of the two parts of its card it takes."""

    node: str
    name: str
    model: str
    numa: int
    draw: int

    @property
    def card(self) -> tuple[str, str]:
        return self.node, self.name[0]


class Wish(NamedTuple):
    """Devices that a claim requests: of a model, or of any; all on one NUMA node, or not."""

    count: int = 1
    model: str = ""
    near: bool = False


Nodes = Sequence[str]
"""The cards of each node: whole ones of model a or b; s: two parts, of which it may give one."""
Claim = Sequence[Wish]
"""The alternatives of a claim."""


class Pod(NamedTuple):
    """The claim of a pod, and whether it has the shared claim, too."""

    claim: Claim
    shares: bool = False


ANY, TWO, PAIR = [Wish()], [Wish(2)], [Wish(2, near=True)]
HALF, OF_A = [Wish(model="half")], [Wish(model="a")]


def devices(name: str, cards: str) -> list[Device]:
    found = []
    for number, card in enumerate(cards):
        found.append(Device(name, f"{number}", card, number % 2, 2))
        if card == "s":
            found += [Device(name, f"{number}-{half}", "half", number % 2, 1) for half in "01"]
    return found


def option(claim: Claim) -> Iterator[dict]:
    for number, wish in enumerate(claim):
        found = {"name": f"w{number}", "deviceClassName": GPU_DRIVER, "count": wish.count}
        if wish.model:
            cel = f'device.attributes["{GPU_DRIVER}"].model == "{wish.model}"'
            found["selectors"] = [{"cel": {"expression": cel}}]
        yield found


def claim_object(name: str, claim: Claim, owner: str):
    options = list(option(claim))
    request = {"name": "r", "firstAvailable": options}
    if len(options) == 1:
        options[0].pop("name")
        request = {"name": "r", "exactly": options[0]}
    near = [{"matchAttribute": f"{GPU_DRIVER}/numa"}] if claim[0].near else []
    return claim_of(name, request, owner=owner, constraints=near)


def hardware(nodes: Nodes, most: int) -> Iterator[object]:
    for name, cards in zip("mn", nodes, strict=False):
        yield node(name, 0, cpu=str(most))
        listed = [
            {
                "name": each.name,
                "attributes": {"model": {"string": each.model}, "numa": {"int": each.numa}},
                "consumesCounters": [
                    {
                        "counterSet": f"c{each.card[1]}",
                        "counters": {"part": {"value": str(each.draw)}},
                    }
                ],
            }
            for each in devices(name, cards)
        ]
        yield partitions(name, listed, {f"c{i}": {"part": 2} for i in range(len(cards))})


def gang(pods: Sequence[Pod], shared: Claim) -> Iterator[object]:
    owner = job("gang", len(pods), "team")
    yield owner
    yield claim_object("shared", shared, "")
    for number, each in enumerate(pods):
        name = f"p{number}"
        yield claim_object(f"{name}-own", each.claim, name)
        uses = [PodResourceClaim(name="own", resource_claim_template_name="own")]
        uses += [PodResourceClaim(name="shared", resource_claim_name="shared")] * each.shares
        made = pod(name, 0, owner=owner)
        status = PodResourceClaimStatus(name="own", resource_claim_name=f"{name}-own")
        yield replace(
            made,
            spec=replace(made.spec, resource_claims=tuple(uses)),
            status=replace(made.status, resource_claim_statuses=(status,)),
        )


Users = tuple[Claim, list[str]]
"""A claim and the pods that have it."""


def claims_of(pods: Sequence[Pod], shared: Claim) -> dict[str, Users]:
    """Each claim with the pods that have it."""
    found = {f"p{i}-own": (each.claim, [f"p{i}"]) for i, each in enumerate(pods)}
    sharing = [f"p{i}" for i, each in enumerate(pods) if each.shares]
    return found | ({"shared": (shared, sharing)} if sharing else {})


def suffices(wish: Wish, chosen: Sequence[Device], *, near: bool) -> bool:
    right = all(each.model == wish.model or not wish.model for each in chosen)
    return right and len(chosen) == wish.count and (not near or len({d.numa for d in chosen}) == 1)


def is_possible(taken: Sequence[Device]) -> bool:
    drawn = Counter[tuple[str, str]]()
    for each in taken:
        drawn[each.card] += each.draw
    return len({*taken}) == len(taken) and max(drawn.values(), default=0) <= 2


def can_start(nodes: Nodes, most: int, claims: Sequence[Users], at: dict, taken=()) -> bool:
    """Whether there are devices for ``claims``, by trying all, for ``most`` pods on a node."""
    if not claims:
        return True
    wishes, pods = claims[0]
    for name, cards in zip("mn", nodes, strict=False):
        if any(at.get(each, name) != name for each in pods):
            continue
        for wish in wishes:
            for chosen in combinations(devices(name, cards), wish.count):
                now = (*taken, *chosen)
                if suffices(wish, chosen, near=wishes[0].near) and is_possible(now):
                    there = at | dict.fromkeys(pods, name)
                    full = max(Counter(there.values()).values()) > most
                    if not full and can_start(nodes, most, claims[1:], there, now):
                        return True
    return False


def assert_valid(plan: Plan, nodes: Nodes, claims: dict[str, Users]) -> None:
    known = {
        (d.node, d.name): d
        for name, cards in zip("mn", nodes, strict=False)
        for d in devices(name, cards)
    }
    given = {
        each.claim.name: [known[r.pool, r.device] for r in each.allocation.devices.results]
        for gang in plan.placements
        for pod in gang.pods
        for each in pod.allocate
    }
    at = placed(plan)
    assert given.keys() == claims.keys()
    assert is_possible([each for chosen in given.values() for each in chosen])
    for name, (wishes, pods) in claims.items():
        assert any(suffices(wish, given[name], near=wishes[0].near) for wish in wishes)
        assert {d.node for d in given[name]} == {at[each] for each in pods}


def planned(nodes: Nodes, pods: Sequence[Pod], shared: Claim = ANY, most: int = 4) -> Plan:
    world = cluster(device_class(), queue("team", 1e6))
    return world.add(*hardware(nodes, most), *gang(pods, shared)).plan()


WISHES = st.builds(Wish, st.sampled_from((1, 1, 2)), st.sampled_from(("", "", "a", "half")))
CLAIMS = st.lists(WISHES, min_size=1, max_size=2) | st.just(PAIR)
POD = st.builds(Pod, CLAIMS, st.sampled_from((False, False, True)))
PODS = st.lists(POD, min_size=2, max_size=4)
NODES = st.lists(st.text("abs", min_size=1, max_size=3), min_size=1, max_size=2)
GIVEN = given(NODES, PODS, CLAIMS, st.integers(1, 4))


def check_start(nodes: Nodes, pods: Sequence[Pod], shared: Claim = ANY, most: int = 4) -> None:
    plan, claims = planned(nodes, pods, shared, most), claims_of(pods, shared)
    if plan.placements:
        assert_valid(plan, nodes, claims)
    assert len(placed(plan)) == len(pods) * can_start(nodes, most, [*claims.values()], {})


@pytest.mark.parametrize(
    ("nodes", "pods"),
    [
        (["as"], [Pod(HALF, shares=True), Pod(HALF, shares=True)]),
        (["aas", "a"], [Pod(HALF, shares=True), Pod(PAIR)]),
        (["sss"], [Pod(TWO), Pod(PAIR), Pod(HALF, shares=True)]),
        (["ssa", "s"], [Pod([Wish(2, "half")], shares=True), Pod(ANY), Pod(OF_A)]),
        (["a", "as"], [Pod(ANY), Pod(TWO), Pod(ANY)]),
        (["ba", "ssb"], [Pod(PAIR, shares=True), Pod(PAIR)]),
        (
            ["bs", "sbs"],
            [Pod(PAIR), Pod(PAIR, shares=True), Pod([*HALF, Wish(2, "half")], True), Pod(HALF)],
        ),
    ],
    ids=["shared", "two nodes", "near", "the only a", "parts", "two pairs", "of all kinds"],
)
def test_pods_leave_each_other_the_devices_that_they_need(nodes, pods):
    check_start(nodes, pods)
    assert placed(planned(nodes, pods))


def test_a_gang_that_was_promised_devices_starts_once_they_are_free():
    leaving = claiming(pod("old", 0, queue="team", node="m", leaving=True), "old")
    held = claim("old", 1, owner="old", held_by=("old",), on=[("m", "0")])
    world = cluster(device_class(), queue("team", 1e6), *hardware(["as"], 4), leaving, held)
    world.add(*gang([Pod(HALF, shares=True)] * 2, ANY))
    first = world.plan()
    assert (placed(first), sorted(nominated(first))) == ({}, ["p0", "p1"])
    for each in first.nominations:
        world.builder.nominate(each.pod.uid, each.node, START + 1000)
    assert sorted(placed(world.remove(leaving, held).plan(1001))) == ["p0", "p1"]


@pytest.mark.parametrize(("cards", "fit"), [("aabb", True), ("aab", False), ("abb", False)])
def test_a_gang_is_called_infeasible_only_if_no_choice_of_devices_suffices(cards, fit):
    """Each pod wants an a and any other device, which may be the only other a."""
    busy = claiming(pod("old", 0, queue="team", node="m", priority=9), "old")
    held, owner = (
        claim("old", 1, owner="old", held_by=("old",), on=[("m", "1")]),
        job("g", 2, "team"),
    )
    world = cluster(device_class(), queue("team", 1e6), *hardware([cards], 4), busy, held, owner)
    for name in ("p0", "p1"):
        wants = [{"name": n, "exactly": next(option(c))} for n, c in (("x", OF_A), ("y", ANY))]
        for each in wants:
            each["exactly"].pop("name")
        world.add(claim_of(name, *wants, owner=name), claiming(pod(name, 0, owner=owner), name))
    [waits] = world.plan().unplaced
    assert waits.message.startswith("Infeasible") is not fit


def test_the_search_is_bounded(monkeypatch):
    monkeypatch.setattr(together, "MAX_SEARCH_STEPS", 2)
    assert not placed(planned(["a", "as"], [Pod(ANY), Pod(TWO), Pod(ANY)]))


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [((3, 3), (2, 2)), ((3, 3), (2, 2, 2)), ((2, 5), (3, 1, 4))],
    ids=["they fit", "equal claims", "too few in all"],
)
def test_nothing_is_searched_where_counting_decides(monkeypatch, sizes, counts):
    searched = []
    monkeypatch.setattr(together.TogetherSearch, "place", lambda each: searched.append(each.parts))
    world, owner = cluster(device_class(), queue("team", 1e6)), job("gang", len(counts), "team")
    world.add(owner)
    for number, size in enumerate(sizes):
        world.add(node(f"n{number}", 0), gpu_slice(f"n{number}", size))
    for number, count in enumerate(counts):
        name = f"p{number}"
        world.add(claim(name, count, owner=name), claiming(pod(name, 0, owner=owner), name))
    world.plan()
    assert not searched


@pytest.mark.slow
@settings(max_examples=examples(120))
@GIVEN
def test_a_gang_starts_exactly_if_devices_suffice_for_all_pods(nodes, pods, shared, most):
    check_start(nodes, pods, shared, most)


@pytest.mark.nightly
@settings(max_examples=5_000)
@GIVEN
def test_many_gangs_start_exactly_if_devices_suffice_for_all_pods(nodes, pods, shared, most):
    check_start(nodes, pods, shared, most)
