"""What KAI documents as examples, said in other words, behaves as KAI documents it.

The kinds, fields and counts are those of KAI-Scheduler's ``docs`` and ``examples`` in 2026: what
they need is written down here, no file is copied. Pods are as the controllers of each kind make
them. The queues and classes are those of ``--with-kai-api`` alone.
"""

from dataclasses import dataclass

import pytest

from kai_py.deploy.kai_api import kai_defaults, kai_definitions
from kai_py.dialects.kai.priority import CLASS_VALUES
from tests.corpus.test_grouping import written
from tests.dialects.feeding import NOW, Cluster, node, placed, pod

QUEUE = {"kai.scheduler/queue": "default-queue"}
KUBEFLOW = "training.kubeflow.org"
RACK = "topology.test/rack-domain"


def fresh(*objects):
    """A cluster with nothing but what ``--with-kai-api`` installs, and these objects."""
    defaults = [each for each in kai_defaults() if each["kind"] != "PriorityClass"]
    classes = [each for each in kai_defaults() if each["kind"] == "PriorityClass"]
    return Cluster(classes, defaults, *objects, rules="kai")


def test_classes_have_the_values_that_labels_stand_for():
    """KAI's label names a class that need not exist: its value is known without it."""
    classes = [each for each in kai_defaults() if each["kind"] == "PriorityClass"]
    assert {each["metadata"]["name"]: each["value"] for each in classes} == CLASS_VALUES


def owner(kind, spec, *, version="kubeflow.org/v1", name="example", labels=QUEUE, **annotations):
    meta = {"name": name, "labels": dict(labels), "annotations": annotations}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def pods(of, *names, gpus=0, **parts):
    return [pod(name, gpus, owner=of, **parts) for name in names]


def replicas(**counts):
    return {role: {"replicas": count} for role, count in counts.items()}


def kubeflow(kind, field, *, gpus=0, policy=None, more=None, version="kubeflow.org/v1", **counts):
    labels = QUEUE | (more or {})
    spec = {field: replicas(**counts)} | (policy or {})
    of = owner(kind, spec, version=version, labels=labels)
    made = []
    for role, count in counts.items():
        for i in range(count):
            marks = {f"{KUBEFLOW}/replica-type": role.lower(), f"{KUBEFLOW}/replica-index": str(i)}
            made += pods(of, f"{role.lower()}-{i}", gpus=gpus, labels=marks)
    return [of, *made]


def job(count, **annotations):
    of = owner("Job", {"parallelism": count, "completions": count}, version="batch/v1")
    of["metadata"]["annotations"] = annotations
    return [of, *pods(of, *(f"w-{i}" for i in range(count)), gpus=1)]


def ray(kind, workers, *, min_workers=None):
    group = {"groupName": "gpu-workers", "replicas": workers, "rayStartParams": {}}
    group |= {} if min_workers is None else {"minReplicas": min_workers, "maxReplicas": 5}
    cluster_spec = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [group]}
    spec = {"rayClusterSpec": cluster_spec} if kind == "RayJob" else cluster_spec
    top = owner(kind, spec, version="ray.io/v1")
    of, made = top, [top]
    if kind == "RayJob":
        of = owner("RayCluster", cluster_spec, version="ray.io/v1", name="made", labels={})
        of["metadata"]["ownerReferences"] = pod("x", owner=top)["metadata"]["ownerReferences"]
        made.append(of)
    head = pods(of, "head", labels={"ray.io/group": "headgroup", "ray.io/node-type": "head"})
    marks = {"ray.io/group": "gpu-workers", "ray.io/node-type": "worker"}
    return [*made, *head, *pods(of, *(f"r-{i}" for i in range(workers)), gpus=1, labels=marks)]


def job_set():
    jobs = [("coordinator", 1, 1), ("worker", 2, 2)]
    spec = {
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "replicatedJobs": [
            {"name": n, "replicas": r, "template": {"spec": {"parallelism": p, "completions": p}}}
            for n, r, p in jobs
        ],
    }
    of, made = owner("JobSet", spec, version="jobset.x-k8s.io/v1alpha2"), []
    for name, count, parallelism in jobs:
        for i in range(count):
            labels = {"jobset.sigs.k8s.io/replicatedjob-name": name}
            names = [f"{name}-{i}-{number}" for number in range(parallelism)]
            made += pods(of, *names, labels=labels)
    return [of, *made]


