"""The measure of fragmentation against its definition, shape by shape and GPU by GPU."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.policy.score.fragmentation import (
    Parts,
    TargetWorkload,
    fragmentation,
    frugal,
    gradient,
    least_growth,
    sigmoid_levels,
)
from kai_py.policy.score.rooms import GpuAsk, GpuRooms

shapes = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.sampled_from([(0, 0), (1, 250), (1, 500), (1, 700), (1, 1000), (2, 1000), (4, 1000)]),
        st.integers(1, 5),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
machines = st.tuples(
    st.integers(0, 8), st.lists(st.sampled_from([0, 100, 250, 300, 500, 750, 1000]), min_size=4)
)


def workload(rows, nodes=1):
    everybody = sum(row[2] for row in rows)
    rows = [row for row in rows if row[1][0]]
    return TargetWorkload(
        cpu=np.array([row[0] for row in rows], dtype=float),
        devices=np.array([row[1][0] for row in rows], dtype=int),
        milli=np.array([row[1][1] for row in rows], dtype=float),
        share=np.array([row[2] / everybody for row in rows], dtype=float),
        accepts=np.array([[row[3] for row in rows]] * nodes, dtype=bool),
    )


def by_definition(target, cpu, parts):
    total = (1 - target.share.sum()) * sum(parts)
    for m, share in enumerate(target.share):
        large = [part for part in parts if part >= target.milli[m]]
        fits = target.accepts[0, m] and cpu >= target.cpu[m] and len(large) >= target.devices[m]
        wasted = [part for part in parts if part < target.milli[m]] if fits else parts
        total += share * sum(wasted)
    return total


def rooms(cpu, parts):
    return GpuRooms(
        rows=np.array([0]),
        cpu=np.array([float(cpu)]),
        parts=np.array([parts], dtype=float),
        devices=np.array([len(parts)]),
        classes=np.array([0]),
    )


def measured(target, cpu, parts):
    parts = Parts.of(target, np.array([parts], dtype=float))
    return fragmentation(target, np.array([0]), np.array([float(cpu)]), parts)[0]


@given(shapes, machines)
def test_the_measure_is_its_definition(rows, machine):
    target = workload(rows)
    assert measured(target, *machine) == pytest.approx(by_definition(target, *machine), abs=1e-5)


@settings(max_examples=200)
@given(shapes, machines, st.integers(0, 4), st.sampled_from([0, 1, 2, 300, 500]))
def test_growth_is_that_of_the_best_gpu(rows, machine, cpu, asked):
    target, (free, parts) = workload(rows), machine
    whole = asked if asked < 3 else 0
    milli = 1000 if asked < 3 else asked
    if cpu > free or sum(part >= milli for part in parts) < (whole or asked >= 3):
        return
    ask = GpuAsk(float(cpu), whole or int(asked >= 3), np.array([float(milli)]))
    growth, device = least_growth(ask, rooms(free, parts), target)
    before = by_definition(target, free, parts)
    options = {}
    if milli < 1000:
        for at, part in enumerate(parts):
            if part >= milli:
                after = [*parts[:at], part - milli, *parts[at + 1 :]]
                options[at] = by_definition(target, free - cpu, after) - before
    else:
        taken = [at for at, part in enumerate(parts) if part == 1000][:whole]
        after = [0 if at in taken else part for at, part in enumerate(parts)]
        options[-1] = by_definition(target, free - cpu, after) - before
    assert growth[0] == pytest.approx(min(options.values()), abs=1e-5)
    assert options[int(device[0])] == pytest.approx(min(options.values()), abs=1e-5)


def test_a_gpu_that_fits_exactly_is_filled():
    target = workload([(0, (1, 500), 1, True), (0, (1, 1000), 1, True)])
    ask = GpuAsk(0.0, 1, np.array([500.0]))
    scores = gradient(target)(ask, rooms(8, [1000, 500, 700, 0]))
    assert scores.device[0] == 1


def test_levels_are_whole_and_half_way_without_growth():
    growth = np.array([-1e4, -1000.0, 0.0, 1000.0, 1e4])
    levels = sigmoid_levels(growth, 100.0)
    assert levels.tolist() == [math.floor(100 / (1 + math.exp(g / 1000))) for g in growth]
    assert levels[2] == 50


def test_frugal_takes_the_smaller_of_equal_nodes_but_wastes_nothing_for_it():
    target = workload([(0, (1, 1000), 1, True)], nodes=3)
    machines = GpuRooms(
        rows=np.arange(3),
        cpu=np.full(3, 64.0),
        parts=np.array([[1000.0] * 4, [1000.0, 1000.0, 0, 0], [500.0, 0, 0, 0]]),
        devices=np.array([4, 2, 8]),
        classes=np.zeros(3, dtype=int),
    )
    whole = frugal(target)(GpuAsk(1.0, 1, np.full(3, 1000.0)), machines).level
    assert whole[1] > whole[0]
    half = frugal(target)(GpuAsk(1.0, 1, np.full(3, 500.0)), machines).level
    assert half.argmax() == 2
