import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.node import Node
from kai_py.dra import cluster_allocator
from kai_py.dra.allocator import Allocation, allocate
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.device_state import DeviceState
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.inventory import Inventory
from tests.support.examples import examples

from .instances import CLASSES, as_claims, as_slices, crowded, hold_initial, questions


@st.composite
def fleets(draw):
    """Some nodes with equal devices, some with others; some devices held."""
    first, second = draw(questions()), draw(questions())
    second.claims = first.claims
    on_nodes = [copy.deepcopy(draw(st.sampled_from([first, second]))) for _ in range(4)]
    for question in on_nodes[1:]:
        for device in question.devices:
            if draw(st.integers(0, 5)) == 0:
                device["whole"] = not device["whole"]
                device["held"] = 0
    return on_nodes


def build(on_nodes, choice):
    nodes = tuple(Node(metadata=ObjectMeta(name=f"n{i}")) for i in range(len(on_nodes)))
    inventory = Inventory(strategy=choice)
    state = DeviceState(inventory.device)
    for node, question in zip(nodes, on_nodes, strict=True):
        for piece in as_slices(question, node.metadata.name):
            inventory.put(piece)
        hold_initial(question, state, node.metadata.name)
    return nodes, inventory, state, as_claims(on_nodes[0])


def one_by_one(claims, node, inventory, state, limit):
    state, count = state.copy(), 0
    while count < limit:
        answer = allocate(claims, node, inventory, state, CLASSES)
        if not isinstance(answer, Allocation):
            break
        for allocation in answer.allocations:
            state.mark_allocated(allocation)
        count += 1
    return count


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(on_nodes=fleets(), choice=st.sampled_from(AllocationStrategy))
def test_a_fleet_answers_what_the_allocator_answers_node_by_node(on_nodes, choice):
    nodes, inventory, state, claims = build(on_nodes, choice)
    fleet = ClusterAllocator(inventory, CLASSES)
    counts = fleet.count_fits(claims, nodes, state, limit=3)
    for row, node in enumerate(nodes):
        plain = allocate(claims, node, inventory, state, CLASSES)
        answer = fleet.allocate(claims, nodes, row, state)
        if isinstance(plain, Allocation):
            assert answer == plain
        else:
            assert (type(answer), str(answer)) == (type(plain), str(plain))
        assert counts[row] == one_by_one(claims, node, inventory, state, 3)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 5, 40])
@settings(max_examples=examples(15), deadline=None)
@given(on_nodes=fleets())
def test_dropping_what_is_too_much_costs_only_time(on_nodes, limit):
    nodes, inventory, state, claims = build(on_nodes, AllocationStrategy.BEST_FIT)
    fleet = ClusterAllocator(inventory, CLASSES)
    before = fleet.count_fits(claims, nodes, state, limit=3).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_allocator, "MAX_CACHED", limit)
        fleet.start_cycle()
    assert fleet.count_fits(claims, nodes, state, limit=3).tolist() == before
    inventory.put(as_slices(on_nodes[0], "n9")[0])
    assert fleet.count_fits(claims, nodes, state, limit=3).tolist() == before


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(on_nodes=fleets())
def test_answers_follow_the_state_and_return_with_it(on_nodes):
    nodes, inventory, state, claims = build(on_nodes, AllocationStrategy.BEST_FIT)
    fleet = ClusterAllocator(inventory, CLASSES)
    before = fleet.count_fits(claims, nodes, state, limit=3)
    undo = []
    for row in range(len(nodes)):
        answer = fleet.allocate(claims, nodes, row, state)
        if isinstance(answer, Allocation):
            undo += [state.mark_allocated(allocation) for allocation in answer.allocations]
    held = fleet.count_fits(claims, nodes, state, limit=3)
    fresh = ClusterAllocator(inventory, CLASSES).count_fits(claims, nodes, state, limit=3)
    assert held.tolist() == fresh.tolist()
    assert np.all(held <= before)
    fork = state.copy()
    for step in undo:
        step()
    assert fleet.count_fits(claims, nodes, fork, limit=3).tolist() == held.tolist()
    assert fleet.count_fits(claims, nodes, state, limit=3).tolist() == before.tolist()
    assert fleet.count_fits(claims, nodes, state.copy(), limit=3).tolist() == before.tolist()


def test_rows_left_out_and_claims_that_cannot_be_judged_fit_nowhere():
    on_nodes = [crowded(2, wanted=1)] * 3
    nodes, inventory, state, claims = build(on_nodes, AllocationStrategy.BEST_FIT)
    fleet = ClusterAllocator(inventory, CLASSES)
    among = np.array([2, 0])
    assert fleet.count_fits(claims, nodes, state, limit=5, node_rows=among).tolist() == [2, 0, 2]
    unknown_class = ClusterAllocator(inventory, {})
    assert unknown_class.count_fits(claims, nodes, state, limit=5).tolist() == [0, 0, 0]
    assert fleet.count_fits([], nodes, state, limit=5).tolist() == [5, 5, 5]


def test_a_changed_slice_changes_the_answer():
    nodes, inventory, state, claims = build([crowded(2, wanted=1)] * 2, AllocationStrategy.BEST_FIT)
    fleet = ClusterAllocator(inventory, CLASSES)
    assert fleet.count_fits(claims, nodes, state, limit=9).tolist() == [2, 2]
    for piece in as_slices(crowded(5, wanted=1), "n1"):
        inventory.put(piece)
    assert fleet.count_fits(claims, nodes, state, limit=9).tolist() == [2, 5]
