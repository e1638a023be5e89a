"""Pods go where their claims get what they list first (``firstAvailable``)."""

import pytest
from msgspec.structs import replace

from tests.support.scenario import (
    claim,
    claim_of,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job,
    node,
    pod,
    queue,
)

FAST, SLOW = "H200", "A100"


def choosing(name, owner):
    """A pod of a Job whose claim wants a fast device or else a slow one."""

    def of_product(alternative, product):
        text = f'device.attributes["gpu.nvidia.com"].productName == "{product}"'
        selectors = [{"cel": {"expression": text}}]
        return {"name": alternative, "deviceClassName": "gpu.nvidia.com", "selectors": selectors}

    choices = [of_product("fast", FAST), of_product("slow", SLOW)]
    request = {"name": "gpu", "firstAvailable": choices}
    return [
        claim_of(f"{name}-gpu", request, owner=name),
        claiming(pod(name, 0, owner=owner), f"{name}-gpu"),
    ]


def choosing_job(pods):
    owner = job("train", pods, "team")
    return [owner, *(each for i in range(pods) for each in choosing(f"train-{i}", owner))]


def hardware(*products, gpus):
    made = [device_class(), queue("team", 8)]
    for i, product in enumerate(products):
        made += [node(f"n{i}", 0), gpu_slice(f"n{i}", gpus, product)]
    return made


def given(plan):
    """(node, chosen request) of the pods that are placed, sorted."""
    return sorted(
        (each.node, result.request)
        for gang in plan.placements
        for each in gang.pods
        for found in each.allocate
        for result in found.allocation.devices.results
    )


@pytest.mark.parametrize("fast", [0, 1])
def test_a_pod_goes_where_the_first_alternative_is(fast):
    products = [SLOW, SLOW]
    products[fast] = FAST
    world = cluster(*hardware(*products, gpus=2), choosing_job(1))
    held = claim("o-gpu", owner="o", held_by=["o"], on=[(f"n{1 - fast}", "gpu-0")])
    world.add(held, claiming(pod("o", 0, queue="team", node=f"n{1 - fast}"), "o-gpu"))
    assert given(world.plan()) == [(f"n{fast}", "gpu/fast")]


def test_a_gang_takes_what_is_best_of_all_nodes_before_what_is_second_best():
    plan = cluster(*hardware(SLOW, FAST, SLOW, FAST, gpus=2), choosing_job(5)).plan()
    fast = [(name, "gpu/fast") for name in ("n1", "n1", "n3", "n3")]
    assert given(plan) == [("n0", "gpu/slow"), *fast]


def test_a_node_of_both_kinds_gives_its_best_only_before_others_give_theirs():
    world = cluster(*hardware(FAST, FAST, gpus=1), beside("n0", SLOW), choosing_job(2))
    assert given(world.plan()) == [("n0", "gpu/fast"), ("n1", "gpu/fast")]


def beside(name, product):
    """A second pool of a node."""
    found = gpu_slice(name, 4, product)
    pool = replace(found.spec.pool, name=f"{name}-more")
    metadata = replace(found.metadata, name=f"{name}-more", uid=f"{name}-more")
    return replace(found, metadata=metadata, spec=replace(found.spec, pool=pool))