def spark():
    of = owner(
        "SparkApplication", {"executor": {"instances": 2}}, version="sparkoperator.k8s.io/v1beta2"
    )
    return [of, *pods(of, "driver", labels={"spark-role": "driver"})]


@dataclass(frozen=True)
class Gang:
    """``tree`` as `test_grouping.written`; ``least``: the fewest GPUs with which it starts."""

    objects: list
    key: str
    tree: object
    priority: int = 50
    preemptible: bool = True
    semi: bool = False


JOB_SET_TREE = {
    "coordinator": {"need": 1, "coordinator-0": 1},
    "worker": {"need": 2, "worker-0": 2, "worker-1": 2},
}
SPARK_TREE = {"need": 1, "driver": 1, "executor": 2}
"""The driver starts; executors, which it creates, are as many as there is capacity for."""
SEMI = {"kai.scheduler/preemptibility": "semi-preemptible"}
ELASTIC = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}
EXAMPLES = {
    "quickstart, pod": Gang([pod("p", 1, labels=QUEUE)], "Pod/p", 1),
    "quickstart, pod without a queue": Gang([pod("p", 0)], "Pod/p", 1),
    "priority, train": Gang([pod("p", labels=QUEUE, priorityClassName="train")], "Pod/p", 1),
    "priority, build": Gang(
        [pod("p", labels=QUEUE, priorityClassName="build", priority=100)], "Pod/p", 1, 100, False
    ),
    "batch, Job": Gang(job(2), "Job/example", 1),
    "batch, Job of at least two": Gang(
        job(6, **{"kai.scheduler/batch-min-member": "2"}), "Job/example", 2
    ),
    "batch, JAXJob": Gang(
        kubeflow("JAXJob", "jaxReplicaSpecs", Worker=4, gpus=1), "JAXJob/example", 4
    ),
    "batch, MPIJob": Gang(
        kubeflow("MPIJob", "mpiReplicaSpecs", version="kubeflow.org/v2beta1", Launcher=1, Worker=2),
        "MPIJob/example",
        {"launcher": 1, "worker": 2},
    ),
    "batch, PyTorchJob": Gang(
        kubeflow("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=2, gpus=1),
        "PyTorchJob/example",
        {"master": 1, "worker": 2},
    ),
    "batch, TFJob": Gang(
        kubeflow("TFJob", "tfReplicaSpecs", Chief=1, Worker=2),
        "TFJob/example",
        3,
    ),
    "batch, XGBoostJob": Gang(
        kubeflow("XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=2),
        "XGBoostJob/example",
        3,
    ),
    "batch, JobSet": Gang(job_set(), "JobSet/example", JOB_SET_TREE),
    "batch, SparkApplication": Gang(spark(), "SparkApplication/example", SPARK_TREE),
    "ray, RayCluster": Gang(
        ray("RayCluster", 3), "RayCluster/example", {"headgroup": 1, "gpu-workers": 3}
    ),
    "ray, RayJob": Gang(
        ray("RayJob", 2, min_workers=1),
        "RayJob/example",
        {"headgroup": 1, "gpu-workers": 1, "submitter": 0},
    ),
    "elastic, PyTorchJob": Gang(
        kubeflow("PyTorchJob", "pytorchReplicaSpecs", Worker=3, policy=ELASTIC, gpus=1),
        "PyTorchJob/example",
        {"worker": 1},
    ),
    "semi-preemptible, PyTorchJob": Gang(
        kubeflow("PyTorchJob", "pytorchReplicaSpecs", Worker=3, policy=ELASTIC, more=SEMI),
        "PyTorchJob/example",
        {"worker": 1},
        semi=True,
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_gang_is_kais(name):
    wanted = EXAMPLES[name]
    made = fresh(node("a", 8), wanted.objects)
    gang = made.gang(f"default/{wanted.key}")
    assert not gang.problem
    assert gang.queue == "default-queue"
    found = (written(gang.tree), gang.priority, gang.preemptible, gang.semi_preemptible)
    assert found == (wanted.tree, wanted.priority, wanted.preemptible, wanted.semi)


def pod_group(name, **spec):
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "labels": QUEUE},
        "spec": {"queue": "default-queue", **spec},
    }


def topology(name, *levels):
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": list(levels)},
    }


def kai_queue(name, **gpu):
    resources = {"gpu": gpu} | {key: {"quota": -1, "limit": -1} for key in ("cpu", "memory")}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources},
    }


