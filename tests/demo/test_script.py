"""The script's arithmetic: on every size of cluster each step shows what its title says."""

import pytest

from kai_py.api.queue import read_queue
from kai_py.demo.script import MAX_NODES, MIN_NODES, script_for
from kai_py.demo.workloads import setup_manifests

SIZES = range(MIN_NODES, MAX_NODES + 1)


@pytest.mark.parametrize("nodes", SIZES)
def test_capacity_is_as_the_titles_say(nodes):
    script = script_for(nodes)
    cast = {workload.name: workload for workload in script.workloads}
    queues = {queue.name: queue for queue in script.queues}
    gpus = {name: workload.pods * workload.gpus for name, workload in cast.items()}
    total = 8 * nodes

    assert sum(queue.deserved for queue in script.queues) == total
    beside_vision = gpus["chat"] + gpus["llm"] + gpus["protein"]
    assert beside_vision + gpus["vision"] > total, "vision waits"
    assert beside_vision - gpus["llm"] + gpus["vision"] <= total, "and starts when llm ends"

    fewest = -(-(gpus["vision"] - 2) // 8)
    free_nodes = nodes - 1 - cast["protein"].pods
    assert cast["urgent"].pods > free_nodes - fewest, "urgent needs vision's nodes"
    assert cast["urgent"].pods <= free_nodes, "and has capacity without it"

    idle = total - gpus["chat"] - gpus["vision"] - gpus["ablation"]
    assert 0 <= idle < gpus["peak"], "peak needs capacity of ablation"
    assert gpus["ablation"] - 8 >= queues["research"].deserved, "which research borrowed"
    assert idle + 8 >= gpus["peak"], "one pod of it is enough"
    assert cast["ablation"].min_available < cast["ablation"].pods, "and may go"
    assert gpus["chat"] + gpus["peak"] <= queues["inference"].deserved


@pytest.mark.parametrize("nodes", SIZES)
def test_maxima_allow_what_must_start(nodes):
    script = script_for(nodes)
    maxima = {queue.name: queue.maximum for queue in script.queues}
    for workload in script.workloads:
        assert workload.pods * workload.gpus <= maxima[workload.queue]
    together = sum(
        workload.pods * workload.gpus
        for workload in script.workloads
        if workload.name in ("llm", "vision")
    )
    assert together <= maxima["training"], "vision waits for capacity, not for the queue"


@pytest.mark.parametrize("nodes", [MIN_NODES - 1, MAX_NODES + 1])
def test_other_sizes_are_refused(nodes):
    with pytest.raises(ValueError, match="needs 6 to 64 nodes"):
        script_for(nodes)


def test_steps_build_only_on_what_was_submitted_before():
    known = set()
    for step in script_for(8).steps:
        assert {seen.workload for seen in step.after} <= known
        assert set(step.end) <= known
        known |= {workload.name for workload in step.submit}


def test_the_whole_story_fits_into_a_minute():
    assert sum(step.pause for step in script_for(8).steps) < 50


def test_its_queues_are_valid():
    script = script_for(8)
    manifests = list(setup_manifests(script.queues, script.priorities, script.workloads))
    queues = [read_queue(each, unknown="forbid") for each in manifests if each["kind"] == "Queue"]
    assert [queue.metadata.name for queue in queues] == ["inference", "training", "research"]
    templates = [
        each["metadata"]["name"] for each in manifests if each["kind"] == "ResourceClaimTemplate"
    ]
    assert templates == ["h100-x1", "h100-x2", "h100-x8"]
