"""A gang whose pods a kubelet has not started is explained as such, though simulated pods start."""

import pytest

from kai_py.api.choices import Subject
from kai_py.config import Configuration
from kai_py.simulate.advisor import explain_cluster
from tests.simulate.clusters import NOW, job, queue, simulated

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
