"""Workloads addressed in KAI's way get KAI's defaults, those addressed in ours keep ours."""

import pytest

from kai_py.config import NodePoolConfig
from tests.dialects.feeding import Cluster, node, placed, pod
from tests.dialects.kai.objects import KAI, job, kai_queue, native_queue, priority_class, with_pods

NATIVE = "scheduling.kai.io/queue-name"
QUEUE = kai_queue("q", quota=8, limit=8, overQuotaWeight=1)


def gang(*objects, key="default/Job/train", **configuration):
    return Cluster(QUEUE, *objects, **configuration).gang(key)


def test_a_job_with_kais_label_starts_pod_by_pod_and_one_with_ours_is_a_gang():
    kais = with_pods(job("kais", 3, {KAI: "q"}), 3)
    ours = with_pods(job("ours", 3, annotations={NATIVE: "native"}), 3)
    cluster = Cluster(QUEUE, native_queue("native"), node("n", 2), kais)
    assert sorted(placed(cluster.plan())) == ["kais-0", "kais-1"]
    cluster = Cluster(QUEUE, native_queue("native"), node("n", 2), ours)
    assert placed(cluster.plan()) == {}


def test_batch_min_member_makes_it_a_gang():
    mark = {"kai.scheduler/batch-min-member": "3"}
    assert gang(*with_pods(job("train", 3, {KAI: "q"}, mark), 1)).tree.min_members == 3
    mark = {"kai.scheduler/batch-min-member": "few"}
    assert 'at least 1, is "few"' in gang(*with_pods(job("train", 3, {KAI: "q"}, mark), 1)).problem


def test_the_top_owners_queue_goes_before_the_pods_and_ours_before_both():
    owner = job("train", 1, {KAI: "q"})
    assert gang(*with_pods(owner, 1, labels={KAI: "other"})).queue == "q"
    owner = job("train", 1)
    assert gang(*with_pods(owner, 1, labels={KAI: "other"})).queue == "other"
    owner = job("train", 1, {KAI: "q"}, {NATIVE: "ours"})
    found = gang(*with_pods(owner, 1))
    assert (found.queue, found.priority, found.preemptible) == ("ours", 0, True)


def test_the_label_has_another_name_where_the_configuration_says_so():
    other = gang(*with_pods(job("train", 1, {"team": "q"}), 1), kai={"queueLabel": "team"})
    assert other.queue == "q"


def test_without_any_queue_the_kai_rules_use_project_then_the_default_queue():
    alone = "default/Pod/p"
    assert gang(pod("p"), key=alone).queue == ""
    assert gang(pod("p"), key=alone, rules="kai").queue == "default-queue"
    assert gang(pod("p"), key=alone, rules="kai", default_queue="mine").queue == "mine"
    assert gang(pod("p", labels={"project": "x"}), key=alone, rules="kai").queue == "x"
    pooled = pod("p", labels={"project": "x", "kai.scheduler/node-pool": "a100"})
    pool = NodePoolConfig(name="a100")
    assert gang(pooled, key=alone, rules="kai", node_pool=pool).queue == "x-a100"
    assert gang(pod("p"), key=alone, rules="kai").priority == 50


@pytest.mark.parametrize(
    ("labels", "spec", "expected"),
    [
        ({}, {}, (50, True)),
        ({"priorityClassName": "build"}, {}, (100, False)),
        ({}, {"priorityClassName": "inference", "priority": 125}, (125, False)),
        ({"priorityClassName": "high"}, {"priorityClassName": "train"}, (99, True)),
        ({"priorityClassName": "gone"}, {"priorityClassName": "build"}, (100, False)),
        ({"priorityClassName": "gone"}, {}, (50, True)),
        ({"kai.scheduler/preemptibility": "non-preemptible"}, {}, (50, False)),
        (
            {"kai.scheduler/preemptibility": "preemptible", "priorityClassName": "build"},
            {},
            (100, True),
        ),
    ],
)
def test_priority_and_preemptibility(labels, spec, expected):
    owner = job("train", 1, {KAI: "q", **labels})
    found = gang(priority_class("high", 99), *with_pods(owner, 1, **spec))
    assert (found.priority, found.preemptible) == expected


