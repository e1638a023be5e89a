"""A gang whose pods a kubelet has not started is explained as such, though simulated pods start."""

from datetime import UTC, datetime

import pytest

from kai_py.api.choices import Subject
from kai_py.api.event_annotations import GANG, QUEUE
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Taint
from kai_py.api.times import format_time
from kai_py.cli.explanation_text import described
from kai_py.config import Configuration
from kai_py.observe.event_history import ClusterEvent, InvolvedObject
from kai_py.observe.explanation import Explainer
from kai_py.plan.plan import Plan
from kai_py.simulate.explained_cluster import explain_cluster
from tests.simulate.clusters import NOW, job, queue, simulated
from tests.support import scenario

LOST = "is lost (taint node.kubernetes.io/unreachable)"
PULL = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}


@pytest.mark.parametrize(
    ("waiting", "state"), [({"reason": "ContainerCreating"}, "Starting"), (PULL, "NotReady")]
)
def test_pods_that_have_not_started_are_explained_so(waiting, state):
    cluster = simulated(queue("team", 8), job("train", 1, "team"))
    cluster.settle(30)
    documents = cluster.documents()
    [pod] = [each for each in documents if each["kind"] == "Pod"]
    container = {"name": "main", "ready": False, "restartCount": 0, "state": {"waiting": waiting}}
    ready = {"type": "Ready", "status": "False"}
    pod["status"] = {"phase": "Pending", "conditions": [ready], "containerStatuses": [container]}
    [found] = explain_cluster(
        documents, Configuration(), now=NOW + 30, subject=Subject.GANG, name="default/Job/train"
    )
    assert (found.state, found.bound, found.starting) == (state, 1, 1)


def test_pods_that_the_api_server_refused_are_missing_though_simulated_controllers_make_them():
    cluster = simulated(queue("team", 8), job("train", 2, "team"))
    documents = cluster.documents()
    refused = next(each for each in documents if each["kind"] == "Pod")
    documents.remove(refused)
    [found] = explain_cluster(
        documents,
        Configuration(),
        now=NOW,
        subject=Subject.GANG,
        name="default/Job/train",
        with_suggestions=False,
    )
    assert (found.state, found.pods) == ("BelowMinMember", 1)
    assert found.message == "minMember is 2; existing pods: 1."


@pytest.mark.slow
def test_a_gang_whose_pods_are_all_ending_is_terminating():
    cluster = simulated(queue("team", 8), job("train", 1, "team"))
    cluster.settle(30)
    documents = [each for each in cluster.documents() if each["kind"] != "Job"]
    [pod] = [each for each in documents if each["kind"] == "Pod"]
    pod["metadata"] |= {"deletionTimestamp": format_time(NOW), "deletionGracePeriodSeconds": 30}
    [found] = explain_cluster(
        documents, Configuration(), now=NOW, subject=Subject.GANG, name="default/Job/train"
    )
    assert (found.state, found.bound, found.terminating) == ("Terminating", 0, 1)
    text = described(found)
    assert "default/Job/train is terminating: 0 of 1 pod runs, 1 is ending" in text


def test_a_deleted_gang_whose_last_pods_are_ending_is_deleted():
    cluster = simulated(queue("team", 8), job("train", 1, "team"))
    cluster.settle(30)
    documents = [each for each in cluster.documents() if each["kind"] != "Job"]
    [pod] = [each for each in documents if each["kind"] == "Pod"]
    pod["metadata"] |= {"deletionTimestamp": format_time(NOW), "deletionGracePeriodSeconds": 30}
    placed = ClusterEvent(
        metadata=ObjectMeta(
            namespace="default", annotations={GANG: "default/Job/train", QUEUE: "team"}
        ),
        involved_object=InvolvedObject("Pod", "default", pod["metadata"]["name"]),
        reason="Scheduled",
        event_time=datetime.fromtimestamp(NOW, UTC),
    )
    [found] = explain_cluster(
        documents,
        Configuration(),
        now=NOW,
        subject=Subject.JOB,
        name="default/train",
        events=[placed],
    )
    assert (found.state, found.queue) == ("Deleted", "team")
    assert (found.message, len(found.history)) == ("its last pods are ending", 1)


def test_a_gang_whose_workload_is_being_deleted_says_so():
    cluster = simulated(queue("team", 8), job("train", 1, "team"))
    cluster.settle(30)
    documents = cluster.documents()
    [owner] = [each for each in documents if each["kind"] == "Job"]
    owner["metadata"] |= {"deletionTimestamp": format_time(NOW), "finalizers": ["test/wait"]}
    [found] = explain_cluster(
        documents, Configuration(), now=NOW + 40, subject=Subject.GANG, name="default/Job/train"
    )
    assert (found.state, found.message) == ("Running", "Job train is being deleted")


def test_a_gang_on_a_lost_node_says_that_it_is_evicted():
    cluster = simulated(queue("team", 8), job("train", 1, "team"), nodes=1)
    cluster.settle(30)
    documents = cluster.documents()
    [node] = [each for each in documents if each["kind"] == "Node"]
    node["spec"] = {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}
    [found] = explain_cluster(
        documents, Configuration(), now=NOW + 40, subject=Subject.GANG, name="default/Job/train"
    )
    message = f"1 pod is being evicted: node node-0 {LOST}; the gang restarts whole"
    assert (found.state, found.message) == ("Running", message)


def test_a_gang_that_is_left_on_a_lost_node_says_so():
    lost = scenario.node("n", taints=(Taint("node.kubernetes.io/unreachable", "", "NoExecute"),))
    made = scenario.cluster(lost, scenario.queue("team", 8), scenario.pod("a", 1, node="n"))
    found = Explainer(made.snapshot(), Plan()).explain("default/Pod/a")
    assert found.message == f"node n {LOST}: the pods on it run no more"


def test_a_job_without_pods_may_wait_for_the_pause_of_its_controller():
    cluster = simulated(queue("team", 8), job("train", 1, "team"))
    documents = [each for each in cluster.documents() if each["kind"] != "Pod"]
    [found] = explain_cluster(
        documents,
        Configuration(),
        now=NOW,
        subject=Subject.GANG,
        name="default/Job/train",
        with_suggestions=False,
    )
    assert found.state == "NoPods"
    assert "its controller pauses before it creates pods again" in found.message
    assert "kubectl describe job train" in found.message
