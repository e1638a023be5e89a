"""No action makes a Job fail: it is suspended in place of losing more pods than it survives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.records.unstructured import unstructured
from kai_py.grouping.owner_chain import GroupKind
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.plan.plan import Action
from tests.dialects.feeding import NOW, Cluster, documents, node, pod

QUEUE = "scheduling.kai.io/queue-name"
MIN_AVAILABLE = "scheduling.kai.io/min-available"
TEAMS = documents(
    """
apiVersion: scheduling.kai.io/v1alpha1
kind: Queue
metadata: {name: team}
spec: {deservedGPUs: 0}
---
apiVersion: scheduling.kai.io/v1alpha1
kind: Queue
metadata: {name: other}
spec: {deservedGPUs: 8}
"""
)
POLICY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def job(name, pods, minimum=None, failed=0, queue="team", owner=None, **spec):
    annotations = {QUEUE: queue}
    if minimum is not None:
        annotations[MIN_AVAILABLE] = str(minimum)
    references = {"ownerReferences": [owner]} if owner else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations, **references},
        "spec": {"parallelism": pods, "completions": pods, **spec},
        "status": {"failed": failed},
    }


def running(owner, *nodes):
    name = owner["metadata"]["name"]
    return [owner, *(pod(f"{name}-{i}", owner=owner, nodeName=n) for i, n in enumerate(nodes))]


def urgent(gpus, queue="team", **spec):
    return pod("urgent", gpus, priority=100, annotations={QUEUE: queue}, **spec)


def lost(plan):
    """Suspended and evicted pods."""
    return (
        sorted(each.pod.name for each in plan.evictions if each.suspend),
        sorted(each.pod.name for each in plan.evictions if not each.suspend),
    )


@pytest.mark.parametrize("queue", ["team", "other"], ids=["preempt", "reclaim"])
@pytest.mark.parametrize(
    ("owner", "suspended"),
    [
        (job("low", 8), True),
        (job("low", 8, backoffLimit=8), False),
        (job("low", 8, backoffLimit=8, failed=1), True),
        (job("low", 8, podFailurePolicy=POLICY, backoffLimit=0), False),
    ],
)
def test_a_job_that_would_fail_is_suspended(owner, suspended, queue):
    plan = Cluster(TEAMS, node("n", 8), running(owner, *"nnnnnnnn"), urgent(1, queue)).plan()
    names = [f"low-{i}" for i in range(8)]
    assert lost(plan) == ((names, []) if suspended else ([], names))


def test_each_victim_is_told_what_becomes_of_it():
    def effect(*objects):
        plan = Cluster(TEAMS, node("n", 8), *objects, urgent(8)).plan()
        return {each.effect for each in plan.evictions}

    def low(**spec):
        return running(job("low", 8, **spec), *"nnnnnnnn")

    bare = pod("bare", 8, annotations={QUEUE: "team"}, nodeName="n")
    assert effect(low()) == {"its Job is suspended, and resumed when it fits"}
    assert effect(low(backoffLimit=9)) == {"its pods are created again; it survives 9 evictions"}
    assert effect(low(podFailurePolicy=POLICY)) == {"its pods are created again"}
    assert effect(bare) == {"it is not created again, as it has no owner"}


def test_also_where_the_annotation_asks_for_eviction():
    owner = job("low", 2, backoffLimit=0)
    owner["metadata"]["annotations"]["scheduling.kai.io/on-eviction"] = "evict"
    plan = Cluster(TEAMS, node("n", 2), running(owner, *"nn"), urgent(1)).plan()
    assert lost(plan) == (["low-0", "low-1"], [])


def test_consolidation_suspends_a_job_that_would_fail():
    def plan(**spec):
        moved = running(job("moved", 4, minimum=1, **spec), *"aaaa")
        needs = pod("needs", 8, annotations={QUEUE: "team"})
        return Cluster(TEAMS, node("a", 8), node("b", 4), moved, needs).plan()

    names = [f"moved-{i}" for i in range(4)]
    assert {each.action for each in plan().evictions} == {Action.CONSOLIDATE}
    assert lost(plan()) == ([], names)
    assert lost(plan(backoffLimit=3)) == (names, [])


def test_what_consolidation_would_leave_in_place_is_suspended_with_the_rest():
    moved = running(job("moved", 6, minimum=1, backoffLimit=3), *"aaaabb")
    needs = pod("needs", 8, annotations={QUEUE: "team"})
    plan = Cluster(TEAMS, node("a", 8), node("b", 6), moved, needs).plan()
    assert lost(plan) == ([f"moved-{i}" for i in range(6)], [])
    plan = Cluster(
        TEAMS,
        node("a", 8),
        node("b", 6),
        moved,
        needs,
        moved[0] | {"spec": {**moved[0]["spec"], "backoffLimit": 4}},
    ).plan()
    assert lost(plan) == ([], [f"moved-{i}" for i in range(4)])


def test_elastic_pods_go_one_by_one_as_far_as_the_job_survives():
    def plan(gpus):
        low = running(job("low", 8, minimum=1, backoffLimit=3), *"nnnnnnnn")
        return Cluster(TEAMS, node("n", 8), low, urgent(gpus)).plan()

    assert lost(plan(3)) == ([], ["low-5", "low-6", "low-7"])
    assert lost(plan(4)) == ([f"low-{i}" for i in range(8)], [])


def test_pods_that_terminate_count():
    low = running(job("low", 4, minimum=1, backoffLimit=2), *"nnnn")
    low[4] = {
        **low[4],
        "metadata": {**low[4]["metadata"], "deletionTimestamp": "2027-01-15T07:59:59Z"},
    }
    plan = Cluster(TEAMS, node("n", 4), low, urgent(2)).plan()
    assert lost(plan) == ([], ["low-2"]), "one is terminating, one more is survived"


JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "set", "annotations": {QUEUE: "team"}},
    "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 2}}}]},
}


def in_job_set(max_restarts):
    """A running JobSet of one Job of two pods that may not fail."""
    policy = {"failurePolicy": {"maxRestarts": max_restarts}}
    top = {**JOB_SET, "spec": {**JOB_SET["spec"], **policy}}
    reference = {
        "apiVersion": top["apiVersion"],
        "kind": "JobSet",
        "name": "set",
        "uid": "uid-JobSet-set",
        "controller": True,
    }
    child = job("set-w-0", 2, owner=reference, backoffLimit=0)
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": "w",
        "jobset.sigs.k8s.io/job-index": "0",
    }
    pods = [pod(f"w-{i}", owner=child, nodeName="n", labels=labels) for i in range(2)]
    return [child, *pods], top


def with_job_set(max_restarts, *others, **configuration):
    objects, top = in_job_set(max_restarts)
    cluster = Cluster(TEAMS, node("n", 2), **configuration)
    metadata = {"namespace": "default", "uid": "uid-JobSet-set", **top["metadata"]}
    paths = RuleTable(shipped_rules()).paths(GroupKind("jobset.x-k8s.io", "JobSet"))
    owner = unstructured({**top, "metadata": metadata}, paths)
    cluster.planner.builder.apply("jobsets.jobset.x-k8s.io", None, owner)
    return cluster.add(objects).add(others)


@pytest.mark.parametrize("queue", ["team", "other"], ids=["preempt", "reclaim"])
def test_a_job_set_is_a_victim_as_long_as_it_restarts(queue):
    assert lost(with_job_set(1, urgent(1, queue)).plan()) == ([], ["w-0", "w-1"])
    cluster = with_job_set(0, urgent(1, queue))
    assert lost(cluster.plan()) == ([], [])
    stage, message = cluster.why()["default/Pod/urgent"]
    assert stage == "EvictionLimits"
    assert "JobSet default/set: spec.failurePolicy.maxRestarts is 0" in message


@pytest.mark.parametrize(
    ("cluster", "suspended", "evicted"),
    [
        (with_job_set(1), [], ["w-1"]),
        (with_job_set(0), [], []),
        (Cluster(TEAMS, node("n"), running(job("w", 2), *"nn")), [], ["w-1"]),
        (Cluster(TEAMS, node("n"), running(job("w", 2, backoffLimit=0), *"nn")), ["w-1"], []),
    ],
)
def test_the_rest_of_a_broken_gang_stays_if_its_workload_would_fail(cluster, suspended, evicted):
    cluster.snapshot()
    cluster.remove({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w-0"}})
    cluster.snapshot(NOW + 60)
    assert lost(cluster.plan(NOW + 3600)) == (suspended, evicted)


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 5), st.integers(0, 6), st.integers(0, 2)),
        min_size=1,
        max_size=4,
    ),
    gpus=st.integers(1, 6),
    queue=st.sampled_from(["team", "other"]),
    on=st.lists(st.sampled_from("abc"), min_size=20, max_size=20),
)
def test_no_plan_makes_a_job_fail(sizes, gpus, queue, on):
    places = iter(on)
    free = dict.fromkeys("abc", 6)
    objects, limit = [], {}
    for number, (pods, minimum, backoff, failed) in enumerate(sizes):
        owner = job(
            f"j{number}",
            pods,
            minimum=min(max(minimum, 1), pods),
            failed=failed,
            backoffLimit=backoff,
        )
        nodes = [n for n in (next(places) for _ in range(pods)) if free[n] > 0]
        for n in nodes:
            free[n] -= 1
        objects += running(owner, *nodes)
        limit[f"default/Job/j{number}"] = max(backoff - failed, 0), len(nodes)
    cluster = Cluster(TEAMS, *(node(n, 6) for n in "abc"), objects, urgent(gpus, queue))
    evictions = cluster.plan().evictions
    for gang, (remaining, bound) in limit.items():
        suspended = [e for e in evictions if e.gang == gang and e.suspend]
        evicted = [e for e in evictions if e.gang == gang and not e.suspend]
        assert len(evicted) <= remaining
        assert not suspended or (len(suspended) == bound and not evicted)
