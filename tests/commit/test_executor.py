"""What of a plan is carried out on a stale view, and what is told of it."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from kai_py.commit.executor import Executor
from kai_py.plan.plan import Plan
from tests.commit.cluster import Cluster
from tests.commit.test_committer import eviction_of

STALE = ["Pod: its watch has not shown a write of this process"]


@pytest.mark.parametrize(
    ("silent", "behind", "evicts"), [([], [], True), ([], STALE, False), (STALE, [], False)]
)
async def test_evictions_that_are_held_back_are_not_told(silent, behind, evicts):
    plan = Plan(evictions=(eviction_of(Cluster().add_pod("p")),))
    carried, told = [], []
    executor = object.__new__(Executor)
    executor._stale = ()
    executor._dependencies = SimpleNamespace(
        failures=SimpleNamespace(contained=lambda _part: nullcontext()),
        freshness=SimpleNamespace(silent=lambda: silent, behind=lambda: behind),
        wake=lambda _seconds: None,
    )
    executor._reports = SimpleNamespace(
        complete=lambda given, *_: given, update=lambda given, _gangs: told.append(given)
    )
    executor._maintenance = SimpleNamespace()
    executor.committer = SimpleNamespace(commit=lambda given, _now: carried.append(given))
    executor.execute(plan, SimpleNamespace(gangs={}), 0.0)
    expected = plan.evictions if evicts else ()
    assert [each.evictions for each in (*carried, *told)] == [expected, expected]
