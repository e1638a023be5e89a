"""Topology annotations, wherever they stand: honoured by the leaf they are for, or reported."""

import itertools

import pytest

from kai_py.api.records.unstructured import unstructured
from kai_py.grouping.owner_chain import GroupKind
from kai_py.grouping.pod_topology import topology_constraints
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from tests.corpus.test_grouping import grouped
from tests.dialects.feeding import Cluster, documents, node, placed, pod

TABLE = RuleTable(shipped_rules())
QUEUE = "scheduling.kai.io/queue-name"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"
FITTING = "scheduling.kai.io/topology-fitting-placement"
SIZE = "kai.scheduler/segment-size"
SEGMENT = "kai.scheduler/segment-topology-required-placement"
LEVELS = {
    "required": {REQUIRED: "rack"},
    "preferred": {PREFERRED: "rack"},
    "fitting": {FITTING: "rack"},
    "segments": {SIZE: "2", SEGMENT: "rack"},
    "our segments": {
        "scheduling.kai.io/segment-size": "2",
        "scheduling.kai.io/segment-topology-required-placement": "rack",
    },
}
KUBEFLOW = "training.kubeflow.org"
LWS = "leaderworkerset.sigs.k8s.io"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"


def kubeflow(kind, field, role, version="kubeflow.org/v1"):
    """A job of a main replica and four workers, whose template is annotated."""

    def spec(marks):
        template = {"metadata": {"annotations": marks}}
        main = "Launcher" if kind == "MPIJob" else "Master"
        return {field: {main: {"replicas": 1}, role: {"replicas": 4, "template": template}}}

    main = {f"{KUBEFLOW}/replica-type": "launcher" if kind == "MPIJob" else "master"}
    labels = [
        {f"{KUBEFLOW}/replica-type": role.lower(), f"{KUBEFLOW}/replica-index": str(i)}
        for i in range(4)
    ]
    return version, kind, spec, labels, main


def ray(spec):
    labels = [{"ray.io/group": "a"}] * 4
    return "ray.io/v1", "RayCluster", spec, labels, {"ray.io/group": "headgroup"}


def template(marks):
    return {"metadata": {"annotations": marks}}


FRAMEWORKS = {
    "PyTorchJob": kubeflow("PyTorchJob", "pytorchReplicaSpecs", "Worker"),
    "MPIJob": kubeflow("MPIJob", "mpiReplicaSpecs", "Worker", "kubeflow.org/v2beta1"),
    "TFJob": kubeflow("TFJob", "tfReplicaSpecs", "Worker"),
    "XGBoostJob": kubeflow("XGBoostJob", "xgbReplicaSpecs", "Worker"),
    "PaddleJob": kubeflow("PaddleJob", "paddleReplicaSpecs", "Worker"),
    "RayCluster": ray(
        lambda marks: {
            "workerGroupSpecs": [{"groupName": "a", "replicas": 4, "template": template(marks)}]
        }
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        lambda marks: {"leaderWorkerTemplate": {"size": 5, "workerTemplate": template(marks)}},
        [{f"{LWS}/group-index": "0", f"{LWS}/worker-index": str(i + 1)} for i in range(4)],
        {f"{LWS}/group-index": "0", f"{LWS}/worker-index": "0"},
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        lambda marks: {
            "replicatedJobs": [
                {"name": "other", "template": {"spec": {"parallelism": 1}}},
                {"name": "w", "template": {**template(marks), "spec": {"parallelism": 4}}},
            ]
        },
        [{"jobset.sigs.k8s.io/replicatedjob-name": "w", JOB_INDEX: str(i)} for i in range(4)],
        {"jobset.sigs.k8s.io/replicatedjob-name": "other", JOB_INDEX: "0"},
    ),
    "SparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        lambda marks: {"executor": {"instances": 4, "annotations": marks}},
        [{"spark-role": "executor"}] * 4,
        {"spark-role": "driver"},
    ),
    "VolcanoJob": (
        "batch.volcano.sh/v1alpha1",
        "Job",
        lambda marks: {
            "tasks": [
                {"name": "main", "replicas": 1},
                {"name": "work", "replicas": 4, "template": template(marks)},
            ]
        },
        [{"volcano.sh/task-spec": "work", "volcano.sh/task-index": str(i)} for i in range(4)],
        {"volcano.sh/task-spec": "main", "volcano.sh/task-index": "0"},
    ),
    "Job": (
        "batch/v1",
        "Job",
        lambda marks: {"parallelism": 4},
        [{JOB_INDEX: str(i)} for i in range(4)],
        None,
    ),
    "StatefulSet": ("apps/v1", "StatefulSet", lambda marks: {}, [{}] * 4, None),
    "Simulation": ("example.com/v1", "Simulation", lambda marks: {}, [{}] * 4, None),
}
PLACES = ("workload", "template", "middle", "pod")
DOMAINS = {
    "required": "required_level",
    "preferred": "preferred_level",
    "fitting": "fitting_level",
    "segments": "required_level",
    "our segments": "required_level",
}


