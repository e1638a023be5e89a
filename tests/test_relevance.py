from datetime import UTC, datetime
from unittest.mock import patch

from msgspec.structs import replace

from kai_py.api.queue import read_queue
from kai_py.api.records.core import Condition, ObjectMeta, Pod, PodStatus
from kai_py.api.records.job import Job, JobSpec, JobStatus
from kai_py.api.records.kai import (
    KaiPodGroup,
    KaiPodGroupSpec,
    KaiPodGroupStatus,
    KaiResourcesStatus,
    KaiSchedulingCondition,
)
from kai_py.api.records.node import Node, NodeStatus
from kai_py.api.records.unstructured import unstructured
from kai_py.relevance import affects_plan, confirms_binding
from kai_py.watch.kinds import WatchedQueue
from tests.dialects.feeding import Cluster, node
from tests.dialects.test_native_groups import group as native_group
from tests.dialects.test_native_groups import members

READY = Condition(
    type="Ready", status="True", last_transition_time=datetime(2026, 1, 1, tzinfo=UTC)
)


def test_conditions_of_pods_do_not_matter():
    old = Pod(metadata=ObjectMeta(name="a", resource_version="1"))
    waiting = Condition(type="PodScheduled", status="False", message="no capacity.")
    new = Pod(
        metadata=ObjectMeta(name="a", resource_version="2"), status=PodStatus(conditions=(waiting,))
    )
    assert not affects_plan(old, new)


