from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings

import kai_py.dra.search
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Node
from kai_py.dra import cluster_allocator
from kai_py.dra.allocator import Allocation, BudgetExceeded, Infeasible, allocate
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError
from tests.support.examples import examples

from .instances import CLASSES, as_objects, crowded, crowded_shares, questions
from .naive import Fatal

NODE = Node(metadata=ObjectMeta(name="n"))


@pytest.fixture(params=["bounded", "unbounded"])
def bounds(request, monkeypatch):
    """Without bounds everything rests on twins and no-goods."""
    if request.param == "unbounded":
        monkeypatch.setattr(kai_py.dra.search, "provably_infeasible", lambda *_: False)


@pytest.mark.slow
@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(question=questions())
def test_w13_first_fit_is_what_exhaustive_search_finds(bounds, question):
    claims, inventory, state = as_objects(question, choice=AllocationStrategy.FIRST_FIT)
    answer = allocate(claims, NODE, inventory, state, CLASSES)
    try:
        expected = question.solve()
    except Fatal:
        assert isinstance(answer, AllocationError | Infeasible)
        return
    if expected is None:
        assert isinstance(answer, Infeasible)
        return
    assert isinstance(answer, Allocation), expected
    got = [(r.request, r.device) for a in answer.allocations for r in a.devices.results]
    assert got == expected


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(question=questions())
def test_no_device_gets_two_holders_and_no_counter_is_overdrawn(question):
    claims, inventory, state = as_objects(question, choice=AllocationStrategy.FIRST_FIT)
    before = dict(state.pools)
    answer = allocate(claims, NODE, inventory, state, CLASSES)
    assert state.pools == before
    if not isinstance(answer, Allocation):
        return
    undo = [state.mark_allocated(allocation) for allocation in answer.allocations]
    for pool, usage in state.pools.items():
        newly = {n: h for n, h in usage.devices.items() if not _held(before, pool, n)}
        assert all(
            h.exclusive_holders <= 1 and not (h.exclusive_holders and h.shares)
            for h in newly.values()
        )
        values = {
            key: value
            for piece in inventory.slices().values()
            for key, value in piece.counters.items()
        }
        for counter, drawn in usage.counters.items():
            assert drawn <= max(values[counter], _drawn(before, pool, counter))
    for step in undo:
        step()
    assert state.pools == before


def _held(pools, pool, name):
    return pool in pools and name in pools[pool].devices


def _drawn(pools, pool, counter):
    return pools[pool].counters.get(counter, 0) if pool in pools else 0


def test_a_search_that_exceeds_its_budget_says_so():
    claims, inventory, state = as_objects(crowded(7, wanted=8), choice=AllocationStrategy.FIRST_FIT)
    answer = allocate(claims, NODE, inventory, state, CLASSES, budget=3)
    assert isinstance(answer, BudgetExceeded)
    assert answer.steps > 3


def test_one_device_too_few_is_found_out_by_counting():
    claims, inventory, state = as_objects(
        crowded(20, wanted=21), choice=AllocationStrategy.FIRST_FIT
    )
    answer = allocate(claims, NODE, inventory, state, CLASSES, budget=100)
    assert isinstance(answer, Infeasible)


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param([2] * 25, id="two to a device"),
        pytest.param([*range(1, 6)] * 4 + [1], id="more than all have"),
    ],
)
def test_shares_that_do_not_fit_together_are_found_out_by_counting(asks):
    devices = 12
    question = crowded_shares(devices, asks, 5)
    claims, inventory, state = as_objects(question, choice=AllocationStrategy.FIRST_FIT)
    answer = allocate(claims, NODE, inventory, state, CLASSES, budget=200)
    assert isinstance(answer, Infeasible)
    fewer = allocate(claims[:-1], NODE, inventory, state, CLASSES, budget=10_000)
    assert isinstance(fewer, Allocation)


@pytest.mark.parametrize(("own", "left", "spent"), [(5, 3, 3), (3, 5, 3), (5, 0, 0)])
def test_no_search_spends_more_than_what_is_left_of_the_cycle(monkeypatch, own, left, spent):
    monkeypatch.setattr(cluster_allocator, "allocate", lambda *_each, budget, **_other: budget)
    spending = SimpleNamespace(steps=SimpleNamespace(left=left), selectors=None)
    known = SimpleNamespace(budget=own, spending=spending, inventory=None, classes={})
    found = cluster_allocator.ClusterAllocator.allocate_uncached(known, (), None, None)
    assert found == spent
