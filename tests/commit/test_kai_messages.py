"""KAI's words for why a gang waits."""

from kai_py.commit.kai_messages import kai_message
from tests.scenario import cluster, job_with_pods, node, pod, queue


def told(*objects):
    [unplaced] = cluster(*objects).plan().unplaced
    return kai_message(unplaced)


def test_a_gang_says_how_many_found_room_and_what_nodes_lack():
    nodes = [node("a", 1), node("b", 1)]
    assert told(*nodes, queue("q", 8), job_with_pods("big", 3, queue="q")) == (
        "Resources were found for 2 pods while 3 are required for gang scheduling. Additional pods "
        "cannot be scheduled due to: no nodes with enough resources were found: 2 node(s) didn't "
        "have enough resources: GPUs."
    )


def test_a_single_pod_is_named():
    assert told(node("a", 0), queue("q", 8), pod("p", queue="q")) == (
        "Resources were not found for pod default/p due to: no nodes with enough resources were "
        "found: 1 node(s) didn't have enough resources: GPUs."
    )


def test_a_missing_queue_is_quoted_as_kai_does_and_a_limit_is_worded_alike():
    assert told(node("a"), pod("p", queue="gone")) == "Queue 'gone' does not exist"
    limited = told(node("a"), queue("q", 1, 1), pod("p", gpus=2, queue="q"))
    assert limited == (
        "q quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs "
        "allocated and workload requested 2 GPUs"
    )
