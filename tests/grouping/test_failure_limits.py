"""How many evictions a Job, and what wraps it, survives."""

import msgspec
import pytest

from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod
from kai_py.api.records.job import Job
from kai_py.api.records.unstructured import Unstructured, unstructured
from kai_py.grouping.admitted import as_admitted_limits, limits_of
from kai_py.grouping.failure_limits import failure_limits
from kai_py.grouping.owner_chain import GroupKind, OwnerChain, OwnerLink
from kai_py.grouping.rule_table import RuleTable, shipped_rules

TABLE = RuleTable(shipped_rules())
DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget"}]}
IGNORE = {"action": "Ignore", **DISRUPTED}


def on_exit(operator, *values, action="FailJob"):
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}


def job(failed=0, rules=None, uncounted=None, **spec):
    if rules is not None:
        spec["podFailurePolicy"] = {"rules": rules}
    content = {
        "metadata": {"name": "train", "uid": "j"},
        "spec": spec,
        "status": {"failed": failed, "uncountedTerminatedPods": uncounted or {}},
    }
    return msgspec.json.decode(msgspec.json.encode(content), type=Job)


def wrapper(api_version, kind, spec=None, status=None):
    content = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "top", "namespace": "ns", "uid": "top"},
        "spec": spec or {},
        "status": status or {},
    }
    paths = TABLE.paths(GroupKind(api_version.split("/")[0], kind))
    return unstructured(content, paths)


def limits(*owners, labels=None, annotations=None):
    """``owners``: the nearest first."""
    links = []
    for found in owners:
        is_job = isinstance(found, Job)
        version, kind = ("batch/v1", "Job") if is_job else (found.api_version, found.kind)
        reference = OwnerReference(
            api_version=version, kind=kind, name=found.metadata.name, uid=found.metadata.uid
        )
        links.append(OwnerLink(reference, found, GroupKind(version.split("/")[0], kind)))
    meta = ObjectMeta(name="p", labels=labels or {}, annotations=annotations or {})
    return failure_limits(OwnerChain(Pod(metadata=meta), (meta,), tuple(links)))


def remaining(*owners, **pod):
    """What is left, None if every eviction is survived."""
    return min((limit.remaining for limit in limits(*owners, **pod)), default=None)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (job(), 6),
        (job(backoffLimit=0), 0),
        (job(failed=2), 4),
        (job(failed=9, backoffLimit=3), 0),
        (job(failed=1, uncounted={}), 5),
        (job(failed=1, uncounted={"failed": ["a", "b"], "succeeded": ["c"]}), 3),
        (job(backoffLimit=2**31 - 1), None),
        (job(backoffLimit=3, podReplacementPolicy="Failed"), 3),
        (job(rules=[IGNORE], backoffLimit=0), None),
        (job(rules=[{**IGNORE, "action": "Count"}, IGNORE], backoffLimit=1), 1),
        (job(rules=[{**IGNORE, "action": "FailJob"}]), 0),
        (job(rules=[on_exit("In", 42), IGNORE], backoffLimit=0), None),
        (job(rules=[on_exit("In", 42, 143), IGNORE]), 0),
        (job(rules=[on_exit("NotIn", 1, 2), IGNORE]), 0),
        (job(rules=[on_exit("NotIn", 137, 143), IGNORE]), None),
        (
            job(
                rules=[
                    {"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue"}]},
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}],
                    },
                ],
                backoffLimit=4,
            ),
            4,
        ),
    ],
)
def test_a_job_survives_what_its_backoff_limit_leaves(given, left):
    assert remaining(given) == left


@pytest.mark.parametrize(
    ("given", "failures", "left"),
    [
        (job(backoffLimitPerIndex=2), "", [2]),
        (job(backoffLimitPerIndex=2), "2", [0]),
        (job(backoffLimitPerIndex=2, backoffLimit=9, failed=4), "1", [1, 5]),
        (job(backoffLimitPerIndex=2, rules=[{"action": "FailIndex", **DISRUPTED}]), "", [0]),
        (job(backoffLimitPerIndex=0, rules=[IGNORE]), "", []),
    ],
)
def test_an_index_has_a_limit_of_its_own(given, failures, left):
    annotations = {"batch.kubernetes.io/job-completion-index": "3"}
    if failures:
        annotations["batch.kubernetes.io/job-index-failure-count"] = failures
    found = limits(given, annotations=annotations)
    assert [each.remaining for each in found] == left
    assert [each.key for each in found] == ["j/3", "j"][: len(left)]


