"""Workloads of frameworks in files: no pods of theirs exist, and what is said of that."""

import pytest
import yaml

from kai_py.config import Configuration
from kai_py.simulate.files.object_files import ObjectsInFiles
from kai_py.simulate.offline_plan import plan_objects
from tests.support.linting import lint

PODS = {"containers": [{"name": "main", "image": "i"}]}
SUSPENDED = "it is suspended, so that it has no pods"
MISSING = "its controller creates its pods and is not run here: add the pods to these objects"


def workload(api_version, kind, spec, **meta):
    meta = {"name": "train", "namespace": "default", **meta}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def replicas(**counts):
    return {role: {"replicas": n, "template": {"spec": PODS}} for role, n in counts.items()}


def problems(*documents):
    found = plan_objects(ObjectsInFiles(list(documents)), Configuration())
    return {each.object: each.problem for each in found.rejected}


GANGS = [
    (
        workload(
            "kubeflow.org/v1",
            "PyTorchJob",
            {"pytorchReplicaSpecs": replicas(Master=1, Worker=3)},
        ),
        "its gang starts with 4 pods (master 1, worker 3)",
    ),
    (
        workload(
            "kubeflow.org/v2beta1",
            "MPIJob",
            {
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiReplicaSpecs": replicas(Launcher=1, Worker=2),
            },
        ),
        "its gang starts with 2 pods (worker 2) once another fits, which is created later",
    ),
    (
        workload(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {
                "leaderWorkerTemplate": {
                    "size": 5,
                    "subGroupPolicy": {
                        "subGroupSize": 2,
                        "subGroupPolicyType": "LeaderExcluded",
                    },
                }
            },
        ),
        "its gang starts with 5 pods (leader 1, segment-0 2, segment-1 2)",
    ),
    (
        workload("ray.io/v1", "RayJob", {"clusterSelector": {"ray.io/cluster": "c"}}),
        "its gang starts with any of its pods",
    ),
    (workload("acme.example", "Solver", {"template": {"spec": PODS}}), "starts with 1 pod"),
]


@pytest.mark.parametrize(("document", "gang"), GANGS, ids=lambda each: each and str(each)[:40])
def test_the_gang_of_its_pods_to_come_is_told(document, gang):
    (problem,) = problems(document).values()
    assert problem.startswith(MISSING)
    assert gang in problem


def with_scheduler(name, **others):
    template = {"spec": {**PODS, "schedulerName": name} if name else PODS}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}, **others}}
    return workload("kubeflow.org/v1", "PyTorchJob", spec)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (with_scheduler(""), True),
        (with_scheduler("volcano"), True),
        (with_scheduler("kai-scheduler"), False),
        (with_scheduler("kai-scheduler", **replicas(Master=1)), True),
        (
            workload(
                "batch.volcano.sh/v1alpha1",
                "Job",
                {"schedulerName": "kai-scheduler", "tasks": [{"template": {"spec": PODS}}]},
            ),
            False,
        ),
        (
            workload(
                "sparkoperator.k8s.io/v1beta2",
                "SparkApplication",
                {"batchScheduler": "kai-scheduler", "executor": {"template": {"spec": PODS}}},
            ),
            False,
        ),
    ],
)
def test_that_templates_name_no_scheduler_or_another_is_told(document, told):
    (problem,) = problems(document).values()
    assert ("only pods with schedulerName kai-scheduler count" in problem) == told


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"pod-group-name": "group"}},
        {"labels": {"scheduling.x-k8s.io/pod-group": "group"}},
        {
            "annotations": {
                "scheduling.kai.io/pod-group": "group",
                "scheduling.kai.io/min-available": "5",
            }
        },
    ],
)
def test_pods_that_name_another_group_are_no_gang_of_the_workload(metadata):
    train = with_scheduler("kai-scheduler")
    train["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = metadata
    assert problems(train) == {"PyTorchJob default/train": MISSING}


def test_the_template_may_name_the_queue():
    train = with_scheduler("kai-scheduler")
    labels = {"labels": {"scheduling.kai.io/queue-name": "taem"}, "annotations": None}
    train["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = labels
    (problem,) = problems(train, *QUEUES).values()
    assert 'but queue "taem" does not exist' in problem


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
        ("serving.kserve.io/v1beta1", "InferenceService"),
        ("ray.io/v1", "RayService"),
        ("grove.io/v1alpha1", "PodCliqueSet"),
        ("batch/v1", "CronJob"),
        ("apps/v1", "DaemonSet"),
    ],
)
def test_pods_of_kinds_that_others_stand_below_are_missing_as_well(api_version, kind):
    assert problems(workload(api_version, kind, {})) == {f"{kind} default/train": MISSING}