def case_of(framework, place, marks):
    """The framework's workload with four pods, annotated at a place, below a Job where needed."""
    version, kind, spec, labels, main = FRAMEWORKS[framework]
    workload = {
        "apiVersion": version,
        "kind": kind,
        "name": "train",
        "annotations": {QUEUE: "team", **(marks if place == "workload" else {})},
        "spec": spec(marks if place == "template" else {}),
    }
    between = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "between",
        "owner": f"{kind}/train",
        "annotations": marks if place == "middle" else {},
    }
    owner = "ReplicaSet/between" if place == "middle" else f"{kind}/train"
    own = marks if place in ("template", "pod") else {}
    pods = [
        {"names": [f"p-{i}"], "owner": owner, "labels": each, "annotations": own}
        for i, each in enumerate(labels)
    ]
    if main is not None:
        pods.append({"names": ["main"], "owner": f"{kind}/train", "labels": main})
    return {"objects": [workload, between], "pods": pods}


@pytest.mark.parametrize(
    ("framework", "place", "asked"), list(itertools.product(FRAMEWORKS, PLACES, LEVELS))
)
def test_an_annotation_is_honoured_or_reported_and_never_dropped(framework, place, asked):
    marks = LEVELS[asked]
    snapshot = grouped(case_of(framework, place, marks))
    for gang in snapshot.gangs.values():
        told = {each.pod.name: each.markers for each in snapshot.ignored_markers}
        for member in annotated(gang):
            path = effective_levels(gang, member, DOMAINS[asked])
            honoured = "rack" in path
            reported = any("rack" in marker for marker in told.get(member.pod.name, ()))
            assert honoured or gang.problem or member.waiting_for or reported


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("place", ["template", "pod"])
def test_annotations_of_templates_and_pods_leave_the_rest_of_a_gang_alone(framework, place):
    snapshot = grouped(case_of(framework, place, LEVELS["required"]))
    for gang in snapshot.gangs.values():
        if len(gang.tree.leaves()) > 1:
            assert gang.tree.topology is None


@pytest.mark.parametrize("framework", sorted(set(FRAMEWORKS) - {"StatefulSet", "Simulation"}))
def test_a_template_constrains_its_leaf(framework):
    snapshot = grouped(case_of(framework, "template", LEVELS["required"]))
    gang = next(iter(snapshot.gangs.values()))
    assert not gang.problem
    assert not snapshot.ignored_markers
    levels = [effective_levels(gang, member, "required_level") for member in annotated(gang)]
    assert levels == [["rack"]] * 4
    for other in (member for member in gang.members if member.pod.name == "main"):
        assert not effective_levels(gang, other, "required_level")


@pytest.mark.parametrize(
    ("place", "location"),
    [
        ("workload", "metadata.annotations"),
        ("template", "spec.pytorchReplicaSpecs.Worker.template.metadata.annotations"),
    ],
)
def test_a_size_of_segments_that_is_none_is_told_where_it_is(place, location):
    case = case_of("PyTorchJob", place, {SIZE: "many"})
    [gang] = grouped(case).gangs.values()
    problem = f"{location}: {SIZE} must be a whole number of at least 0, is 'many'"
    assert gang.problem == f"PyTorchJob default/train: {problem}"


def annotated(gang):
    """The pods of the template in question."""
    return [member for member in gang.members if member.pod.name != "main"]


def effective_levels(gang, member, field):
    spec = type("Spec", (), {"tree": gang.tree, "subgroup": member.subgroup})
    return [getattr(each, field) for each in topology_constraints(spec)]


TEAM = documents(
    "{apiVersion: scheduling.kai.io/v1alpha1, kind: Queue, metadata: {name: team},"
    " spec: {deservedGPUs: 64}}"
)


def racks(*racks_of_two):
    return [
        node(f"{rack}{number}", 8, {"rack": rack}) for rack in racks_of_two for number in range(2)
    ]