def in_group(group, subgroup, *names, gpus=1, **parts):
    """Pods of Jobs that opt out of the pod grouper and name a group and its part."""
    labels = QUEUE | ({"kai.scheduler/subgroup-name": subgroup} if subgroup else {})
    return [
        pod(name, gpus, labels=labels, annotations={"pod-group-name": group}, **parts)
        for name in names
    ]


def bounded(topology_name, level):
    return {"topology": topology_name, "requiredTopologyLevel": level}


def spread_nodes(count, gpus, *keys, size=2):
    """Nodes in domains of two, of every level."""
    return [
        node(f"n{i}", gpus, {key: f"{key[-4:]}-{i // size}" for key in keys}) | {"spec": {}}
        for i in range(count)
    ]


EXTERNAL = pod_group("g", minMember=2, subGroups=[{"name": "workers", "minMember": 2}])
PIPELINE = pod_group(
    "g",
    minSubGroup=3,
    subGroups=[
        {"name": "ray-head", "minMember": 1},
        {"name": "ray-workers", "minMember": 2},
        {"name": "evaluation", "minMember": 2},
    ],
)
LEVELS = {
    "racks": topology("racks", {"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}),
    "aliased": topology("aliased", {"nodeLabel": RACK, "alias": "rack"}),
}
REPLICAS = pod_group(
    "g",
    preemptibility="semi-preemptible",
    minSubGroup=2,
    subGroups=[{"name": f"replica-{i}", "minMember": 2} for i in range(4)],
)


def test_external_groups_start_whole():
    two = in_group("g", "workers", "w-0", "w-1")
    assert placed(fresh(node("a", 1), EXTERNAL, two).plan()) == {}
    assert len(placed(fresh(node("a", 2), EXTERNAL, two).plan())) == 2
    parts = {"ray-head": 1, "ray-workers": 2, "evaluation": 2}
    made = [in_group("g", part, *(f"{part}-{i}" for i in range(n))) for part, n in parts.items()]
    assert placed(fresh(node("a", 4), PIPELINE, *made).plan()) == {}
    assert len(placed(fresh(node("a", 5), PIPELINE, *made).plan())) == 5


def test_groups_with_topologies_stay_in_their_domains():
    subgroups = [
        {"name": "a", "minMember": 3, "topologyConstraint": bounded("racks", RACK)},
        {"name": "b", "minMember": 3, "topologyConstraint": bounded("aliased", "rack")},
    ]
    group = pod_group("g", minSubGroup=2, subGroups=subgroups)
    made = [in_group("g", part, *(f"{part}-{i}" for i in range(3)), gpus=4) for part in "ab"]
    nodes = spread_nodes(6, 8, RACK)
    where = placed(fresh(nodes, LEVELS.values(), group, *made).plan())
    assert len(where) == 6
    for part in "ab":
        assert len({int(n[1:]) // 2 for name, n in where.items() if name[0] == part}) == 1
    # Racks that are too small for a part keep all of it waiting.
    small = fresh(spread_nodes(6, 4, RACK), LEVELS.values(), group, *made)
    assert placed(small.plan()) == {}


@pytest.mark.parametrize("required", [RACK, "rack"])
def test_an_alias_is_as_good_as_its_label(required):
    group = pod_group("g", minMember=3, topologyConstraint=bounded("aliased", required))
    made = in_group("g", "", "w-0", "w-1", "w-2", gpus=4)
    where = placed(fresh(spread_nodes(4, 8, RACK), LEVELS.values(), group, made).plan())
    assert len({int(each[1:]) // 2 for each in where.values()}) == 1 < len(where)


def test_grace_periods_are_those_of_the_group_and_of_the_annotation():
    group = pod_group("g", minMember=2, stalenessGracePeriod="30s")
    marks = {"kai.scheduler/staleness-grace-period": "5s"}
    alone = pod("alone", 0, labels=QUEUE, annotations=marks)
    made = fresh(node("a"), group, in_group("g", "", "w-0", "w-1", gpus=0), alone)
    assert made.gang("default/PodGroup.scheduling.run.ai/g").settings.staleness_grace == 30
    assert made.gang("default/Pod/alone").settings.staleness_grace == 5


def test_a_preemptor_with_a_delay_waits_before_it_evicts():
    queue = kai_queue("delay", quota=1, limit=1, overQuotaWeight=1)
    victim = pod_group("g", minMember=1, queue="delay", priorityClassName="train")
    running = in_group("g", "", "victim", nodeName="a", priorityClassName="train", priority=50)
    marks = {"kai.scheduler/preemption-delay": "2m"}
    preemptor = pod(
        "preemptor",
        labels={"kai.scheduler/queue": "delay"},
        annotations=marks,
        priorityClassName="build-preemptible",
        priority=75,
    )
    preemptor["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"
    made = fresh(node("a", 1), queue, victim, running, preemptor)
    assert not made.plan(NOW + 100).evictions
    assert [each.pod.name for each in made.plan(NOW + 121).evictions] == ["victim"]


def test_shared_gpus_are_shared():
    half = {"gpu-fraction": "0.5"}
    named = half | {"gpu-fraction-container-name": "main"}
    made = [
        pod("half", 0, labels=QUEUE, annotations=half),
        pod("named", 0, labels=QUEUE, annotations=named),
        pod("third", 0, labels=QUEUE, annotations=half),
    ]
    assert len(placed(fresh(node("a", 1), made).plan())) == 2
    memory = pod("memory", 0, labels=QUEUE, annotations={"gpu-memory": "2000"})
    labelled = node("a", 1, {"nvidia.com/gpu.memory": "16000", "nvidia.com/gpu.count": "1"})
    assert len(placed(fresh(labelled, memory, made[0]).plan())) == 2


def test_semi_preemptible_replicas_start_with_two():
    made = [in_group("g", f"replica-{i}", f"r{i}-0", f"r{i}-1") for i in range(4)]
    queue = kai_queue("default-queue", quota=4, limit=-1, overQuotaWeight=1)
    assert placed(fresh(queue, node("a", 3), REPLICAS, *made).plan()) == {}
    assert len(placed(fresh(queue, node("a", 4), REPLICAS, *made).plan())) == 4
    assert len(placed(fresh(queue, node("a", 8), REPLICAS, *made).plan())) == 8
    # Above its quota the minimum may not go, as it cannot be evicted.
    poor = kai_queue("default-queue", quota=3, limit=-1, overQuotaWeight=1)
    assert placed(fresh(poor, node("a", 8), REPLICAS, *made).plan()) == {}


def test_background_pods_give_way_to_users():
    """They are no kind of their own here: their queue has no share, so others reclaim from it."""
    queue = kai_queue("maintenance", quota=0, limit=-1, overQuotaWeight=0)
    of = owner("ReplicaSet", {}, version="apps/v1", name="healthcheck", labels={})
    marks = {"kai.scheduler/background": "true", "kai.scheduler/queue": "maintenance"}
    health = {"labels": marks, "priorityClassName": "train", "priority": 50}
    waiting = fresh(node("a", 8), queue, of, pods(of, "h-0", "h-1", gpus=1, **health))
    assert len(placed(waiting.plan())) == 2
    running = pods(of, "h-0", "h-1", gpus=1, nodeName="a", **health)
    made = fresh(node("a", 8), queue, of, running, pod("user", 8, labels=QUEUE))
    assert len(made.plan().evictions) == 2
    made = fresh(node("a", 8), queue, of, running, pod("user", 6, labels=QUEUE))
    assert placed(made.plan()) == {"user": "a"}


def test_queues_share_by_past_use():
    """The two queues that take turns; with `fairShare.halfLife` in place of Prometheus."""
    share = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    of = [pod(f"{team}-job", 8, labels={"kai.scheduler/queue": team}) for team in "ab"]
    made = fresh(node("a", 8), [kai_queue(team, **share) for team in "ab"], of)
    assert len(placed(made.plan())) == 1


KINDS = {each["spec"]["names"]["kind"]: each for each in kai_definitions()}


def unknown_fields(value, schema, path=""):
    """Fields of a document that its definition would prune."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, list):
        for each in value:
            yield from unknown_fields(each, schema["items"], f"{path}[]")
    for name, below in value.items() if isinstance(value, dict) else ():
        known = schema.get("properties", {}).get(name)
        if known is None:
            yield f"{path}.{name}"
        else:
            yield from unknown_fields(below, known, f"{path}.{name}")


@pytest.mark.parametrize(
    "document",
    [EXTERNAL, PIPELINE, REPLICAS, *LEVELS.values(), kai_queue("q", quota=1, limit=1)],
    ids=lambda each: each["kind"],
)
def test_every_field_is_defined(document):
    [version] = KINDS[document["kind"]]["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert not list(unknown_fields(document["spec"], schema))
