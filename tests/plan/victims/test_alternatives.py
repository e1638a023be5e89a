"""Victims for claims that list alternatives: the one that is taken is what fairness judges."""

import pytest
from msgspec.structs import replace

from tests.support.scenario import (
    claim_of,
    claiming,
    cluster,
    device_class,
    evicted,
    gpu_slice,
    node,
    placed,
    pod,
    queue,
)


def claim(name, *counts, held=()):
    """A claim for the first of so many GPUs, of pod ``name``; ``held``: devices it has."""
    choices = [
        {"name": f"of-{count}", "deviceClassName": "gpu.nvidia.com", "count": count}
        for count in counts
    ]
    return claim_of(
        name,
        {"name": "gpu", "firstAvailable": choices},
        owner=name,
        on=[("n0", device) for device in held],
        of=f"gpu/of-{len(held)}",
        held_by=[name],
    )


def asking(name, *counts, held=(), **options):
    return [
        claim(name, *counts, held=held),
        claiming(pod(name, 0, node="n0" if held else "", **options), name),
    ]


def borrowing(**reclaimer):
    """Four GPUs, all lent to one queue; another deserves two of them."""
    return cluster(
        node("n0", 0),
        gpu_slice("n0", 4),
        device_class(),
        queue("lender", 2, **reclaimer),
        queue("borrower", 2),
        *(
            each
            for i in range(4)
            for each in asking(f"b{i}", 1, held=(f"gpu-{i}",), queue="borrower", created=i)
        ),
    )


def test_a_reclaimer_gets_the_alternative_that_its_share_covers():
    plan = borrowing().add(asking("p", 4, 2, queue="lender", created=9)).plan()
    assert len(evicted(plan)) == 2
    assert [each.pod.name for each in plan.nominations] == ["p"]


def test_nothing_is_evicted_where_even_the_cheapest_is_too_much():
    plan = borrowing().add(asking("p", 4, 3, queue="lender", created=9)).plan()
    assert evicted(plan) == []


def test_the_first_is_taken_where_the_share_covers_it():
    plan = borrowing().add(asking("p", 2, 1, queue="lender", created=9)).plan()
    assert len(evicted(plan)) in (1, 2)
    assert [each.pod.name for each in plan.nominations] == ["p"]


@pytest.mark.parametrize("maximum", [1, 2])
def test_a_preemptor_gets_the_alternative_within_the_limit(maximum):
    low = asking("low", 1, held=("gpu-0",), queue="q", priority=1)
    world = cluster(node("n0", 0), gpu_slice("n0", 1), device_class(), queue("q", 1, maximum), low)
    plan = world.add(asking("high", 3, 1, queue="q", priority=9, created=5)).plan()
    assert evicted(plan) == ["low"]
    assert placed(plan) == {}


def test_a_reclaimer_gets_the_cheapest_alternative_that_no_limit_closes():
    closed = {"name": "fast", "deviceClassName": "fast", "max": 0}
    [made, pending] = asking("p", 2, queue="lender", created=9)
    [request] = made.spec.devices.requests
    [slow] = request.first_available
    fast = replace(slow, name="fast", device_class_name="fast", count=1)
    both = replace(request, first_available=(fast, slow))
    spec = replace(made.spec, devices=replace(made.spec.devices, requests=(both,)))
    world = borrowing(devices=[closed]).add(device_class("fast"), replace(made, spec=spec), pending)
    plan = world.plan()
    assert len(evicted(plan)) == 2
    assert [each.pod.name for each in plan.nominations] == ["p"]