def jobset_with_pod(labels, job_labels, pod_labels, **spec):
    """A JobSet, its Job and a pod of it, each with labels of its own."""
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "labels": {KAI: "q", **labels}},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {}}}]},
    }
    below = job("train-w-0", 1, job_labels)
    below["metadata"]["ownerReferences"] = pod("", owner=jobset)["metadata"]["ownerReferences"]
    return [jobset, *with_pods(below, 1, labels=pod_labels, **spec)]


@pytest.mark.parametrize(
    ("above", "on_job", "on_pod", "own_class", "expected"),
    [
        ("build", "", "", "", 100),
        ("build", "train", "", "", 50),
        ("build", "", "train", "", 50),
        ("build", "", "", "inference", 125),
        ("build", "train", "", "inference", 50),
        ("build", "", "train", "inference", 50),
        ("build", "gone", "", "", 100),
    ],
)
def test_the_nearest_owners_class_then_the_pods_then_those_above(
    above, on_job, on_pod, own_class, expected
):
    labels = [{"priorityClassName": each} if each else {} for each in (above, on_job, on_pod)]
    spec = {"priorityClassName": own_class} if own_class else {}
    found = gang(*jobset_with_pod(*labels, **spec), key="default/JobSet/train")
    assert found.priority == expected


def test_preemptibility_and_delay_are_the_nearest_owners_and_the_queue_the_tops():
    keys = ("kai.scheduler/preemptibility", "kai.scheduler/preemption-delay", KAI)
    above, on_job, on_pod = (
        dict(zip(keys, values, strict=True))
        for values in (("preemptible", "1s", "q"), ("non-preemptible", "2s", "r"), ("x", "3s", "s"))
    )
    found = gang(*jobset_with_pod(above, on_job, on_pod), key="default/JobSet/train")
    assert (found.preemptible, found.settings.preemption_delay, found.queue) == (False, 2, "q")
    found = gang(*jobset_with_pod(above, {}, on_pod), key="default/JobSet/train")
    assert (found.preemptible, found.settings.preemption_delay) == (True, 1)
    nothing = dict.fromkeys((KAI,), "")
    found = gang(*jobset_with_pod(nothing, on_job, on_pod), key="default/JobSet/train")
    assert found.queue == "s", "KAI asks the pod before an owner between them"


SYSTEM = "system-node-critical"
CRITICAL = priority_class(SYSTEM, 2_000_001_000)


def restricted(name, value, namespaces):
    """A class that only workloads of these namespaces may name by label."""
    found = priority_class(name, value)
    found["metadata"]["annotations"] = {"scheduling.kai.io/namespaces": namespaces}
    return found


@pytest.mark.parametrize("key", ["priorityClassName", "ray.io/priority-class-name"])
def test_a_label_names_no_class_that_its_namespace_may_not_use(key):
    def priority(named, *classes, **spec):
        labelled = with_pods(job("train", 1, {KAI: "q", key: named}), 1, **spec)
        return gang(*classes, *labelled).priority

    assert priority(SYSTEM, CRITICAL) == 50
    assert priority(SYSTEM, CRITICAL, priorityClassName=SYSTEM) == 2_000_001_000
    assert priority("high", priority_class("high", 10**9)) == 10**9
    assert priority("high", restricted("high", 99, "other, default")) == 99
    assert priority("high", restricted("high", 99, "other")) == 50
    assert priority("high", restricted("high", 99, "")) == 50
    assert priority("high", restricted("high", 99, ""), priorityClassName="high") == 99


def test_serving_is_inference_and_so_not_preemptible():
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web-1",
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "web",
                    "uid": "uid-Deployment-web",
                    "controller": True,
                }
            ],
        },
    }
    one = pod("p", owner=replicas, labels={KAI: "q"})
    [found] = Cluster(QUEUE, deployment, replicas, one).snapshot().gangs.values()
    assert (found.priority, found.preemptible) == (125, False)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 50),
        ({"priority": 0}, 50),
        ({"priority": 0, "priorityClassName": "low"}, 0),
        ({"priority": 7}, 7),
    ],
)
def test_a_native_group_without_a_class_has_kais_priority(spec, expected):
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"basic": {}}, **spec},
    }
    key = "default/PodGroup.scheduling.k8s.io/train"
    member = pod("p", labels={KAI: "q"}, schedulingGroup={"podGroupName": "train"})
    assert gang(group, member, key=key, rules="kai").priority == expected