def test_failures_that_a_tenant_writes_on_a_running_pod_protect_nothing():
    index = {"batch.kubernetes.io/job-completion-index": "3"}
    count = "batch.kubernetes.io/job-index-failure-count"
    given = job(backoffLimitPerIndex=4)
    admitted = limits_of(limits(given, annotations={**index, count: "1"}))
    edited = limits(given, annotations={**index, count: "999"})
    assert [each.remaining for each in as_admitted_limits(edited, admitted)] == [3]


def job_set(policy=None, **status):
    spec = {} if policy is None else {"failurePolicy": policy}
    return wrapper("jobset.x-k8s.io/v1alpha2", "JobSet", spec, status)


def restarted(*of_each):
    return {"replicatedJobsStatus": [{"jobRestartsCountTowardsMax": each} for each in of_each]}


IN_WORKERS = {"targetReplicatedJobs": ["workers"]}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (job_set(), 6),
        (job_set({"maxRestarts": 0}), 6),
        (job_set({"maxRestarts": 2}, restarts=1), None),
        (job_set({"maxRestarts": 2}, restarts=2), 6),
        (job_set({"maxRestarts": 2}, restarts=5, restartsCountTowardsMax=1), None),
        (job_set({"maxRestarts": 2, "rules": [{"action": "FailJobSet", **IN_WORKERS}]}), 6),
        (
            job_set(
                {
                    "maxRestarts": 2,
                    "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["driver"]}],
                }
            ),
            None,
        ),
        (job_set({"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}), None),
        (
            job_set(
                {
                    "maxRestarts": 1,
                    "rules": [
                        {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
                    ],
                }
            ),
            None,
        ),
        (job_set({"maxRestarts": "many"}), 6),
        (job_set({"maxRestarts": 2}, restarts=1, **restarted([0], [0, 0])), None),
        (job_set({"maxRestarts": 2}, restarts=1, **restarted([0], [1, 0])), 6),
        (job_set({"maxRestarts": 9}, **restarted([4], [3, 2])), 6),
        (job_set({"maxRestarts": 9}, **restarted([4], ["many", None], 7)), None),
    ],
)
def test_a_job_set_restarts_for_a_job_that_failed(given, left):
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    assert remaining(job(), given, labels=labels) == left
    assert remaining(job(rules=[IGNORE]), given, labels=labels) is None


@pytest.mark.parametrize(
    ("most", "counted", "left"),
    [(4, (), 4), (4, ([1], [0, 2]), 1), (4, ([4], [0, 2]), 0), (0, (), 6)],
)
def test_a_job_that_is_restarted_alone_costs_one_restart(most, counted, left):
    policy = {"maxRestarts": most, "rules": [{"action": "RestartJob"}]}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    given = job_set(policy, **restarted(*counted))
    (limit,) = limits(job(), given, labels=labels)
    assert limit.remaining == left
    assert (limit.key, limit.most, limit.counted_once) == (
        ("top", most, "train") if most else ("j", 6, "")
    )
    assert limits(job(rules=[IGNORE]), given, labels=labels) == ()
    policy["rules"] = [{"action": "RestartJobAndIgnoreMaxRestarts"}]
    assert limits(job(), job_set(policy, **restarted(*counted)), labels=labels) == ()


def test_a_limit_names_what_fails_and_why():
    (limit,) = limits(job(backoffLimit=3, failed=1), job_set({"maxRestarts": 0}))
    assert limit.owner.kind == "JobSet"
    assert "spec.failurePolicy.maxRestarts is 0" in limit.cause
    assert "spec.backoffLimit is 3, and 1 pod has failed" in limit.cause


@pytest.mark.parametrize(
    ("spec", "status", "role", "left"),
    [
        ({}, {}, "worker", None),
        ({"runPolicy": {"backoffLimit": 3}}, {}, "worker", 3),
        (
            {"runPolicy": {"backoffLimit": 3}},
            {"replicaStatuses": {"Worker": {"failed": 2}, "Master": {"active": 1}}},
            "worker",
            1,
        ),
        ({"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "Never"}}}, {}, "worker", 0),
        ({"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "Never"}}}, {}, "master", None),
    ],
)
def test_a_training_job_has_the_limit_of_its_run_policy(spec, status, role, left):
    top = wrapper("kubeflow.org/v1", "PyTorchJob", spec, status)
    assert remaining(top, labels={"training.kubeflow.org/replica-type": role}) == left


DYNAMIC = {"enableDynamicWorker": True}


@pytest.mark.parametrize(
    ("kind", "specs", "spec", "policy", "survives"),
    [
        ("TFJob", "tfReplicaSpecs", {}, "OnFailure", False),
        ("TFJob", "tfReplicaSpecs", {}, "ExitCode", False),
        ("TFJob", "tfReplicaSpecs", DYNAMIC, "OnFailure", True),
        ("XGBoostJob", "xgbReplicaSpecs", {}, "OnFailure", False),
        ("XGBoostJob", "xgbReplicaSpecs", {}, None, False),
        ("XGBoostJob", "xgbReplicaSpecs", {}, "ExitCode", True),
        ("MPIJob", "mpiReplicaSpecs", {}, None, False),
        ("MPIJob", "mpiReplicaSpecs", {}, "ExitCode", True),
        ("PaddleJob", "paddleReplicaSpecs", {}, "OnFailure", True),
        ("JAXJob", "jaxReplicaSpecs", {}, "OnFailure", True),
    ],
)
def test_the_training_operator_ends_some_jobs_with_a_deleted_pod(
    kind, specs, spec, policy, survives
):
    replicas = {} if policy is None else {"restartPolicy": policy}
    top = wrapper("kubeflow.org/v1", kind, {specs: {"Worker": replicas}, **spec})
    left = remaining(top, labels={"training.kubeflow.org/replica-type": "worker"})
    assert left == (None if survives else 0)


@pytest.mark.parametrize(
    ("spec", "failed", "left"), [({}, 0, 6), ({}, 6, 0), ({"runPolicy": {"backoffLimit": 0}}, 0, 0)]
)
def test_an_mpi_job_has_what_is_left_to_its_launcher(spec, failed, left):
    status = {"replicaStatuses": {"Launcher": {"failed": failed}}}
    top = wrapper("kubeflow.org/v2beta1", "MPIJob", spec, status)
    assert remaining(top) == (0 if left == 0 else None), "of a worker"
    assert remaining(job(failed=failed, backoffLimit=6), top) == 6 - failed, "of the launcher"


@pytest.mark.parametrize(
    ("spec", "status", "survives"),
    [({}, {}, False), ({"backoffLimit": 1}, {}, True), ({"backoffLimit": 1}, {"failed": 1}, False)],
)
def test_a_ray_job_retries_as_often_as_it_may(spec, status, survives):
    top = wrapper("ray.io/v1", "RayJob", spec, status)
    cluster = Unstructured(
        api_version="ray.io/v1", kind="RayCluster", metadata=ObjectMeta(name="c", uid="c")
    )
    head = remaining(cluster, top, labels={"ray.io/node-type": "head"})
    assert head == (None if survives else 0)
    assert remaining(cluster, top, labels={"ray.io/node-type": "worker"}) is None
    assert remaining(job(backoffLimit=2), top) == (None if survives else 2), "the submitter"


@pytest.mark.parametrize(
    ("spec", "retries", "left"),
    [
        ({}, 0, None),
        ({"policies": [{"event": "PodEvicted", "action": "RestartJob"}]}, 1, 2),
        ({"policies": [{"event": "PodEvicted", "action": "RestartJob"}], "maxRetry": 1}, 1, 0),
        ({"policies": [{"events": ["PodFailed", "*"], "action": "AbortJob"}]}, 0, 0),
        ({"policies": [{"event": "PodFailed", "action": "AbortJob"}]}, 0, None),
        ({"policies": [{"event": "PodEvicted", "action": "RestartTask"}]}, 0, None),
        ({"tasks": [{"name": "w", "policies": [{"event": "*", "action": "CompleteJob"}]}]}, 0, 0),
        (
            {"tasks": [{"name": "m", "policies": [{"event": "*", "action": "CompleteJob"}]}]},
            0,
            None,
        ),
        ({"policies": "many", "tasks": "few"}, 0, None),
    ],
)
def test_a_volcano_job_says_what_evictions_do(spec, retries, left):
    found = wrapper("batch.volcano.sh/v1alpha1", "Job", spec, {"retryCount": retries})
    assert remaining(found, labels={"volcano.sh/task-spec": "w"}) == left
