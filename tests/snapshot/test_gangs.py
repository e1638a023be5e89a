"""The gang of a single pod, for views that show more pods than a cycle looks at.

Totals of costs have the same bits whether costs are one object or several equal ones.

Sums of charges that come and go.
"""

from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.grouping.gang import FailureLimit
from kai_py.grouping.gang_settings import GangSettings
from kai_py.snapshot.accounting import total
from kai_py.snapshot.charges import QueueSums
from tests.dialects.feeding import Cluster, pod
from tests.dialects.kai.objects import QUEUE, job, member, pod_group, with_pods
from tests.support import scenario
from tests.support.records import replace
from tests.support.worlds import gang


@pytest.mark.parametrize(
    ("last_evicted", "expected"), [(None, 310.0), (100.0, 400.0), (5.0, 310.0)]
)
def test_preemption_delay_counts_from_creation_or_the_last_eviction(last_evicted, expected):
    settings = GangSettings(last_evicted=last_evicted, preemption_delay=300.0)
    assert replace(gang("train"), created=10.0, settings=settings).preempts_from == expected


MPI_JOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "ring", "labels": {"kai.scheduler/queue": "q"}},
    "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}},
}


def test_a_pod_is_grouped_as_cycles_group_it():
    group, owner = pod_group("g", minMember=2), job("train", 3, {"kai.scheduler/queue": "q"})
    pods = [member("a", "g"), *with_pods(owner, 1)[1:], pod("alone"), pod("ring-0", owner=MPI_JOB)]
    cluster = Cluster(QUEUE, group, owner, MPI_JOB, pods)
    cycle = {
        each.pod.name: (gang.key, gang.queue, gang.tree)
        for gang in cluster.snapshot().gangs.values()
        for each in gang.members
    }
    for document in pods:
        found = cluster.planner.builder.gang_of(cluster.record(document))
        assert (found.key, found.queue, found.tree) == cycle[document["metadata"]["name"]]
    assert cycle["ring-0"][0] == "default/MPIJob/ring"


def test_a_pod_of_another_scheduler_is_in_no_gang():
    other = pod("other", schedulerName="default-scheduler")
    cluster = Cluster(other)
    assert cluster.planner.builder.gang_of(cluster.record(other)) is None


AMOUNTS = st.floats(0, 1e12) | st.integers(-(2**60), 2**60).map(float)
COSTS = st.dictionaries(st.sampled_from(("gpu", "cpu", "memory")), AMOUNTS)


@given(st.lists(COSTS, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=40))
def test_of_costs_that_repeat(costs, order):
    costs = [costs[each % len(costs)] for each in order]
    expected = {}
    for cost in costs:
        for name, amount in cost.items():
            expected[name] = expected.get(name, 0.0) + amount
    assert total(costs) == expected
    assert total(map(dict, costs)) == expected


def test_of_whole_numbers_that_are_rounded_at_each_step():
    cost = {"memory": 2.0**53 + 2, "cpu": 0.1}
    expected = {"memory": 0.0, "cpu": 0.0}
    for _ in range(7):
        expected = {name: expected[name] + amount for name, amount in cost.items()}
    assert expected != {name: 7 * amount for name, amount in cost.items()}
    assert total([cost] * 7) == expected


CHARGES = st.tuples(
    st.sampled_from("ab"), st.dictionaries(st.sampled_from("xyz"), st.floats(0, 1e15), max_size=3)
)


@given(kept=st.lists(CHARGES), passing=st.lists(CHARGES))
def test_what_is_gone_leaves_no_entry(kept, passing):
    sums = QueueSums()
    for charge in (*passing, *kept):
        sums.add(*charge)
    for charge in passing:
        sums.remove(*charge)
    left = sums.snapshot()
    charged = {queue for queue, _ in kept}
    assert {queue: set(amounts) for queue, amounts in left.items()} == {
        queue: {r for q, each in kept if q == queue for r in each} for queue in charged
    }
    for charge in kept:
        sums.remove(*charge)
    assert sums.snapshot() == {}


@given(charges=st.lists(CHARGES))
def test_sums_are_sums(charges):
    sums = QueueSums()
    for charge in charges:
        sums.add(*charge)
    for queue, amounts in sums.snapshot().items():
        for resource, amount in amounts.items():
            # ``sum`` corrects the errors of rounding from Python 3.12 on.
            charged = (each.get(resource, 0.0) for q, each in charges if q == queue)
            assert amount == reduce(add, charged, 0.0)


@pytest.mark.parametrize(
    ("remaining", "ended", "outlives"),
    [
        ([(), ()], 0, True),
        ([(2,), (2,)], 0, True),
        ([(2, 1), (2,)], 0, False),
        ([(1,), (2,)], 0, False),
        ([(2,), (1,)], 0, False),
        ([(1,), ()], 0, False),
        ([(2,), (2,)], 1, False),
        ([(3,), (3,)], 1, True),
    ],
)
def test_a_gang_outlives_all_pods_if_each_limit_allows_as_many_more(remaining, ended, outlives):
    made = gang("g", pods=2)
    limits = [
        tuple(FailureLimit("k", made.owner, n, "backoffLimit") for n in own) for own in remaining
    ]
    members = [
        replace(each, failure_limits=own) for each, own in zip(made.members, limits, strict=True)
    ]
    uncounted = (("k", frozenset({"ended"})),) if ended else ()
    made = replace(made, members=tuple(members), uncounted_failures=uncounted)
    assert made.outlives_all_pods is outlives


def test_a_gang_is_as_old_as_its_oldest_pod_and_has_the_highest_priority_of_its_pods():
    owner = scenario.job("j", 2, "q")
    options = [
        {"created": 9.0, "priority": 7, "preemption_policy": "Never"},
        {"created": 5.0, "priority": 3},
    ]
    pods = [scenario.pod(f"j-{n}", owner=owner, **each) for n, each in enumerate(options)]
    made = scenario.cluster(scenario.queue("q", 8), scenario.node("n"), owner, *pods)
    (found,) = made.snapshot().gangs.values()
    assert (found.created - scenario.START, found.priority, found.may_preempt) == (5.0, 7, False)
