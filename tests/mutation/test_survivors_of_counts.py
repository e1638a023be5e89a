"""What no other test noticed of how capacity is counted, each by its smallest case."""

import random
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.choices import BuiltInScore
from kai_py.api.records.core import ObjectMeta, Pod, PodStatus
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, ResourceSlice
from kai_py.dra.bounds import _do_not_fit
from kai_py.dra.features import AllocationStrategy, Features
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import Inventory
from kai_py.dra.node_classes import _pattern
from kai_py.dra.pools import PoolStatus, gather_pools, pool_fault
from kai_py.dra.rows import parse_slice
from kai_py.grouping.gang import FailureLimit, Owner
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.scoring import Scoring
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.queues import quota_of
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.count import CapacityCount, is_exact
from kai_py.plan.victims.eviction_cost import EvictionCosts
from kai_py.plan.victims.replica_steps import ReplicaSteps
from kai_py.plan.victims.units import VictimUnit, victim_units
from kai_py.policy.fairness_rules import NATIVE
from kai_py.policy.fit import StaticFits
from kai_py.policy.queue_limits import check_usage
from kai_py.policy.score.registry import WeightedScore
from kai_py.policy.sibling_division import water_fill
from kai_py.snapshot.tables.assumptions import Assumptions
from kai_py.snapshot.tables.queues import QueueInfo
from tests.plan.placement.test_exact_rules import HOST, Kind, as_pod
from tests.support.records import from_json, replace
from tests.support.scenario import (
    GPU_DRIVER,
    START,
    claim_of,
    claiming,
    cluster,
    device_slice,
    job_with_pods,
    node,
    nominated,
    placed,
    pod,
    queue,
    shared,
)
from tests.support.worlds import gang, world


@pytest.mark.parametrize("exact", [True, False])
def test_counting_is_exact_for_pods_of_one_shape(exact):
    first, (other,) = gang("g", pods=1, gpus=1), gang("other", pods=1, gpus=2).members
    second = replace(other, shape=first.members[0].shape) if exact else other
    both = replace(first, members=(*first.members, second))
    assert is_exact(world({"a": 4}, both).session(), both, both.members) is exact


@pytest.mark.parametrize("gpus", [2, 3])
def test_a_gang_on_several_nodes_frees_on_each_what_it_has_there(gpus):
    wide, small = gang("wide", nodes="ab", gpus=gpus), gang("small", nodes="a", gpus=4)
    new = gang("new", pods=2, gpus=4)
    state = world({"a": 4 + gpus, "b": gpus}, wide, small, new).session()
    units = [VictimUnit(each, each.members, ("",)) for each in (wide, small)]
    steps = ReplicaSteps(
        state, PlacementRequest(new.members, is_elastic=False), units, EvictionCosts(state)
    )
    found = {row: [(step.gained, step.units) for step in steps.of(row)] for row in steps.rows}
    assert found == {0: [(1, [units[1]])], 1: []}


def may_fit(amounts, left):
    """Whether some assignment of the amounts to devices takes no more than each has left."""
    return any(
        all(
            sum(amount for amount, at in zip(amounts, places, strict=True) if at == device) <= free
            for device, free in enumerate(left)
        )
        for places in product(range(len(left)), repeat=len(amounts))
    )


@pytest.mark.parametrize("left", [(6,), (6, 2), (4, 4), (6, 6, 1)])
def test_shares_that_fit_in_some_way_are_never_ruled_out(left):
    for count in range(1, 5):
        for amounts in product(range(1, 7), repeat=count):
            assert not (_do_not_fit(amounts, left) and may_fit(amounts, left)), amounts


def test_shares_are_ruled_out_by_their_sum_and_where_too_many_are_large():
    assert not _do_not_fit((4, 2), (6,))
    assert _do_not_fit((4, 3), (6,))
    # Of more than half of a device one fits on each, of more than a third two.
    assert not _do_not_fit((4, 4, 4), (8, 8))
    assert _do_not_fit((5, 5, 5), (8, 8))
    assert not _do_not_fit((3, 3, 3, 3), (8, 8))
    assert _do_not_fit((3, 3, 3, 3, 3), (8, 8))


