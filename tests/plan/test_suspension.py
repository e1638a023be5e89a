"""Jobs that are suspended in place of evicting their pods, and how they wait to be resumed."""

import json

import pytest

from kai_py.api.records.job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.plan.plan import Stage
from kai_py.watch.kinds import JOBS
from tests.dialects.feeding import NOW, Cluster, documents, node, pod

QUEUE = "scheduling.kai.io/queue-name"
ASKS = {"scheduling.kai.io/on-eviction": "suspend"}
LABEL = "batch.kubernetes.io/job-completion-index"
TEAM = documents(
    """
apiVersion: scheduling.kai.io/v1alpha1
kind: Queue
metadata: {name: team}
spec: {deservedGPUs: 8}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 10}
"""
)


def job(name, pods, **annotations):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {QUEUE: "team", **annotations}},
        "spec": {"parallelism": pods, "completions": pods},
    }


def running(owner, pods=2):
    name = owner["metadata"]["name"]
    return [owner, *(pod(f"{name}-{i}", owner=owner, nodeName="n") for i in range(pods))]


def urgent(gpus=2):
    return pod("urgent", gpus, priority=100, annotations={QUEUE: "team"})


def suspended(owner, *, gpus=1, priority_class="", since="2027-01-15T07:30:00Z", **marks):
    requests = {"nvidia.com/gpu": str(gpus), "cpu": "1"}
    template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "priorityClassName": priority_class,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
    }
    meta = dict(owner["metadata"])
    meta["annotations"] = {
        **meta["annotations"],
        SUSPENDED_BY_KEY: "kai-scheduler",
        SUSPENDED_AT_KEY: since,
        **marks,
    }
    return {
        **owner,
        "metadata": meta,
        "spec": {**owner["spec"], "suspend": True, "template": template},
    }


def leaving(plan):
    return {each.pod.name: each.suspend for each in plan.evictions}


@pytest.mark.parametrize(
    ("annotations", "configuration", "suspends"),
    [
        ({}, {}, False),
        (ASKS, {}, True),
        ({}, {"eviction": {"suspend_jobs": True}}, True),
        ({"scheduling.kai.io/on-eviction": "evict"}, {"eviction": {"suspend_jobs": True}}, False),
    ],
)
def test_a_job_that_must_go_whole_is_suspended_if_it_wants(annotations, configuration, suspends):
    low = running(job("low", 2, **annotations))
    plan = Cluster(TEAM, node("n", 2), low, urgent(), **configuration).plan()
    assert leaving(plan) == dict.fromkeys(("low-0", "low-1"), suspends)


def test_a_job_that_keeps_its_floor_is_not():
    low = running(job("low", 2, **ASKS, **{"scheduling.kai.io/min-available": "1"}))
    plan = Cluster(TEAM, node("n", 2), low, urgent(1)).plan()
    assert leaving(plan) == {"low-1": False}


def test_what_is_no_job_and_what_makes_no_sense_is_not():
    bare = pod("bare", nodeName="n", annotations={QUEUE: "team", **ASKS})
    assert leaving(Cluster(TEAM, node("n", 1), bare, urgent(1)).plan()) == {"bare": False}
    wrong = pod("bare", annotations={QUEUE: "team", "scheduling.kai.io/on-eviction": "sleep"})
    stage, message = Cluster(TEAM, node("n", 1), wrong).why()["default/Pod/bare"]
    assert stage == Stage.INVALID
    assert 'must be suspend or evict, is "sleep"' in message


def test_a_suspended_job_waits_as_the_gang_it_will_be():
    cluster = Cluster(TEAM, node("n", 1), suspended(job("low", 2), priority_class="high"))
    gang = cluster.gang("default/Job/low")
    assert [(m.pod.name, m.charge["gpu"]) for m in gang.members] == [("low-0", 1), ("low-1", 1)]
    assert gang.priority == 10
    assert gang.created == NOW - 1800, "it waits from when it was suspended"
    assert cluster.plan().placements == ()
    assert cluster.why()["default/Job/low"][0] == Stage.RESOURCES


def test_it_is_resumed_when_all_of_it_fits():
    cluster = Cluster(TEAM, node("n", 2), suspended(job("low", 2)))
    (placed,) = cluster.plan().placements
    assert placed.resume
    assert placed.owner.name == "low"
    assert len(placed.pods) == 2


def test_resumed_or_deleted_it_waits_no_more():
    waits = suspended(job("low", 2))
    cluster = Cluster(TEAM, node("n", 2), waits)
    resumed = {**waits, "spec": {**waits["spec"], "suspend": False}}
    assert cluster.add(resumed).snapshot().gangs == {}
    assert cluster.add(waits).snapshot().pending == ("default/Job/low",)
    assert cluster.remove(waits).snapshot().gangs == {}


def test_a_job_suspended_for_another_reason_is_not_resumed():
    waits = suspended(job("low", 2))
    waits["metadata"]["annotations"].pop(SUSPENDED_BY_KEY)
    assert Cluster(TEAM, node("n", 2), waits).snapshot().gangs == {}


def test_it_takes_capacity_from_others_as_its_pods_would():
    low = running(job("other", 2))
    cluster = Cluster(TEAM, node("n", 2), low, suspended(job("low", 2), priority_class="high"))
    assert leaving(cluster.plan()) == {"other-0": False, "other-1": False}


def test_claims_that_do_not_exist_yet_are_counted_by_their_template():
    waits = suspended(job("low", 2), gpus=0)
    claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    waits["spec"]["template"]["spec"]["resourceClaims"] = [claim]
    texts = documents(
        """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: default}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n-gpus}
spec:
  driver: gpu.nvidia.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
"""
    )
    cluster = Cluster(TEAM, node("n", 0), texts, waits)
    assert cluster.plan().placements == (), "one device for two pods"
    texts[2]["spec"]["devices"].append({"name": "gpu-1"})
    (placed,) = cluster.add(texts[2]).plan().placements
    assert placed.resume


def test_the_template_of_other_jobs_is_not_kept():
    plain = suspended(job("low", 2))
    plain["metadata"]["annotations"].pop(SUSPENDED_BY_KEY)
    record = JOBS.versions["v1"](json.dumps(plain).encode())
    assert not hasattr(record.spec, "template")
    assert record.spec.suspend
