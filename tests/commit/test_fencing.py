"""A pod is fenced by a write of its own: what the answer to it proves."""

import pytest

from kai_py.commit.pod_state import ReadState, fence_pod
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import PODS
from tests.commit.cluster import NAMESPACE, Cluster, first, refuse


@pytest.mark.parametrize(
    ("before_the_write", "state"),
    [
        ("nothing", ReadState.WAITING),
        ("deleted", ReadState.GONE),
        ("recreated", ReadState.GONE),
        ("forbidden", ReadState.UNKNOWN),
    ],
)
async def test_the_answer_proves_the_state(before_the_write, state):
    cluster = Cluster()
    ref = cluster.add_pod("a")

    def change():
        if before_the_write != "nothing":
            delete(cluster.api, PODS, "a", NAMESPACE, DeleteOptions(grace_seconds=0))
        if before_the_write == "recreated":
            cluster.add_pod("a")

    forbidden = before_the_write == "forbidden"
    cluster.fail_once("patch", "Pod", refuse(403, "Forbidden") if forbidden else first(change))
    reading = await fence_pod(cluster.access(), ref)
    assert reading.state is state
    assert bool(reading.problem) is forbidden
