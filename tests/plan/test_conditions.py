"""Functions that decide by several conditions: each of them alone makes the difference."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.grouping.gang_settings import DEFAULT_SETTINGS, GangAffinity
from kai_py.plan.cycle.evictions import _asks_for_suspension
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.equivalent_gangs import MAX_BATCH_PODS, is_equivalent
from kai_py.plan.session.gang_queue import _most, _stays_within
from kai_py.plan.session.requests import RequestKind, request_kind, request_signature
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import PodState
from tests.support.records import replace
from tests.support.worlds import gang

TWIN = gang("twin", pods=2)
RACK = Subgroup(min_members=2, topology=TopologyConstraint("", "rack"))
PLACEHOLDERS = gang("later", pods=1).members


def changed(pod=1, **fields):
    """Two pods, of which one is changed."""
    made = gang("g", pods=2)
    members = [replace(each, **fields) if n == pod else each for n, each in enumerate(made.members)]
    return replace(made, members=tuple(members))


def charged(**charge):
    """Two pods that share a charge, which is no object of other gangs."""
    made = gang("g", pods=2)
    return replace(made, members=tuple(replace(each, charge=charge) for each in made.members))


def with_settings(**fields):
    return replace(gang("g", pods=2), settings=replace(DEFAULT_SETTINGS, **fields))


def test_gangs_that_request_the_same_are_equivalent():
    assert is_equivalent(gang("g", pods=2), TWIN)
    assert is_equivalent(charged(**TWIN.members[0].charge), TWIN)
    most = gang("g", pods=MAX_BATCH_PODS), gang("h", pods=MAX_BATCH_PODS)
    assert is_equivalent(*most)


@pytest.mark.parametrize(
    "other",
    [
        gang("g", pods=3),
        gang("g", pods=0),
        gang("g", pods=2, gpus=2),
        charged(gpu=1.0),
        gang("g", pods=2, floor=1),
        gang("g", pods=2, preemptible=False),
        gang("g", nodes="a-"),
        gang("g", pods=2, tree=RACK),
        replace(gang("g", pods=2), placeholders=PLACEHOLDERS),
        replace(gang("g", pods=2), refusals=(None,)),
        with_settings(gang_affinity=(GangAffinity,)),
        *(changed(pod, shape=gang("x", pods=1, gpus=2).members[0].shape) for pod in (0, 1)),
        *(changed(pod, charge={"gpu": 2.0}) for pod in (0, 1)),
        *(changed(pod, waiting_for="its gate") for pod in (0, 1)),
        *(changed(pod, relies_on=("other",)) for pod in (0, 1)),
        *(changed(pod, state=PodState.GATED) for pod in (0, 1)),
    ],
)
def test_a_gang_of_another_kind_is_not_equivalent(other):
    assert not is_equivalent(other, TWIN)


@pytest.mark.parametrize(
    ("cost", "allocated", "most", "stays"),
    [
        ([1.0, 0.0], [3.0, 9.0], [4.0, 8.0], True),
        ([1.5, 0.0], [3.0, 0.0], [4.0, 8.0], False),
        ([1.0, 1.0], [3.0, 9.0], [4.0, 8.0], False),
        ([0.0, 0.0], [9.0, 9.0], [4.0, 8.0], True),
        ([1.0 + 1e-12, 0.0], [3.0, 0.0], [4.0, 8.0], True),
    ],
)
def test_only_what_a_request_costs_has_to_stay_within_bounds(cost, allocated, most, stays):
    assert _stays_within(cost, _most(most, allocated)) is stays


def test_large_gangs_are_not_equivalent():
    pair = gang("g", pods=MAX_BATCH_PODS + 1), gang("h", pods=MAX_BATCH_PODS + 1)
    assert not is_equivalent(*pair)


def kinds(made, *, active=(), is_for=False, usable=(), domain=None, domains=True):
    """What a request of the gang is compared by: from cycle to cycle, and within one."""
    reservations = SimpleNamespace(
        active=active,
        is_for=lambda _gang: is_for,
        rows_closed_to=lambda _gang, starts_now=True: (3,) if starts_now else (3, 4),
        spares=SimpleNamespace(usable=lambda _gang: usable),
    )
    found = SimpleNamespace(domain_of=lambda _gang, _member: domain) if domains else None
    state = SimpleNamespace(
        placer=SimpleNamespace(reservations=reservations, compute_domains=found)
    )
    request = PlacementRequest(made.members, is_elastic=False)
    return request_signature(state, made, request), request_kind(state, made, request)


def test_requests_of_one_shape_are_comparable():
    assert kinds(TWIN) == kinds(TWIN, domains=False) == (1, RequestKind(1))
    assert kinds(TWIN, active=("reservation",)) == (None, RequestKind(1, (3,), (3, 4)))
    assert kinds(TWIN, active=("reservation",), is_for=True) == (None, None)


@pytest.mark.parametrize("active", [(), ("reservation",)])
@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (TWIN, {"usable": (1,)}),
        (TWIN, {"domain": "domain"}),
        (gang("g", pods=2, tree=RACK), {}),
        (replace(gang("g", pods=2), refusals=(None,)), {}),
        (changed(shape=gang("x", pods=1, gpus=2).members[0].shape), {}),
    ],
)
def test_requests_whose_placement_depends_on_more_are_not_comparable(made, fields, active):
    assert kinds(made, active=active, **fields) == (None, None)


PREEMPT, STALE = Action.PREEMPT, Action.STALE


@pytest.mark.parametrize(
    ("by_default", "own", "lost", "starts", "suspends"),
    [
        (True, None, [PREEMPT, PREEMPT], False, True),
        (True, None, [Action.RECLAIM, Action.CONSOLIDATE], False, True),
        (False, True, [PREEMPT, PREEMPT], False, True),
        (False, None, [PREEMPT, PREEMPT], False, False),
        (True, False, [PREEMPT, PREEMPT], False, False),
        (True, None, [PREEMPT], False, False),
        (True, None, [PREEMPT, PREEMPT], True, False),
        (True, None, [PREEMPT, STALE], False, False),
        (True, None, [STALE, STALE], False, False),
    ],
)
def test_a_gang_that_is_evicted_whole_is_suspended_if_it_asks_for_that(
    by_default, own, lost, starts, suspends
):
    made = replace(gang("g", nodes="aa-"), suspend=own)
    left = [
        Evicted(member, made, action, made, "")
        for member, action in zip(made.bound, lost, strict=False)
    ]
    statement = SimpleNamespace(placed={made.pending[0].pod.uid: None} if starts else {})
    assert _asks_for_suspension(statement, left, by_default=by_default) is suspends


@pytest.mark.parametrize(
    ("releasing", "frees"),
    [
        ({}, False),
        ({"releasable_claims": ("claim",)}, True),
        ({"group_claim_users": {"claim": frozenset({"pod"})}}, False),
        ({"group_claim_users": {"first": frozenset({"pod"}), "second": frozenset()}}, True),
        ({"has_releasing": True}, True),
        ({"evicted": ("pod",)}, True),
    ],
)
def test_capacity_is_freed_by_whatever_leaves(releasing, frees):
    nothing = {"releasable_claims": (), "group_claim_users": {}, "has_releasing": False}
    state = SimpleNamespace(
        snapshot=SimpleNamespace(**(nothing | releasing)),
        statement=SimpleNamespace(evicted=releasing.get("evicted", ())),
    )
    assert CycleState.frees_capacity.fget(state) is frees


PARTS = ("allocated", "non_preemptible", "owed", "owed_non_preemptible", "leaving", "fair", "total")


def decisions(by_share, *, active=(), placed=(), evicted=(), **amounts):
    """What a cycle decided, of amounts that are 0 unless they are given."""
    each = {name: np.full(2, amounts.get(name, 0.0)) for name in PARTS}
    assignment = SimpleNamespace(row=1, capacity=Capacity.IDLE)
    state = SimpleNamespace(
        placer=SimpleNamespace(reservations=SimpleNamespace(active=active)),
        quota=SimpleNamespace(usage=SimpleNamespace(**each), leaving=each["leaving"]),
        statement=SimpleNamespace(placed=dict.fromkeys(placed, assignment), evicted=evicted),
        eviction_limits=SimpleNamespace(snapshot=lambda: amounts.get("past", 0)),
        score_inputs=amounts.get("scores", 0),
    )
    return CycleState.decisions(state, by_share=by_share)


@pytest.mark.parametrize("by_share", [False, True])
def test_decisions_differ_in_whatever_a_search_may_depend_on(by_share):
    base = decisions(by_share)
    assert decisions(by_share) == base
    assert decisions(by_share, active=("reservation",)) is None
    for name in (*PARTS, "past", "scores"):
        is_share = name in ("fair", "total")
        assert (decisions(by_share, **{name: 1.0}) != base) is (by_share or not is_share), name
    assert decisions(by_share, placed=("a",)) != base
    assert decisions(by_share, evicted=("a",)) != base
