"""Consolidation is not searched for where no relocation can free the devices that are needed."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.plan.plan import Action, Stage
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.victims.search import VictimSearch
from tests.plan.state.test_extended_claims import answering, with_driver
from tests.plan.victims.test_alternatives import asking
from tests.support.examples import examples
from tests.support.executed_plans import carry_out
from tests.support.scenario import (
    claim,
    claiming,
    claiming_job,
    cluster,
    device_class,
    gpu_slice,
    job,
    node,
    pod,
    queue,
)

PRODUCTS = ("A100", "H100")
ONLY = ("", *(f'device.attributes["gpu.nvidia.com"].productName == "{p}"' for p in PRODUCTS))


def holder(name, host, *devices, selector=""):
    """A running pod with a claim of its own for ``devices``."""
    on = [(host, f"gpu-{device}") for device in devices]
    held = claim(f"{name}-gpu", len(on), selector=selector, owner=name, held_by=[name], on=on)
    return [held, claiming(pod(name, 0, queue="team", node=host), f"{name}-gpu")]


def hardware(*gpus):
    made = [device_class(), queue("team", 64)]
    for i, count in enumerate(gpus):
        made += [node(f"n{i}", 0), gpu_slice(f"n{i}", count, PRODUCTS[i % 2])]
    return made


def searches(*objects):
    """How many searches for pods to relocate a cycle makes, and the stage of what waits."""
    with patch.object(VictimSearch, "run", autospec=True, side_effect=VictimSearch.run) as run:
        plan = cluster(*objects, actions=(Action.ALLOCATE, Action.CONSOLIDATE)).plan()
    return run.call_count, [each.stage for each in plan.unplaced]


def full(*pending):
    held = [holder(f"h{i}", f"n{i // 2}", i % 2) for i in range(4)]
    return [*hardware(2, 2), *held, *pending]


def naming(claim_name, *pods, count=1):
    """A Job whose pods all name one claim, which is not made from a template."""
    owner = job("named", len(pods), "team")
    named = (claiming(pod(p, 0, owner=owner), claim_name, template=False) for p in pods)
    return [owner, claim(claim_name, count), *named]


@pytest.mark.parametrize(
    "pending", [claiming_job("p", 1, queue="team"), asking("p", 2, 1), naming("own", "p")]
)
def test_nothing_is_searched_for_where_all_devices_are_taken(pending):
    made, stages = searches(*full(*pending))
    assert made == 0
    assert stages != [Stage.SEARCH_BUDGET]


def test_one_is_free_and_two_are_needed():
    held = [holder("h0", "n0", 0), holder("h1", "n1", 1), holder("h2", "n1", 0)]
    assert searches(*hardware(2, 2), *held, *claiming_job("p", 1, 2, queue="team"))[0] == 0
    fewer = [*hardware(2, 2), *held[:2]]
    plan = cluster(*fewer, *claiming_job("p", 1, 2, queue="team")).plan()
    assert [each.action for each in plan.evictions] == [Action.CONSOLIDATE]


def test_a_claim_of_two_pods_takes_its_devices_once():
    held = [holder("h0", "n0", 0), holder("h1", "n1", 1)]
    plan = cluster(*hardware(2, 2), *held, *naming("own", "p0", "p1", count=2)).plan()
    assert [each.action for each in plan.evictions] == [Action.CONSOLIDATE]


def test_a_claim_with_alternatives_may_move_to_fewer_devices():
    runs = asking("alternates", 2, 1, held=("gpu-0", "gpu-1"), queue="team")
    plan = cluster(*hardware(2), *runs, *claiming_job("p", 1, queue="team")).plan()
    assert [each.action for each in plan.evictions] == [Action.CONSOLIDATE]


def test_a_class_of_two_drivers_counts_for_neither():
    other = gpu_slice("n1", 2)
    theirs = replace(other, spec=replace(other.spec, driver="gpu.other.com"))
    world = [
        device_class(),
        device_class("any", "true"),
        queue("team", 64),
        node("n0", 0),
        gpu_slice("n0", 2),
        node("n1", 0),
        theirs,
        holder("h0", "n0", 0),
        holder("h1", "n0", 1),
        *claiming_job("p", 1, queue="team"),
    ]
    assert searches(*world)[0] == 1
    assert searches(*(each for each in world if each is not world[1]))[0] == 0


def test_a_pod_whose_resource_a_plugin_serves_too_may_leave_its_device():
    world = cluster(answering(), queue("team", 64), *with_driver("driver", 1))
    world.add(pod("moves", 1, queue="team"))
    carry_out(world, world.plan())
    world.add(node("plugin", 1), claiming_job("p", 1, queue="team"))
    plan = world.plan()
    assert [(each.pod.name, each.relocated_to) for each in plan.evictions] == [("moves", "plugin")]


@st.composite
def worlds(draw):
    """Nodes with GPUs of two products, running pods of any of them, and a request for some."""
    gpus = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    objects, number = hardware(*gpus), 0
    for row, count in enumerate(gpus):
        left = count
        while left and draw(st.integers(0, 3)):
            taken = draw(st.integers(1, left))
            devices = range(count - left, count - left + taken)
            left -= taken
            own = draw(st.sampled_from([ONLY[0], ONLY[1 + row % 2]]))
            objects.append(holder(f"h{number}", f"n{row}", *devices, selector=own))
            number += 1
    pods, each = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    if draw(st.booleans()):
        return [*objects, *naming("own", "p0", "p1", count=draw(st.integers(1, 3)))]
    return [*objects, *claiming_job("p", pods, each, queue="team")]


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(worlds())
def test_plans_are_the_same_as_when_devices_are_not_counted(objects):
    plan = cluster(*objects).plan()
    with patch.object(CycleDevices, "exceed_free", lambda *_: False):
        searched = cluster(*objects).plan()
    assert [plan.placements, plan.evictions, plan.nominations] == [
        searched.placements, searched.evictions, searched.nominations
    ]  # fmt: skip
