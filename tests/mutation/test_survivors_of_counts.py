"""What no other test noticed of how capacity is counted, each by its smallest case."""

from itertools import product

import numpy as np
import pytest

from kai_py.api.choices import BuiltInScore
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Node
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import ResourceSlice
from kai_py.dra.bounds import _do_not_fit
from kai_py.dra.features import AllocationStrategy, Features
from kai_py.dra.pools import PoolStatus, gather_pools, pool_fault
from kai_py.dra.rows import parse_slice
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.scoring import Scoring
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.queues import quota_of
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.count import is_exact
from kai_py.plan.victims.eviction_cost import EvictionCosts
from kai_py.plan.victims.replica_steps import ReplicaSteps
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.fairness_rules import NATIVE
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.registry import WeightedScore
from tests.mutation.test_survivors_of_plans import session
from tests.support.records import replace
from tests.support.scenario import START, cluster, job_with_pods, node, placed, pod, queue, shared
from tests.support.worlds import gang, world


@pytest.mark.parametrize("exact", [True, False])
def test_counting_is_exact_for_pods_of_one_shape(exact):
    first, (other,) = gang("g", pods=1, gpus=1), gang("other", pods=1, gpus=2).members
    second = replace(other, shape=first.members[0].shape) if exact else other
    both = replace(first, members=(*first.members, second))
    assert is_exact(session(world({"a": 4}, both)), both, both.members) is exact


@pytest.mark.parametrize("gpus", [2, 3])
def test_a_gang_on_several_nodes_frees_on_each_what_it_has_there(gpus):
    wide, small = gang("wide", nodes="ab", gpus=gpus), gang("small", nodes="a", gpus=4)
    new = gang("new", pods=2, gpus=4)
    state = session(world({"a": 4 + gpus, "b": gpus}, wide, small, new))
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
    made = convert_record({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)
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
