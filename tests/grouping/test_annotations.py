"""Our own annotations: delays, runtimes and segments, whoever of the owners carries them."""

import pytest

from kai_py.api.records.core import OwnerReference
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.frameworks.training_jobs import PYTORCH_JOB
from kai_py.grouping.gang_template import WorkloadOwner
from kai_py.grouping.owner_chain import GroupKind, OwnerLink
from kai_py.grouping.queue_choice import Defaults
from kai_py.plan.plan import Stage
from tests.dialects.feeding import Cluster, documents, node, placed, pod
from tests.dialects.kai.objects import job
from tests.dialects.kai.test_segments import INDEX, racks

QUEUE = "scheduling.kai.io/queue-name"
SIZE = "scheduling.kai.io/segment-size"
RACK = "scheduling.kai.io/segment-topology-required-placement"
DELAY = "scheduling.kai.io/preemption-delay"
TEAM = documents(
    "{apiVersion: scheduling.kai.io/v1alpha1, kind: Queue, metadata: {name: team},"
    " spec: {deservedGPUs: 64}}"
)


def indexed(count, marks):
    owner = job("train", count, {}, {QUEUE: "team", **marks})
    return [
        owner,
        *(pod(f"train-{i}", owner=owner, labels={INDEX: str(i)}) for i in range(count)),
    ]


def gang(*objects):
    return Cluster(TEAM, *objects).gang("default/Job/train")


def test_every_segment_of_a_job_gets_a_domain_of_its_own():
    train = indexed(4, {SIZE: "2", RACK: "rack"})
    at = placed(Cluster(TEAM, racks(a=2, b=3, c=1), train).plan())
    assert at["train-0"] == at["train-1"] != at["train-2"] == at["train-3"]
    assert placed(Cluster(TEAM, racks(a=2, b=1, c=1), train).plan()) == {}
    assert gang(*train).tree.min_pods() == 4, "all pods of a Job are its floor"


def test_a_size_that_makes_no_sense_is_told_with_its_key():
    assert f"Job default/train: {SIZE} must be" in gang(*indexed(2, {SIZE: "two"})).problem


@pytest.mark.parametrize("prefix", ["scheduling.kai.io", "kai.scheduler"])
def test_segments_of_a_pytorch_job_have_both_spellings(prefix):
    template = {"metadata": {"annotations": {f"{prefix}/segment-size": "2"}}}
    workers = {"Worker": {"replicas": 4, "template": template}}
    found = Unstructured(content={"spec": {"pytorchReplicaSpecs": workers}})
    link = OwnerLink(OwnerReference(), found, GroupKind("kubeflow.org", "PyTorchJob"))
    drawn = PYTORCH_JOB.gang_template(WorkloadOwner(link, Defaults.NATIVE, True, None))
    assert [leaf.min_members for leaf in drawn.tree.leaves()] == [2, 2]


def contested(marks):
    low = pod("low", nodeName="n", annotations={QUEUE: "team"})
    high = pod("high", priority=10, annotations={QUEUE: "team", **marks})
    return Cluster(TEAM, node("n", 1), low, high)


def test_a_gang_evicts_no_pod_before_its_delay_has_passed():
    waits = contested({DELAY: "5m"})
    snapshot = waits.snapshot()
    found = snapshot.gangs["default/Pod/high"]
    assert found.settings.preemption_delay == 300
    until = found.created + 300
    assert waits.planner.next_deadline(waits.snapshot(until - 1)) == until
    assert not waits.plan(until - 1).evictions
    assert [each.pod.name for each in waits.plan(until).evictions] == ["low"]


@pytest.mark.parametrize("key", [DELAY, "scheduling.kai.io/expected-runtime"])
def test_a_duration_that_is_none_is_told(key):
    stage, message = contested({key: "soon"}).why()["default/Pod/high"]
    assert stage == Stage.INVALID
    assert message == f"pod default/high: {key}: 'soon' is not a duration: write it like " + (
        "30s, 5m or 1h30m"
    )


MINIMUM, GROUP = "scheduling.kai.io/min-available", "scheduling.kai.io/pod-group"


def unused(owner, **parts):
    cluster = Cluster(TEAM, owner, pod("p", owner=owner, **parts))
    return [marker for each in cluster.snapshot().ignored_markers for marker in each.markers]


def test_a_minimum_that_counts_for_nothing_where_it_stands_is_told():
    of_job = job("train", 2, {}, {QUEUE: "team", MINIMUM: "1"})
    assert unused(of_job) == []
    assert unused(of_job, annotations={MINIMUM: "1"}) == [f"{MINIMUM} of p"]
    grouped = job("train", 2, {}, {QUEUE: "team", GROUP: "ring"})
    assert unused(grouped) == [f"{GROUP} of train"]
    assert unused(grouped, annotations={GROUP: "ring", MINIMUM: "2"}) == []