def test_under_the_kai_rules_the_queue_that_a_group_of_volcano_names_counts():
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 1, "queue": "q"},
    }
    named = pod("p", annotations={"scheduling.k8s.io/group-name": "train"})
    key = "default/PodGroup.scheduling.volcano.sh/train"
    assert gang(group, named, key=key, rules="kai").queue == "q"


def test_topology_delay_and_grace_stand_on_the_owner():
    marks = {
        "kai.scheduler/topology": "dc",
        "kai.scheduler/topology-required-placement": "rack",
        "kai.scheduler/topology-preferred-placement": "block",
        "kai.scheduler/preemption-delay": "90s",
        "kai.scheduler/staleness-grace-period": "10m",
    }
    found = gang(*with_pods(job("train", 1, {KAI: "q"}, marks), 1))
    constraint = found.tree.topology
    assert (constraint.topology, constraint.required_level) == ("dc", "rack")
    assert constraint.preferred_level == "block"
    assert (found.settings.preemption_delay, found.settings.staleness_grace) == (90, 600)
    bad = gang(*with_pods(job("train", 1, {KAI: "q"}, {"kai.scheduler/preemption-delay": "x"}), 1))
    assert "kai.scheduler/preemption-delay: 'x' is not a duration" in bad.problem


@pytest.mark.parametrize(
    ("written", "preemptible", "semi_preemptible"),
    [
        ({"kai.scheduler/preemptibility": "non-preemptible"}, False, False),
        ({"kai.scheduler/preemptibility": "semi-preemptible"}, True, True),
        ({"kai.scheduler/preemptibility": "preemptible"}, True, False),
        ({"kai.scheduler/preemptibility": "unknown"}, True, False),
        (
            {
                "kai.scheduler/preemptibility": "non-preemptible",
                "scheduling.kai.io/preemptibility": "preemptible",
            },
            True,
            False,
        ),
    ],
)
@pytest.mark.parametrize("on_pod", [True, False])
def test_preemptibility_in_kais_words_holds_in_a_queue_of_ours(
    written, preemptible, semi_preemptible, on_pod
):
    owner = job("train", 1, None if on_pod else written, {NATIVE: "ours"})
    found = gang(*with_pods(owner, 1, labels=written if on_pod else {}))
    assert (found.preemptible, found.semi_preemptible) == (preemptible, semi_preemptible)


@pytest.mark.parametrize("queue", [KAI, NATIVE])
def test_a_value_that_does_not_exist_hides_none_below_it(queue):
    owner = job("train", 1, {queue: "q", "kai.scheduler/preemptibility": "Preemptible"})
    written = {"kai.scheduler/preemptibility": "semi-preemptible"}
    found = gang(*with_pods(owner, 1, labels=written))
    assert (found.preemptible, found.semi_preemptible) == (True, True)


def test_a_class_that_does_not_exist_hides_none_below_it():
    owner = job("train", 1, {KAI: "q", "priorityClassName": "gone"})
    below = {"priorityClassName": "high"}
    found = gang(priority_class("high", 99), *with_pods(owner, 1, labels=below))
    assert found.priority == 99


def test_counts_and_times_in_kais_words_hold_in_a_queue_of_ours():
    marks = {
        "kai.scheduler/batch-min-member": "2",
        "kai.scheduler/preemption-delay": "5m",
        "kai.scheduler/staleness-grace-period": "90s",
    }
    found = gang(*with_pods(job("train", 3, annotations={NATIVE: "ours", **marks}), 1))
    assert (found.tree.min_members, found.settings.staleness_grace) == (2, 90.0)
    assert found.preempts_from == found.waiting_since + 300.0
    marks["scheduling.kai.io/preemption-delay"] = "1m"
    found = gang(*with_pods(job("train", 3, annotations={NATIVE: "ours", **marks}), 1))
    assert found.preempts_from == found.waiting_since + 60.0
    marks["scheduling.kai.io/min-available"] = "3"
    found = gang(*with_pods(job("train", 3, annotations={NATIVE: "ours", **marks}), 1))
    assert found.tree.min_members == 3, "our own word goes before KAI's"
    wrong = {NATIVE: "ours", "kai.scheduler/staleness-grace-period": "soon"}
    assert "staleness-grace" in gang(*with_pods(job("train", 3, annotations=wrong), 1)).problem
