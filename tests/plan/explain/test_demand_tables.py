"""What counts as demand that cannot be served, and how its reasons are written, case by case."""

import math
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from kai_py.api.gpu_share import GPU_RESOURCE, GpuShare
from kai_py.grouping.gang import TopologyConstraint
from kai_py.plan.cycle import infeasible_demand
from kai_py.plan.cycle.infeasible_demand import (
    RECREATION_SECONDS,
    IncompleteDemand,
    _charge_of_unable,
    _DeviceNodes,
)
from kai_py.plan.explain.infeasible import _added_text, _most_text
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.empty_nodes import MOST_PODS
from tests.support.records import replace
from tests.support.worlds import gang

NOW = 1000.0


@pytest.mark.parametrize(
    ("having", "total", "text"),
    [
        (0, 3, "no node has any"),
        (1, 1, "the only node has 4"),
        (3, 3, "each of 3 nodes has 4"),
        (1, 2, "1 of 2 nodes has 4, the other less"),
        (1, 3, "1 of 3 nodes has 4, the others less"),
        (2, 3, "2 of 3 nodes have 4, the other less"),
        (2, 4, "2 of 4 nodes have 4, the others less"),
    ],
)
def test_the_largest_amount_is_told_with_the_nodes_that_have_it(having, total, text):
    assert _most_text("4", having, total, "nodes") == text


@pytest.mark.parametrize(
    ("stage", "before", "text"),
    [
        (Stage.RESOURCES, "", "new"),
        (Stage.RESOURCES, "old", "new"),
        (Stage.QUEUE_MAX, "", "new"),
        (Stage.QUEUE_MAX, "old", "old; new"),
        (Stage.NON_PREEMPTIBLE, "old", "old; new"),
        (Stage.QUEUE_MAX, "old; new", "old; new"),
    ],
)
def test_the_bound_of_a_queue_stays_beside_what_nodes_lack(stage, before, text):
    assert _added_text("new", Unschedulable(stage, "", infeasible=before)) == text


def with_pods(states, floor, **fields):
    """A gang of a pod for each letter: ``b`` is bound, ``p`` pending, ``w`` and ``x`` unable."""
    made = gang("g", nodes="".join("a" if each == "b" else "-" for each in states), floor=floor)
    changes = {"w": {"waiting_for": "its gate"}, "x": {"problem": "its claim"}}
    pairs = zip(made.members, states, strict=True)
    members = tuple(replace(each, **changes.get(state, {})) for each, state in pairs)
    return replace(made, members=members, **fields)


@pytest.mark.parametrize(
    ("states", "floor", "gpus"),
    [
        ("ppw", 2, 1),
        ("ppx", 2, 1),
        ("pwx", 2, 3),
        ("bpw", 2, 1),
        ("bww", 2, 2),
        ("bbw", 2, 1),
        ("ppp", 3, 0),
        ("ppp", 4, 3),
    ],
)
def test_pods_count_as_unable_alone_or_with_their_gang(states, floor, gpus):
    assert _charge_of_unable(with_pods(states, floor)).get("gpu", 0.0) == gpus
    pending = float(len(states) - states.count("b"))
    assert _charge_of_unable(with_pods(states, floor, problem="no"))["gpu"] == pending


@pytest.mark.parametrize(
    ("ago", "concerned", "charged", "counts", "until"),
    [
        (None, False, True, True, math.inf),
        (None, True, True, False, math.inf),
        (None, False, False, False, math.inf),
        (10.0, False, True, False, RECREATION_SECONDS - 10.0),
        (RECREATION_SECONDS, False, True, True, math.inf),
    ],
)
def test_demand_that_cannot_be_served_yet_counts_unless_pods_come_again(
    ago, concerned, charged, counts, until
):
    short = with_pods("ppw", 3, charged=charged)
    complete = replace(gang("c", pods=2, preemptible=False), charged=charged)
    elastic = replace(gang("e", pods=2), charged=charged)
    gangs = {each.key: each for each in (short, complete, elastic)}
    snapshot = SimpleNamespace(gangs=gangs, now=NOW, pending=tuple(gangs))
    times = () if ago is None else (NOW - 500.0, NOW - ago)
    evictions = SimpleNamespace(times_of=lambda _gang, _now: times)
    infeasible = SimpleNamespace(charges={}, concerns=lambda _gang: concerned)
    demand = IncompleteDemand()
    found = demand.of(snapshot, evictions, infeasible)
    assert {queue: charge["gpu"] for queue, charge in found.items()} == (
        {"team": 3.0} if counts else {}
    )
    assert demand.counts_until - NOW == until
    kept = {queue: charge["gpu"] for queue, charge in demand.non_preemptible.items()}
    assert kept == ({} if concerned or not charged else {"team": 2.0})


class Nodes(SimpleNamespace):
    def __len__(self):
        return self.allocatable.shape[1]


@pytest.mark.parametrize(
    ("share", "held"),
    [
        (GpuShare(fraction=0.5), [8, 2, 0, 8]),
        (GpuShare(fraction=0.4), [8, 2, 0, 8]),
        (GpuShare(fraction=1 / 3), [12, 3, 0, 12]),
        (GpuShare(fraction=0.5, devices=2), [4, 0, 0, 4]),
        (GpuShare(memory=10), [16, 4, 0, 0]),
        (GpuShare(memory=41), [0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("claimable", [False, True])
def test_nodes_hold_as_many_parts_as_their_gpus_have(share, held, claimable):
    """Nodes of 4, 1 and no GPUs of 40 MiB, and of 4 GPUs whose memory is not known."""
    nodes = Nodes(allocatable=np.array([[4.0, 1.0, 0.0, 4.0]]))
    sharing = SimpleNamespace(
        memory_known=np.array([True, True, True, False]), memory=np.array([40.0, 40.0, 40.0, 0.0])
    )
    resources = SimpleNamespace(positions={GPU_RESOURCE: 0})
    snapshot = SimpleNamespace(resources=resources, gpu_sharing=sharing, nodes=nodes)
    shape = SimpleNamespace(
        gpu_share=share, extended=SimpleNamespace(share=share if claimable else None)
    )
    found = _DeviceNodes(snapshot, None, {}, None)._by_share(shape, nodes)
    assert found.tolist() == [*held[:2], MOST_PODS if claimable else 0, held[3]]


LEVEL = SimpleNamespace(names=("r0",))
RACK = TopologyConstraint(required_level="rack")


@pytest.mark.parametrize(
    ("constraint", "level", "made", "is_larger"),
    [
        (RACK, LEVEL, gang("g", pods=3), True),
        (RACK, LEVEL, gang("g", pods=2), False),
        (RACK, LEVEL, gang("g", pods=3, floor=2), False),
        (RACK, LEVEL, gang("g", nodes="---a"), False),
        (RACK, SimpleNamespace(names=()), gang("g", pods=3), False),
        (RACK, None, gang("g", pods=3), False),
        (None, LEVEL, gang("g", pods=3), False),
        (TopologyConstraint(preferred_level="rack"), LEVEL, gang("g", pods=3), False),
    ],
)
def test_only_a_gang_that_starts_in_a_required_domain_may_be_larger_than_all(
    constraint, level, made, is_larger
):
    nodes = SimpleNamespace(
        snapshot=None, hold_in_domain=lambda _shape, count, within: within is level and count <= 2
    )
    with (
        patch.object(infeasible_demand, "resolved_constraint", lambda *_: constraint),
        patch.object(infeasible_demand, "level_of", lambda *_: level),
    ):
        assert infeasible_demand._is_larger_than_domain(made, nodes) is is_larger