@pytest.mark.parametrize("supported", [True, False])
@pytest.mark.parametrize("groups", [["g"], []])
def test_slices_with_groups_count_only_where_groups_are_supported(supported, groups):
    uses = {"counterSet": "c", "counters": {"x": {"value": "1"}}, "compatibilityGroups": groups}
    spec = {
        "driver": "d",
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
        "devices": [{"name": "x", "consumesCounters": [uses]}],
    }
    made = from_json(ResourceSlice, {"metadata": {"name": "s"}, "spec": spec})
    parsed, features = parse_slice(made), Features(compatibility_groups=supported)
    counts = supported or not groups
    assert bool(pool_fault([parsed], features)) is counts
    seen = gather_pools(
        Node(metadata=ObjectMeta(name="n")),
        [(parsed.pool_id, [parsed])],
        features,
        AllocationStrategy.BEST_FIT,
    )
    assert [pool.status for pool in seen] == [PoolStatus.INCOMPLETE] * counts


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ((), {"older"}),
        (("g-0",), {"g-0", "g-1"}),
        (("g-1",), {"g-0", "g-1"}),
        (("g-0", "g-1"), {"g-0", "g-1"}),
    ],
)
def test_a_gang_of_which_any_pod_is_nominated_comes_first(names, first):
    made = cluster(node("n", 2), queue("a", 8), pod("older", queue="a"))
    made.add(job_with_pods("g", 2, queue="a", created=5))
    for name in names:
        made.builder.nominate(f"pod-{name}", "n", START + 10)
    assert placed(made.plan(20)).keys() == first


@pytest.mark.parametrize("score", BuiltInScore)
def test_the_gpu_to_share_is_one_of_the_node(score):
    runs = [
        shared(pod(name, 0, queue="q", node="n"), part, group=name)
        for name, part in (("half", "0.5"), ("most", "0.75"))
    ]
    waits = [pod("whole", 1, queue="q"), shared(pod("part", 0, queue="q"), "0.25")]
    made = cluster(queue("q", 8), node("n", 4), *runs, *waits)
    snapshot = made.snapshot()
    gpus = made.devices.node_gpus(snapshot.nodes)
    quota = quota_of(snapshot, NATIVE, made.devices.accounting, gpus)
    trial = Statement(snapshot, quota, CycleDevices(made.devices, snapshot))
    nodes = Scoring.for_snapshot((WeightedScore(score),), snapshot, StaticFits()).nodes(
        trial, Capacity.IDLE
    )
    chosen = {
        name: nodes.pick(
            snapshot.gangs[f"default/Pod/{name}"].members[0].shape, np.ones(1, np.bool_), None
        ).gpu_fraction
        for name in ("whole", "part")
    }
    assert chosen["whole"] is None
    assert chosen["part"] in (None, 0.25, 0.5, 1.0)


def poured(budget, rates, caps):
    """The amounts at the level at which the budget is spent, found by bisection."""
    low, high = 0.0, 1e6
    for _ in range(100):
        level = (low + high) / 2
        amounts = [min(cap, rate * level) for rate, cap in zip(rates, caps, strict=True)]
        low, high = (level, high) if sum(amounts) <= budget else (low, level)
    return amounts


@pytest.mark.parametrize("seed", range(30))
def test_every_group_spends_its_budget_up_to_one_level(seed):
    chance = random.Random(seed)
    group = np.array([chance.randrange(2) for _ in range(7)])
    budget = np.array([chance.uniform(0, 20) for _ in range(2)])
    rate = np.array([chance.choice([0.0, 0.5, 1.0, 3.0]) for _ in group])
    cap = np.array([chance.choice([0.0, 1.0, 2.0, 4.0, 9.0]) for _ in group])
    amounts = water_fill(group, budget, rate, cap)
    for number in range(2):
        of = group == number
        expected = poured(budget[number], rate[of].tolist(), cap[of].tolist())
        assert amounts[of].tolist() == pytest.approx(expected)


def asking_as_admin(names, devices, *, shareable=False):
    """Pods with a claim each, of two requests with admin access, and a node's devices."""
    offered = [{"name": f"d{n}", "allowMultipleAllocations": shareable} for n in range(devices)]
    admin = {"deviceClassName": GPU_DRIVER, "adminAccess": True}
    requests = [{"name": name, "exactly": admin} for name in ("r0", "r1")]
    made = from_json(DeviceClass, {"metadata": {"name": GPU_DRIVER}, "spec": {}})
    return cluster(
        node("n", 0), queue("q", 8), made, device_slice("n", offered),
        *(part for name in names for part in (
            claim_of(name, *requests, owner=name), claiming(pod(name, 0, queue="q"), name)
        )),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "shareable", "start"), [(1, False, 0), (2, False, 3), (1, True, 3)]
)
def test_requests_of_one_claim_with_admin_access_get_devices_of_their_own(
    devices, shareable, start
):
    plan = asking_as_admin(["p0", "p1", "p2"], devices, shareable=shareable).plan()
    assert len(placed(plan)) == start


