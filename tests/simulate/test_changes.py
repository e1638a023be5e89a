import pytest

from kai_py.simulate.changes import (
    AddNodes,
    AddObjects,
    ChangeError,
    DrainNode,
    RemoveGang,
    SetQueue,
)
from tests.simulate.clusters import job, queue, running, simulated


def test_added_nodes_have_devices_of_their_own():
    cluster = simulated(queue("team", 16), job("big", 16, "team"))
    cluster.settle(60)
    assert running(cluster) == set()
    AddNodes("node-0", 2).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"big"}


def test_a_drained_node_is_left_and_not_used_again():
    cluster = simulated(queue("team", 8), job("two", 2, "team"))
    [gang] = cluster.settle(60).placements
    left = gang.pods[0].node
    DrainNode(left).apply(cluster)
    [again] = cluster.settle(60).placements
    assert {pod.node for pod in again.pods} == {"node-0", "node-1"} - {left}


def test_a_queue_field_is_set_and_taken_away():
    cluster = simulated(queue("team", 0, 2), job("four", 4, "team"))
    cluster.settle(60)
    assert running(cluster) == set()
    SetQueue("team", ("maxGPUs",), None).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"four"}


def test_a_removed_gang_gives_its_room_back():
    cluster = simulated(queue("team", 8), job("first", 8, "team"))
    cluster.settle(60)
    cluster.embedded.create(job("second", 8, "team"))
    RemoveGang("default/Job/first").apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"second"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (AddNodes("nowhere", 1), "node nowhere: there is none"),
        (DrainNode("nowhere"), "node nowhere: there is none"),
        (RemoveGang("default/Job/none"), "gang default/Job/none: there is none"),
        (SetQueue("none", ("maxGPUs",), 1), "Queue none: "),
        (SetQueue("team", ("maxGPUs",), -1), "Queue team: "),
        (SetQueue("team", ("maximum",), 1), "Queue team: "),
        (AddObjects([{"apiVersion": "v1", "kind": "Pod"}]), "Pod None: "),
        (
            AddObjects([{"apiVersion": "x/v1", "kind": "Unknown", "metadata": {"name": "u"}}]),
            "Unknown u: ",
        ),
    ],
)
def test_what_cannot_be_changed_names_the_object(change, message):
    cluster = simulated(queue("team", 8))
    with pytest.raises(ChangeError, match=message):
        change.apply(cluster)
