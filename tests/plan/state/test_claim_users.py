"""Users of claims: listed, on nodes, placed in this cycle, evicted, and those of groups."""

from types import SimpleNamespace

import pytest

from kai_py.api.quantity import parse_quantity
from kai_py.api.records.resource import MAX_RESERVED_FOR, ResourceClaim
from kai_py.api.references import ClaimRef, GroupRef
from kai_py.dra.node_resources import NodeResources
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.claim_users import (
    ClaimUsers,
    consumer_of,
    taken_of_node,
    unreachable_reason,
)
from kai_py.snapshot.gangs import GroupReservation
from kai_py.snapshot.pod_claims import POD_GROUPS
from kai_py.snapshot.shape import ClaimUse
from tests.support.records import from_json, replace
from tests.support.worlds import gang

REF = ClaimRef("default", "c", "c-uid")
ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}


def claim(*users, groups=(), allocated=True):
    """The claim, reserved for pods and groups, by uid."""
    listed = [{"resource": "pods", "name": each, "uid": each} for each in users]
    listed += [{"resource": POD_GROUPS, "name": each, "uid": each} for each in groups]
    status = {"reservedFor": listed} | ({"allocation": ALLOCATION} if allocated else {})
    metadata = {"name": "c", "namespace": "default", "uid": "c-uid"}
    return from_json(ResourceClaim, {"metadata": metadata, "status": status})


def users(found, *gangs, of_group=None):
    snapshot = SimpleNamespace(
        devices=SimpleNamespace(claim=lambda ref: found if ref == REF else None),
        group_claim_users={} if of_group is None else {REF: frozenset(of_group)},
        gangs={each.key: each for each in gangs},
    )
    return ClaimUsers(snapshot)


def claiming(made, **fields):
    shape = replace(made.members[0].shape, claims=(ClaimUse("c", None, **fields),))
    members = tuple(replace(each, claims=(REF,), shape=shape) for each in made.members)
    return replace(made, members=members)


@pytest.mark.parametrize(
    ("listed", "joined", "left", "in_use"),
    [
        ((), (), (), False),
        (("a",), (), (), True),
        (("a",), (), ("a",), False),
        (("a", "b"), (), ("a",), True),
        ((), ("a",), (), True),
        ((), ("a",), ("a",), False),
    ],
)
def test_a_claim_is_in_use_as_long_as_one_of_its_users_stays(listed, joined, left, in_use):
    found = claim(*listed)
    counted = users(found)
    for uid in joined:
        counted.join(REF.uid, uid)
    for uid in left:
        counted.leave(REF.uid, uid)
    assert counted.is_in_use(found) is in_use


@pytest.mark.parametrize(
    ("groups", "known", "listed"),
    [
        ((), None, {"a"}),
        (("g",), None, {"a", "g"}),
        (("g",), ("x", "y"), {"a", "x", "y"}),
        (("g",), (), {"a"}),
    ],
)
def test_a_group_counts_as_those_of_its_pods_that_have_a_node(groups, known, listed):
    found = claim("a", groups=groups)
    assert users(found, of_group=known).listed(found) == listed


@pytest.mark.parametrize(
    ("listed", "waits", "on_node", "joined", "left", "left_over"),
    [
        (("g-0",), True, False, (), (), True),
        (("g-0", "other"), True, False, (), (), False),
        (("g-0", "other"), True, False, (), ("other",), True),
        (("g-0",), True, False, ("more",), (), False),
        ((), False, True, (), (), False),
        ((), True, False, (), (), True),
    ],
)
def test_a_claim_is_left_over_if_only_pods_that_wait_have_it(
    listed, waits, on_node, joined, left, left_over
):
    found = claim(*listed)
    made = [claiming(gang("g", pods=1), claim=found)] if waits else []
    made += [claiming(gang("runs", node="n", pods=1))] if on_node else []
    counted = users(found, *made)
    for uid in joined:
        counted.join(REF.uid, uid)
    for uid in left:
        counted.leave(REF.uid, uid)
    assert counted.is_left_over(REF) is left_over
    if waits:
        assert counted.left_over_claim(made[0]) == ("c" if left_over else "")


def test_only_a_claim_that_exists_and_is_allocated_is_left_over():
    made = claiming(gang("g", pods=1))
    assert not users(claim("g-0", allocated=False), made).is_left_over(REF)
    assert not users(claim("g-0"), made).is_left_over(ClaimRef("default", "gone", "gone"))
    assert users(claim("g-0"), made).left_over_claim(made) == "", "it is not allocated to the pod"