@pytest.mark.parametrize("others", [False, True])
def test_a_pod_that_must_be_near_its_own_kind_may_be_the_first_beside_a_moved_pod(others):
    """With others of its kind elsewhere it may not."""
    kind, plain = Kind("new", 3, 1, near=(("new", HOST),)), Kind("old", 2, 1)
    standing = [as_pod(plain, f"x{at}", queue="q", node=at) for at in "ab"]
    elsewhere = [as_pod(Kind("new", 2, 1), "other", queue="q", node="c")] if others else []
    nodes = [node(name, gpus, labels={HOST: name}) for name, gpus in (("a", 4), ("b", 4), ("c", 2))]
    big = as_pod(kind, "big", queue="q", created=9)
    plan = cluster(*nodes, queue("q", 16), *standing, *elsewhere, big).plan()
    assert bool(nominated(plan)) is not others


def test_positions_of_equal_values_are_those_within_each_node():
    layout = SimpleNamespace(positions=np.arange(6), offsets=np.array([0, 2, 4, 6]))
    found = _pattern(layout, np.array([0, 1, 1, 0, 2, 2]))
    assert found.tolist() == [0, 1, 0, 1, 0, 0]


def test_a_nomination_of_ours_outlives_an_older_one_in_the_status():
    known = Assumptions(60.0)
    seen = Pod(metadata=ObjectMeta(name="p", uid="p"), status=PodStatus(nominated_node_name="old"))
    known.observe(seen)
    assert known._nominations["p"].node == "old"
    known.nominate("p", "new", 10.0)
    known.observe(seen)
    assert known._nominations["p"].node == "new"


def test_a_pool_is_shared_until_its_last_slice_without_a_node_is_gone():
    def part(name, **where):
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": "d", "pool": pool, **where}
        return from_json(ResourceSlice, {"metadata": {"name": name}, "spec": spec})

    inventory = Inventory.of([])
    for name in ("a", "b"):
        inventory.put(part(name, allNodes=True))
    left = []
    for name in ("a", "b"):
        inventory.discard(name)
        left.append(dict(inventory._shared_pools))
    assert left == [{PoolID("d", "p"): 1}, {}]


def limited(remaining):
    owner = Owner("batch/v1", "Job", "default", "j", "j")
    return FailureLimit("j", owner, remaining, "backoffLimit")


@pytest.mark.parametrize("remaining", [0, 1])
def test_a_limit_of_any_pod_keeps_its_workload_from_failing(remaining):
    made = gang("g", nodes="aa", floor=1)
    first, second = made.members
    made = replace(made, members=(replace(first, failure_limits=(limited(remaining),)), second))
    state = world({"a": 2}, made).session()
    leaving = {m.pod.uid for unit in victim_units(made, state.statement) for m in unit.members}
    assert leaving == ({"g-0", "g-1"} if remaining else {"g-1"})


def test_what_pods_can_free_bounds_what_is_gained_where_one_shape_is_requested():
    runs = [gang(f"r{gpus}", nodes="a", gpus=gpus) for gpus in (1, 2, 4)]
    new, other = gang("new", pods=3, gpus=2), gang("other", pods=1, gpus=1)
    state = world({"a": 7}, *runs, new, other).session()
    counted = CapacityCount(state, new, new.members, {})
    for each in runs:
        before = counted.replicas
        counted.release(each.members)
        bound = counted.max_gained(each.members)
        assert max(1, counted.replicas - before) <= bound <= 2
    both = CapacityCount(state, new, (*new.members, *other.members), {})
    assert both.max_gained(runs[0].members) == 0


@pytest.mark.parametrize("preemptible", [True, False])
def test_only_what_is_counted_is_compared_with_the_bounds_of_a_queue(preemptible):
    runs = gang("runs", nodes="aa", queue="q", preemptible=preemptible)
    bounds = {"deserved": {"gpu": 1.0}} | ({"max": {"gpu": 1.0}} if preemptible else {})
    state = world({"a": 2}, runs, queues=[QueueInfo(name="q", **bounds)]).session()
    cost, usage = state.quota.cost_of(runs.members), state.quota.usage
    queue_row = state.quota.queues.positions["q"]
    exceeded = check_usage(usage, queue_row, cost, preemptible=preemptible)
    assert exceeded is not None
    others = np.where(np.arange(len(cost)) == exceeded.resource, 0.0, cost)
    assert check_usage(usage, queue_row, others, preemptible=preemptible) is None