def placement(owner, pods, *, full=()):
    """Rack by pod, on racks of two nodes of 8 GPUs; pods of 8 GPUs each."""
    queue = {QUEUE: "team"}
    group = owner["apiVersion"].rpartition("/")[0]
    kind = GroupKind(group, owner["kind"])
    meta = {"namespace": "default", "name": "w", "uid": "uid-w"}
    owner = {**owner, "metadata": {**meta, "annotations": queue | owner.get("annotations", {})}}
    cluster = Cluster(TEAM, racks("a", "b", "c"))
    for name in full:
        cluster.add(pod(f"on-{name}", gpus=8, nodeName=name, annotations=queue))
    collection = f"{owner['kind'].lower()}s.{group}"
    cluster.planner.builder.apply(collection, None, unstructured(owner, TABLE.paths(kind)))
    cluster.add([pod(name, gpus=8, owner=owner, labels=each) for name, each in pods.items()])
    return {name: at[0] for name, at in placed(cluster.plan()).items()}


def lws_pods(size):
    return {
        f"l-{i}": {f"{LWS}/group-index": "0", f"{LWS}/worker-index": str(i)} for i in range(size)
    }


@pytest.mark.parametrize(
    "sizes",
    [
        {"policy": {"subGroupPolicy": {"subGroupSize": 2}}},
        {"policy": {"subGroupPolicy": {"subGroupSize": 2}}, "marks": {SIZE: "3"}},
        {"marks": {SIZE: "2"}},
        {"above": {SIZE: "2"}},
    ],
)
def test_segments_of_a_leader_worker_set_keep_to_their_racks(sizes):
    workers = template({SEGMENT: "rack", **sizes.get("marks", {})})
    spec = {"size": 4, "workerTemplate": workers, **sizes.get("policy", {})}
    owner = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "annotations": sizes.get("above", {}),
        "spec": {"leaderWorkerTemplate": spec},
    }
    at = placement(owner, lws_pods(4), full=["a1"])
    assert at["l-0"] == at["l-1"] != at["l-2"] == at["l-3"]
    assert "a" not in at.values()


def test_each_worker_group_of_a_ray_cluster_keeps_to_its_rack():
    groups = [
        {"groupName": name, "replicas": 2, "template": template({REQUIRED: "rack"})}
        for name in ("x", "y")
    ]
    head = {"template": template({REQUIRED: "rack"})}
    spec = {"headGroupSpec": head, "workerGroupSpecs": groups}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec}
    pods = {"head": {"ray.io/group": "headgroup"}}
    pods |= {f"{name}{i}": {"ray.io/group": name} for name in ("x", "y") for i in range(2)}
    at = placement(owner, pods, full=["a1"])
    assert at["head"] == "a"
    assert {at["x0"], at["y0"]} == {"b", "c"}
    assert (at["x0"], at["y0"]) == (at["x1"], at["y1"])


@pytest.mark.parametrize("where", ["job", "pod"])
def test_each_job_of_a_replicated_job_keeps_to_its_rack(where):
    of_job = template({REQUIRED: "rack"}) if where == "job" else {}
    of_pod = {"template": template({REQUIRED: "rack"})} if where == "pod" else {}
    job = {**of_job, "spec": {"parallelism": 2, "completions": 2, **of_pod}}
    spec = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": job}]}
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    label = "jobset.sigs.k8s.io"
    pods = {
        f"w-{job}-{i}": {f"{label}/replicatedjob-name": "w", f"{label}/job-index": str(job)}
        for job in range(2)
        for i in range(2)
    }
    at = placement(owner, pods, full=["a1"])
    assert at["w-0-0"] == at["w-0-1"] != at["w-1-0"] == at["w-1-1"]


def test_two_templates_that_require_different_levels_of_the_same_pods_are_refused():
    job = {"metadata": template({REQUIRED: "zone"})["metadata"]}
    job |= {"spec": {"parallelism": 2, "template": template({REQUIRED: "rack"})}}
    spec = {"replicatedJobs": [{"name": "w", "template": job}]}
    workload = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "train",
        "annotations": {QUEUE: "team"},
        "spec": spec,
    }
    snapshot = grouped({"objects": [workload], "pods": [{"names": ["p"], "owner": "JobSet/train"}]})
    problem = snapshot.gangs["default/JobSet/train"].problem
    assert problem == (
        "JobSet default/train: spec.replicatedJobs[0].template.spec.template.metadata.annotations: "
        f"{REQUIRED} is both rack and zone"
    )


def test_segments_without_an_index_are_refused_with_what_would_help():
    snapshot = grouped(case_of("RayCluster", "template", LEVELS["segments"]))
    problem = snapshot.gangs["default/RayCluster/train"].problem
    assert f"{SIZE} cannot be applied; pods need an index" in problem
    marks = LEVELS["segments"] | {"kai.scheduler/pod-index-label": "ray.io/group"}
    indexed = grouped(case_of("RayCluster", "template", marks))
    assert not indexed.gangs["default/RayCluster/train"].problem
