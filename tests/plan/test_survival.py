"""No action makes a Job fail: it is suspended in place of losing more pods than it survives."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}}
    replica = pod("web-0", 8, owner=replicas, annotations={QUEUE: "team"}, nodeName="n")
    assert effect(low()) == {"its Job is suspended, and resumed when it fits"}
    assert effect(low(backoffLimit=9)) == {"its pods are created again; it survives 9 evictions"}
    assert effect(low(podFailurePolicy=POLICY)) == {"its pods are created again"}
    assert effect(bare) == {"it is not created again, as it has no owner"}
    assert effect(replicas, replica) == {"its pods are created again"}


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


@pytest.mark.parametrize(("backoff", "evicted"), [(0, []), (1, ["moved-0"])])
def test_consolidation_moves_one_pod_of_a_gang_if_its_job_survives_that(backoff, evicted):
    moved = running(job("moved", 2, backoffLimit=backoff), *"ab")
    needs = pod("needs", 8, annotations={QUEUE: "team"})
    plan = Cluster(TEAMS, node("a", 8), node("b", 2), moved, needs).plan()
    assert lost(plan) == ([] if evicted else ["moved-0", "moved-1"], evicted)


def test_elastic_pods_go_one_by_one_as_far_as_the_job_survives():
    def plan(gpus):
        low = running(job("low", 8, minimum=1, backoffLimit=3), *"nnnnnnnn")
        return Cluster(TEAMS, node("n", 8), low, urgent(gpus)).plan()

    assert lost(plan(3)) == ([], ["low-5", "low-6", "low-7"])
    assert lost(plan(4)) == ([f"low-{i}" for i in range(8)], [])


@pytest.mark.parametrize("terminating", [1, 2])
def test_pods_that_terminate_count(terminating):
    low = running(job("low", 4, minimum=1, backoffLimit=terminating + 1), *"nnnn")
    for row in range(5 - terminating, 5):
        meta = {**low[row]["metadata"], "deletionTimestamp": "2027-01-15T07:59:59Z"}
        low[row] = {**low[row], "metadata": meta}
    cluster = Cluster(TEAMS, node("n", 4), low, urgent(terminating + 1))
    assert lost(cluster.plan()) == ([], [f"low-{3 - terminating}"]), "one more is survived"
    cluster.add(low[0] | {"spec": {**low[0]["spec"], "backoffLimit": terminating}})
    suspended, gone = lost(cluster.plan())
    assert suspended, "one more is too many"
    assert gone == []


@dataclass(frozen=True)
class Wrapper:
    """A workload around pods: with ``fails`` it ends at the first eviction, with ``lives`` not."""

    version: str
    fails: dict
    lives: dict
    cause: str
    labels: dict = field(default_factory=dict)


WRAPPERS = {
    "JobSet": Wrapper(
        "jobset.x-k8s.io/v1alpha2",
        {"failurePolicy": {"maxRestarts": 0}},
        {"failurePolicy": {"maxRestarts": 1}},
        "spec.failurePolicy.maxRestarts is 0",
        {
            "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "jobset.sigs.k8s.io/job-index": "0",
        },
    ),
    "PyTorchJob": Wrapper(
        "kubeflow.org/v1",
        {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "Never"}}},
        {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure"}}},
        "restartPolicy",
        {"training.kubeflow.org/replica-type": "worker"},
    ),
    "RayJob": Wrapper(
        "ray.io/v1",
        {"backoffLimit": 0},
        {"backoffLimit": 1},
        "spec.backoffLimit is 0",
        {"ray.io/node-type": "head"},
    ),
}


def workload(kind, *, survives, nodes="nn", **pods):
    """The owners of a running workload and its pods of one GPU each: unread owner, objects."""
    wrapper = WRAPPERS[kind]
    spec = dict(wrapper.lives if survives else wrapper.fails)
    meta = {"name": "top", "namespace": "default", "uid": f"uid-{kind}-top"}
    meta["annotations"] = {QUEUE: "team", MIN_AVAILABLE: str(len(nodes))}
    top = {"apiVersion": wrapper.version, "kind": kind, "metadata": meta, "spec": spec}
    objects, owner = [], top
    if kind == "JobSet":
        template = {"spec": {"parallelism": len(nodes)}}
        spec["replicatedJobs"] = [{"name": "w", "template": template}]
        reference = {key: top[key] for key in ("apiVersion", "kind")} | {"controller": True}
        reference |= {"name": "top", "uid": meta["uid"]}
        owner = job("top-w-0", len(nodes), owner=reference, backoffLimit=0)
        objects.append(owner)
    objects += [
        pod(f"w-{i}", owner=owner, nodeName=name, labels=wrapper.labels, **pods)
        for i, name in enumerate(nodes)
    ]
    return top, objects


def running_workload(kind, *others, survives, nodes="nn", **pods):
    top, objects = workload(kind, survives=survives, nodes=nodes, **pods)
    return Cluster(TEAMS, others, top, objects)


def going(document):
    """A node that Karpenter is about to take away."""
    return {
        **document,
        "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
    }


ACTIONS = {
    Action.PREEMPT: lambda gpus, needs: (node("n", gpus), urgent(needs)),
    Action.RECLAIM: lambda gpus, needs: (node("n", gpus), urgent(needs, "other")),
    Action.CONSOLIDATE: lambda gpus, needs: (
        node("n", needs),
        node("m", gpus),
        pod("needs", needs, annotations={QUEUE: "team"}),
    ),
    Action.DEPARTURE: lambda gpus, needs: (going(node("n", gpus)), node("m", gpus)),
}
"""Nodes and a gang, by the action that evicts the pods on ``n`` (of ``gpus`` GPUs in all)."""


@pytest.mark.parametrize("action", ACTIONS)
def test_a_default_job_is_suspended_by_any_action_that_would_fail_it(action):
    needs = 16 if action is Action.CONSOLIDATE else 8
    world = ACTIONS[action](gpus=8, needs=needs)
    plan = Cluster(TEAMS, *world, running(job("low", 8), *"nnnnnnnn")).plan()
    assert {each.action for each in plan.evictions} == {action}
    assert lost(plan) == ([f"low-{i}" for i in range(8)], [])


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_workload_is_a_victim_of_any_action_as_long_as_it_survives(action, kind):
    def plan(survives):
        return running_workload(
            kind,
            *ACTIONS[action](gpus=2, needs=8 if action is Action.CONSOLIDATE else 1),
            survives=survives,
        ).plan()

    evictions = plan(survives=True).evictions
    assert {each.action for each in evictions} == {action}
    assert [each.pod.name for each in evictions] == ["w-0", "w-1"]
    assert plan(survives=False).evictions == ()


@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_gang_that_waits_is_told_what_an_eviction_would_end(kind):
    cluster = running_workload(kind, node("n", 2), urgent(1), survives=False)
    stage, message = cluster.why()["default/Pod/urgent"]
    assert stage == "EvictionLimits"
    assert f"{kind} default/top: " in message
    assert WRAPPERS[kind].cause in message


@pytest.mark.parametrize(
    ("cluster", "suspended", "evicted"),
    [
        (running_workload("JobSet", node("n", 2), survives=True), [], ["w-1"]),
        (running_workload("JobSet", node("n", 2), survives=False), [], []),
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