@pytest.mark.parametrize(
    ("listed", "joined", "left", "others"),
    [
        (("g-0",), (), (), False),
        (("g-0", "b"), (), (), True),
        (("g-0", "b"), (), ("b",), False),
        ((), ("b",), (), True),
        (("group",), (), (), False),
    ],
)
def test_others_use_a_claim_if_they_are_not_the_pod_nor_its_group(listed, joined, left, others):
    counted = users(claim(*listed))
    for uid in joined:
        counted.join(REF.uid, uid)
    for uid in left:
        counted.leave(REF.uid, uid)
    reservation = GroupReservation(GroupRef("default", "group", "group"), (REF,))
    member = replace(gang("g", pods=1).members[0], group_reservation=reservation)
    assert counted.has_others(REF, member) is others
    alone = replace(member, group_reservation=None)
    assert counted.has_others(REF, alone) is (others or "group" in listed)


@pytest.mark.parametrize(
    ("listed", "pods", "left", "fits"),
    [(254, 2, 0, True), (255, 2, 0, False), (255, 2, 1, True), (256, 1, 0, False)],
)
def test_a_claim_has_as_many_users_as_the_api_allows(listed, pods, left, fits):
    names = [f"u{n}" for n in range(listed)]
    counted = users(claim(*names))
    for uid in names[:left]:
        counted.leave(REF.uid, uid)
    made = claiming(gang("g", pods=pods), claim=claim())
    text = counted.crowded(made.members, Capacity.FUTURE_IDLE)
    assert bool(text) is not fits
    if not fits:
        assert f"{MAX_RESERVED_FOR} are allowed" in text
    assert bool(counted.crowded(made.members, Capacity.IDLE)) is (listed + pods > 256)
    own = claiming(gang("g", pods=pods))
    assert counted.crowded(own.members, Capacity.IDLE) == ""


@pytest.mark.parametrize(
    ("reassigned", "allocation", "selects", "said"),
    [
        (False, False, False, "cannot access the devices of all claims"),
        (False, True, False, "cannot access the devices of all claims"),
        (False, True, True, "cannot access d/p/x, which claim default/c has for other pods"),
        (True, True, True, "cannot use claim default/c: it is being deallocated and"),
    ],
)
def test_nodes_are_unreachable_for_a_claim_that_loses_its_devices_or_has_them_elsewhere(
    reassigned, allocation, selects, said
):
    made = claiming(gang("g", pods=1), claim=claim())
    allocated = claim().status.allocation
    if selects:
        allocated = replace(allocated, node_selector="selector")
    found = unreachable_reason(
        made.members[0].shape, {REF.uid: allocated} if allocation else {}, lambda _uid: reassigned
    )
    assert found.startswith(said)


def test_a_consumer_is_counted_once_and_a_group_in_place_of_its_pods():
    counted, member = users(claim()), gang("g", pods=1).members[0]
    undo = counted.reserve(REF.uid, "a")
    assert undo is not None
    assert counted.reserve(REF.uid, "a") is None
    undo()
    assert counted.reserve(REF.uid, "a") is not None
    assert consumer_of(member, REF) == "g-0"
    group = GroupRef("default", "group", "group")
    reserved = replace(member, group_reservation=GroupReservation(group, (REF,)))
    assert consumer_of(reserved, REF) == "group"
    assert consumer_of(reserved, ClaimRef("default", "own", "own")) == "g-0"


OVERHEAD = NodeResources(per_pod={"memory": parse_quantity("4Ki")})
MAPPED = NodeResources(mapped={"cpu": parse_quantity("2")})


@pytest.mark.parametrize(
    ("taken", "shared", "containers", "unused", "said"),
    [
        (OVERHEAD, False, 1, {}, {"memory": 4096.0}),
        (OVERHEAD, True, 1, {}, {"memory": 4096.0}),
        (MAPPED, False, 1, {}, {"cpu": 2000.0}),
        (MAPPED, True, 1, {}, "cannot be shared across pods"),
        (MAPPED, False, 0, {}, "no container refers to it"),
        (NodeResources(), True, 0, {}, {}),
        (MAPPED, False, 1, {"cpu": 2000.0}, {}),
        (MAPPED, False, 1, {"cpu": 1999.0}, "pod level request for cpu is insufficient"),
        (MAPPED, False, 1, {"memory": 0.0}, {"cpu": 2000.0}),
    ],
)
def test_claims_take_of_their_node_what_the_pod_leaves_unless_they_are_shared(
    taken, shared, containers, unused, said
):
    made = claiming(gang("g", pods=1), containers=containers).members[0]
    member = replace(made, shape=replace(made.shape, unused_pod_level=unused))
    known = SimpleNamespace(has_others=lambda _ref, _member: shared)
    found = taken_of_node(member, [taken], known)
    if isinstance(said, str):
        assert said in found
        return
    assert {name: amount for name, amount in found.amounts.items() if amount} == said
    assert len(found.claims) == bool(taken)