FRAMEWORK_PROBLEMS = [
    (
        workload("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {}}),
        "spec.pytorchReplicaSpecs has neither a Master nor a Worker",
    ),
    (
        workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": []}),
        "spec.replicatedJobs is empty",
    ),
    (
        workload(
            "batch.volcano.sh/v1alpha1",
            "Job",
            {"minAvailable": 5, "tasks": [{"name": "w", "replicas": 2}]},
        ),
        "minMember 5 can never be reached: only 2 pods will exist",
    ),
    (
        workload(
            "batch/v1",
            "Job",
            {"parallelism": 2, "template": {"spec": PODS | {"restartPolicy": "Never"}}},
            annotations={"scheduling.kai.io/min-available": "3"},
        ),
        "minMember 3 can never be reached: at most 2 pods exist at once",
    ),
    (
        workload(
            "ray.io/v1",
            "RayCluster",
            {"workerGroupSpecs": [{"groupName": "w"}]},
            annotations={"scheduling.kai.io/preemptibility": "sometimes"},
        ),
        "scheduling.kai.io/preemptibility must be one of",
    ),
]


@pytest.mark.parametrize(("document", "sentence"), FRAMEWORK_PROBLEMS)
def test_lint_says_what_keeps_the_gang_from_starting(document, sentence):
    found = [each.message for each in lint(yaml.safe_dump(document)).errors]
    assert any(sentence in each for each in found), found


def test_lint_finds_misspelt_annotations_of_frameworks():
    misspelt = {"scheduling.kai.io/preemptibilty": "preemptible"}
    spec = {"pytorchReplicaSpecs": replicas(Worker=3)}
    spec["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": {**misspelt}}
    train = workload("kubeflow.org/v1", "PyTorchJob", spec, annotations=misspelt)
    found = [each.message for each in lint(yaml.safe_dump(train)).errors]
    assert found == ["is ignored: write scheduling.kai.io/preemptibility"] * 2


def test_lint_names_a_minimum_that_counts_for_nothing():
    minimum = {"scheduling.kai.io/min-available": "2"}
    spec = {"pytorchReplicaSpecs": replicas(Worker=3)}
    train = workload("kubeflow.org/v1", "PyTorchJob", spec, annotations=minimum)
    (hint,) = lint(yaml.safe_dump(train)).findings
    assert hint.message == "has no effect where it stands: scheduling.kai.io/min-available of train"


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            workload(
                "serving.kserve.io/v1beta1",
                "InferenceService",
                {"predictor": {"model": {"modelFormat": {"name": "sklearn"}}}},
            ),
            True,
        ),
        (
            workload(
                "serving.kserve.io/v1beta1",
                "InferenceService",
                {"predictor": {"schedulerName": "kai-scheduler", "model": {}}},
            ),
            False,
        ),
        (
            workload(
                "batch.volcano.sh/v1alpha1",
                "Job",
                {"schedulerName": "kai-scheduler", "tasks": [{"template": {"spec": PODS}}]},
            ),
            False,
        ),
        (
            workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": {"spec": PODS}}]}),
            True,
        ),
    ],
)
def test_lint_finds_a_queue_without_its_scheduler_where_the_kind_names_one(document, told):
    document["metadata"]["annotations"] = {"scheduling.kai.io/queue-name": "team"}
    messages = [each.message for each in lint(yaml.safe_dump(document)).findings]
    assert any("without schedulerName" in each for each in messages) == told, messages


QUEUES = [
    {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
    for name, spec in {
        "team": {},
        "parent": {},
        "child": {"parent": "parent"},
        "ours": {"namespaces": {"names": ["other"]}},
    }.items()
]


@pytest.mark.parametrize(
    ("queue", "refused"),
    [
        ("team", ""),
        ("", ""),
        ("taem", ', but queue "taem" does not exist; create it'),
        ("parent", ', but queue "parent" has children; only queues'),
        ("ours", ', but queue "ours" does not accept workloads from namespace "default"'),
    ],
)
def test_a_queue_that_would_not_take_the_workload_is_told(queue, refused):
    labels = {"scheduling.kai.io/queue-name": queue} if queue else {}
    train = with_scheduler("kai-scheduler")
    train["metadata"]["labels"] = labels
    (problem,) = problems(train, *QUEUES).values()
    described = f"{MISSING}; its gang starts with 2 pods (worker 2)"
    assert problem.startswith(described + refused)
    assert refused or problem == described


def test_what_has_or_needs_no_pods_is_not_named():
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "train", "controller": True}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "ownerReferences": [owner]}}
    cluster = workload("ray.io/v1", "RayCluster", {})
    idle = workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"replicas": 0})
    assert problems(cluster, pod | {"spec": PODS}, idle) == {}
    job = workload("batch/v1", "Job", {"suspend": True, "template": {"spec": PODS}})
    job["spec"]["template"]["spec"] = PODS | {"restartPolicy": "Never"}
    assert problems(job) == {"Job default/train": SUSPENDED}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas(Worker=3)}
    train = workload("kubeflow.org/v1", "PyTorchJob", spec)
    assert problems(train) == {"PyTorchJob default/train": SUSPENDED}


def test_jobs_that_another_controller_manages_are_named():
    spec = {"managedBy": "kueue.x-k8s.io/multikueue", "template": {"spec": PODS}}
    job = workload("batch/v1", "Job", spec)
    job["spec"]["template"]["spec"] = PODS | {"restartPolicy": "Never"}
    managed = "spec.managedBy is kueue.x-k8s.io/multikueue, which is not run here: add the pods"
    assert problems(job) == {"Job default/train": managed}
