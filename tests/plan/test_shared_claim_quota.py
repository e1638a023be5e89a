"""Pods that share a claim cost their queue the claim, whichever of them starts first."""

import itertools

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import PodSchedulingGate
from tests.support.scenario import (
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job,
    node,
    placed,
    pod,
    queue,
)

DEVICES = (node("n", 0), gpu_slice("n"), device_class())
ONE_STARTS_IT = {"scheduling.kai.io/min-available": "1"}


def sharing(owner, names, **options):
    return [
        claiming(pod(each, 0, owner=owner, **options), "held", template=False) for each in names
    ]


def used_up(maximum, *objects):
    """A queue that has two GPUs by now."""
    held = claim("c", 2, owner="runs", held_by=("runs",), on=(("n", "gpu-6"), ("n", "gpu-7")))
    runs = claiming(pod("runs", 0, queue="team", node="n"), "c")
    return cluster(*DEVICES, queue("team", 1, maximum), held, runs, *objects)


@pytest.mark.parametrize("names", list(itertools.permutations(("a", "b", "c"))))
@pytest.mark.parametrize("maximum", [3, 4])
def test_a_claim_counts_whichever_pod_of_the_gang_came_first(names, maximum):
    owner = job("j", 3, queue="team", **ONE_STARTS_IT)
    world = used_up(maximum, claim("held", 2), owner, *sharing(owner, names))
    started = placed(world.plan())
    assert len(started) == (3 if maximum == 4 else 0)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("how", ["gated", "waits"])
def test_a_pod_that_cannot_start_does_not_pay_for_one_that_can(names, how):
    owner = job("j", 2, queue="team", **ONE_STARTS_IT)
    first, second = sharing(owner, names)
    if how == "gated":
        gates = (PodSchedulingGate(name="example.com/gate"),)
        first = replace(first, spec=replace(first.spec, scheduling_gates=gates))
    else:
        first = claiming(first, "never")
        first = replace(
            first,
            spec=replace(
                first.spec,
                resource_claims=(*second.spec.resource_claims, *first.spec.resource_claims),
            ),
        )
    world = used_up(3, claim("held", 2), owner, first, second)
    assert placed(world.plan()) == {}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_claim_counts_in_the_queue_of_whichever_gang_starts(names):
    """Of two pods without an owner, each a gang, in two queues."""
    first, second = (claiming(pod(each, 0, queue=each), "held", template=False) for each in names)
    queues = [queue("a", 1, 1), queue("b", 1, 1)]
    world = cluster(*DEVICES, *queues, claim("held", 2), first, second)
    assert placed(world.plan()) == {}
    roomy = cluster(*DEVICES, queue("a", 1, 1), queue("b", 2, 2), claim("held", 2), first, second)
    assert placed(roomy.plan())["b"] == "n"
