"""Measures of waste against their definitions, shape by shape and GPU by GPU."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.policy.score.fragmentation import (
    fragmentation,
    least_growth,
    least_growth_score,
    sigmoid_scores,
    stranded,
)
from kai_py.policy.score.node_capacity import GpuRequest, NodeCapacity
from kai_py.policy.score.workload import (
    FreeCapacity,
    FreeGpus,
    PodShapes,
    TargetWorkload,
    scarcity_weights,
)
from tests.support.examples import examples

SUPPLY = [0.0, 0.25, 1.0]

shapes = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 8), st.integers(0, 3)),
        st.sampled_from([(0, 0), (1, 250), (1, 500), (1, 700), (1, 1000), (2, 1000), (4, 1000)]),
        st.integers(1, 5),
        st.booleans(),
        st.sampled_from(SUPPLY),
    ),
    min_size=1,
    max_size=5,
)
machines = st.tuples(
    st.tuples(st.integers(0, 8), st.integers(0, 8)),
    st.lists(st.sampled_from([0, 100, 250, 300, 500, 750, 1000]), min_size=4),
)


def listed(rows, nodes=1):
    """Shapes as the measures take them; ``rows``: (cpu, memory), GPUs, pods, accepted, supply."""
    total = sum(row[2] for row in rows)
    rows = [row for row in rows if row[1][0]]
    return PodShapes(
        cpu=np.array([row[0][0] for row in rows], dtype=float),
        memory=np.array([row[0][1] for row in rows], dtype=float),
        devices=np.array([row[1][0] for row in rows], dtype=int),
        milli=np.array([row[1][1] for row in rows], dtype=float),
        share=np.array([row[2] / total for row in rows], dtype=float),
        supply=np.array([row[4] for row in rows], dtype=float),
        accepts=np.array([[row[3] for row in rows]] * nodes, dtype=bool),
    )


def fragmented(target, idle, parts):
    """F by its definition."""
    total = (1 - target.share.sum()) * sum(parts)
    for m, share in enumerate(target.share):
        large = [part for part in parts if part >= target.milli[m]]
        enough = idle[0] >= target.cpu[m] and len(large) >= target.devices[m]
        wasted = [p for p in parts if p < target.milli[m]]
        total += share * sum(wasted if target.accepts[0, m] and enough else parts)
    return total


def lost(target, idle, parts):
    """The waste of the frugal strategy by its definition."""
    weights, total = scarcity_weights(target.share, target.supply), float(sum(parts))
    for m, weight in enumerate(weights):
        milli, devices = target.milli[m], target.devices[m]
        copies = sum(part // milli for part in parts) // devices
        for free, asked in zip(idle, (target.cpu[m], target.memory[m]), strict=True):
            copies = min(copies, free // asked) if asked else copies
        if not target.accepts[0, m]:
            copies = 0
        large = [part for part in parts if part >= milli]
        opened = sum(large) if copies and len(large) >= devices else 0
        total -= weight * (9 * opened + copies * devices * milli) / 10
    return total


MEASURES = {fragmentation: fragmented, stranded: lost}


def node_capacity(idle, parts):
    return NodeCapacity(
        rows=np.array([0]),
        cpu=np.array([float(idle[0])]),
        memory=np.array([float(idle[1])]),
        free_milli=np.array([parts], dtype=float),
        devices=np.array([len(parts)]),
    )


def measured(waste, target, idle, parts):
    workload, seen = TargetWorkload.from_shapes(target), node_capacity(idle, parts)
    counted = FreeGpus(workload, seen.free_milli)
    return waste(workload, FreeCapacity(seen.rows, seen.cpu, seen.memory, counted))[0]


@given(shapes, machines, st.sampled_from(list(MEASURES)))
def test_a_measure_is_its_definition(rows, machine, waste):
    target = listed(rows)
    found = measured(waste, target, *machine)
    assert found == pytest.approx(MEASURES[waste](target, *machine), abs=1e-5)


@settings(max_examples=examples(200))
@given(
    shapes,
    machines,
    st.integers(0, 4),
    st.sampled_from([0, 1, 2, 300, 500]),
    st.sampled_from(list(MEASURES)),
)
def test_growth_is_that_of_the_best_gpu(rows, machine, cpu, asked, waste):
    target, (free, parts) = listed(rows), machine
    whole = asked if asked < 3 else 0
    milli = 1000 if asked < 3 else asked
    if cpu > min(free) or sum(part >= milli for part in parts) < (whole or asked >= 3):
        return
    ask = GpuRequest(float(cpu), float(cpu), whole or int(asked >= 3), np.array([float(milli)]))
    growth, device = least_growth(
        ask, node_capacity(free, parts), TargetWorkload.from_shapes(target), waste
    )
    define, left = MEASURES[waste], (free[0] - cpu, free[1] - cpu)
    before = define(target, free, parts)
    options = {}
    if milli < 1000:
        for at, part in enumerate(parts):
            if part >= milli:
                after = [*parts[:at], part - milli, *parts[at + 1 :]]
                options[at] = define(target, left, after) - before
    else:
        taken = [at for at, part in enumerate(parts) if part == 1000][:whole]
        after = [0 if at in taken else part for at, part in enumerate(parts)]
        options[-1] = define(target, left, after) - before
    assert growth[0] == pytest.approx(min(options.values()), abs=1e-5)
    assert options[int(device[0])] == pytest.approx(min(options.values()), abs=1e-5)


@pytest.mark.parametrize(
    ("supply", "weights"),
    [
        ([1.0, 1.0, 1.0], [0.25, 0.25, 0.25]),
        ([0.25, 1.0, 0.0], [0.5, 0.25, 0.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    ],
)
def test_the_scarce_count_more_and_those_that_no_node_holds_nothing(supply, weights):
    """A quarter of the pods asks for no GPU and keeps its part."""
    found = scarcity_weights(np.full(3, 0.25), np.array(supply))
    assert found.tolist() == pytest.approx(weights)


@pytest.mark.parametrize("waste", MEASURES)
def test_a_gpu_that_fits_exactly_is_filled(waste):
    rows = [((0, 0), (1, 500), 1, True, 1.0), ((0, 0), (1, 1000), 1, True, 1.0)]
    ask = GpuRequest(0.0, 0.0, 1, np.array([500.0]))
    score = least_growth_score(TargetWorkload.from_shapes(listed(rows)), waste)
    assert score(ask, node_capacity((8, 8), [1000, 500, 700, 0])).gpu[0] == 1


def test_levels_are_whole_and_half_way_without_growth():
    growth = np.array([-1e4, -1000.0, 0.0, 1000.0, 1e4])
    levels = sigmoid_scores(growth)
    assert levels.tolist() == [math.floor(100 / (1 + math.exp(g / 1000))) for g in growth]
    assert levels[2] == 50


def machines_of(cpu, memory):
    nodes = len(cpu)
    return NodeCapacity(
        rows=np.arange(nodes),
        cpu=np.array(cpu, dtype=float),
        memory=np.array(memory, dtype=float),
        free_milli=np.full((nodes, 4), 1000.0),
        devices=np.full(nodes, 4),
    )


@pytest.mark.parametrize("short", ["cpu", "memory"])
def test_frugal_keeps_cores_and_memory_for_all_gpus_of_a_node(short):
    """Both nodes still hold one such pod afterwards; only one of them four."""
    rows = [((2, 2), (1, 1000), 1, True, 1.0)]
    workload = TargetWorkload.from_shapes(listed(rows, nodes=2))
    amounts = {"cpu": [12, 12], "memory": [12, 12], short: [8, 12]}
    seen = machines_of(amounts["cpu"], amounts["memory"])
    ask = GpuRequest(4.0, 4.0, 0, np.full(2, 1000.0))
    frugal = least_growth_score(workload, stranded)(ask, seen).score
    assert frugal[1] > frugal[0]
    plain = least_growth_score(workload, fragmentation)(ask, seen).score
    assert plain[0] == plain[1]


def test_frugal_leaves_the_rare_model_to_pods_that_need_it():
    """As many pods need the second node as can't use it; only one GPU in four is there."""
    rows = [((0, 0), (1, 1000), 1, True, 1.0)] * 2
    target = listed(rows, nodes=2)
    target.accepts[:] = [[True, False], [False, True]]
    target.supply[:] = [0.75, 0.25]
    seen = machines_of([8, 8], [8, 8])
    ask = GpuRequest(0.0, 0.0, 1, np.full(2, 1000.0))
    growth = {
        waste: least_growth(ask, seen, TargetWorkload.from_shapes(target), waste)[0]
        for waste in MEASURES
    }
    assert growth[stranded][0] < growth[stranded][1]
    assert growth[fragmentation][0] == growth[fragmentation][1]