def test_what_a_pod_asks_and_how_it_ends_matters():
    old = Pod()
    assert affects_plan(old, replace(old, status=PodStatus(phase="Succeeded")))
    assert affects_plan(old, replace(old, status=PodStatus(nominated_node_name="node-a")))
    leaving = ObjectMeta(deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert affects_plan(old, replace(old, metadata=leaving))
    assert affects_plan(None, old)
    assert affects_plan(old, None)


def test_a_binding_as_assumed_is_a_confirmation_unless_anything_else_changed():
    old = Pod(metadata=ObjectMeta(name="a", uid="1", resource_version="1"))
    labels = {"topology.kubernetes.io/zone": "a"}
    written = replace(old.metadata, resource_version="2", labels=labels, annotations={"terms": "1"})
    new = replace(old, metadata=written, spec=replace(old.spec, node_name="node-a"))
    nominated = replace(old, status=PodStatus(nominated_node_name="node-a"))
    assert confirms_binding(old, new, "node-a")
    assert confirms_binding(nominated, new, "node-a")
    leaving = replace(written, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    others = (
        replace(new, metadata=replace(written, uid="2")),
        replace(new, metadata=leaving),
        replace(new, spec=replace(new.spec, node_name="node-b")),
        replace(new, spec=replace(new.spec, priority=1)),
        replace(new, status=PodStatus(phase="Failed")),
        None,
    )
    assert not any(confirms_binding(old, each, "node-a") for each in others)
    assert not confirms_binding(old, new, "")
    assert not confirms_binding(None, new, "node-a")
    assert not confirms_binding(new, new, "node-a")


def test_heartbeats_of_nodes_do_not_matter_but_readiness_does():
    old = Node(status=NodeStatus(conditions=(READY,)))
    later = replace(READY, last_transition_time=datetime(2026, 1, 2, tzinfo=UTC))
    assert not affects_plan(old, Node(status=NodeStatus(conditions=(later,))))
    failed = replace(READY, status="Unknown")
    assert affects_plan(old, Node(status=NodeStatus(conditions=(failed,))))
    assert affects_plan(old, Node(status=NodeStatus(conditions=(READY,), allocatable={"cpu": "1"})))


def test_statuses_of_queues_do_not_matter_but_their_specs_do():
    def watched(version, deserved, status):
        spec = {"deservedGPUs": deserved}
        written = read_queue({"metadata": {"name": "q"}, "spec": spec, "status": status})
        return WatchedQueue(ObjectMeta(name="q", resource_version=version), written)

    old = watched("1", 4, {})
    assert not affects_plan(old, watched("2", 4, {"pendingGangs": 3}))
    assert affects_plan(old, watched("2", 5, {}))


def test_how_many_pods_of_a_job_run_does_not_matter_but_how_many_ended_well_does():
    meta = ObjectMeta(name="job", uid="1", resource_version="1")
    old = Job(metadata=meta, spec=JobSpec(parallelism=2))
    later = replace(meta, resource_version="2")
    assert not affects_plan(old, replace(old, metadata=later, status=JobStatus(active=2)))
    assert affects_plan(old, replace(old, status=JobStatus(succeeded=1)))
    assert affects_plan(old, replace(old, status=JobStatus(failed_indexes="3")))
    assert affects_plan(old, replace(old, spec=JobSpec(parallelism=2, suspend=True)))
    assert affects_plan(old, replace(old, metadata=replace(meta, annotations={"queue": "b"})))


def test_conditions_of_groups_do_not_matter_but_their_claims_and_specs_do():
    def group(version, spec, status):
        meta = {"name": "g", "uid": "1", "resourceVersion": version}
        document = {"metadata": meta, "spec": spec, "status": status}
        return unstructured(document, ("spec", "status.conditions", "status.resourceClaimStatuses"))

    old = group("1", {"minCount": 2}, {})
    condition = {"type": "PodGroupScheduled", "status": "False", "message": "no capacity."}
    assert not affects_plan(old, group("2", {"minCount": 2}, {"conditions": [condition]}))
    assert affects_plan(old, group("2", {"minCount": 3}, {"conditions": [condition]}))
    claims = [{"name": "gpu", "resourceClaimName": "g-gpu"}]
    assert affects_plan(old, group("2", {"minCount": 2}, {"resourceClaimStatuses": claims}))


def test_conditions_of_a_provisioning_request_matter():
    def request(version, conditions):
        document = {
            "kind": "ProvisioningRequest",
            "metadata": {"name": "r", "uid": "1", "resourceVersion": version},
            "status": {"conditions": conditions},
        }
        return unstructured(document, ("status.conditions",))

    accepted, provisioned = (
        {"type": kind, "status": "True"} for kind in ("Accepted", "Provisioned")
    )
    old = request("1", [accepted])
    assert affects_plan(old, request("2", [accepted, provisioned]))
    assert not affects_plan(old, request("2", [accepted]))


def test_of_the_status_of_kai_groups_only_the_pools_that_were_tried_matter():
    meta = ObjectMeta(name="g", uid="1", resource_version="1")
    old = KaiPodGroup(metadata=meta, spec=KaiPodGroupSpec(min_member=2))
    used = KaiPodGroupStatus(resources_status=KaiResourcesStatus(allocated={"cpu": "1"}))
    assert not affects_plan(old, replace(old, status=used))
    tried = KaiSchedulingCondition(node_pool="default", message="no capacity.")
    first = replace(old, status=KaiPodGroupStatus(scheduling_conditions=(tried,)))
    again = replace(tried, message="no capacity any more.")
    assert affects_plan(old, first)
    assert not affects_plan(first, replace(old, status=KaiPodGroupStatus((again,))))
    assert affects_plan(old, replace(old, spec=KaiPodGroupSpec(min_member=3)))
    assert affects_plan(old, replace(old, metadata=replace(meta, annotations={"queue": "b"})))


def test_statuses_of_groups_derive_no_pod_again():
    cluster = Cluster(node("n", 8), native_group("train", 2), members("train", 2))
    cluster.plan()
    with patch.object(cluster.planner.builder, "_derive") as derived:
        pending = {"type": "PodGroupScheduled", "status": "False", "message": "no capacity."}
        cluster.add({**native_group("train", 2), "status": {"conditions": [pending]}})
        assert not derived.mock_calls
        cluster.add(native_group("train", 3))
        assert len(derived.mock_calls) == 2
