"""Parts of GPUs against a model that keeps a plain list of devices."""

from itertools import combinations_with_replacement

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import UNKNOWN_INDEX, GpuShare
from kai_py.api.references import PodRef
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.gpu_sharing import SharedGpus
from kai_py.snapshot.gangs import Member, PodState
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.shared_gpus import GpuSharing
from tests.support.examples import examples

MIB = 100.0


def member(name, portion, devices=1):
    share = GpuShare(fraction=portion, devices=devices)
    shape = Shape(number=0, requests={}, gpu_share=share)
    return Member(
        pod=PodRef("", name, name),
        shape=shape,
        subgroup="",
        state=PodState.PENDING,
        node="",
        nominated="",
        priority=0,
        created=0.0,
        bound_since=0.0,
        charge={},
    )


def gpus(nodes=1):
    return SharedGpus(
        GpuSharing(memory=np.full(nodes, MIB), memory_known=np.ones(nodes, dtype=bool))
    )


def most_pods(free, need, parts):
    """By trying: the pods that can each have ``need`` of ``parts`` distinct devices."""

    def fits(pods, slots):
        if pods == 0:
            return True
        order = sorted(range(len(slots)), key=lambda i: -slots[i])[:parts]
        if len(order) < parts or any(slots[i] < 1 for i in order):
            return False
        return fits(pods - 1, [n - (i in order) for i, n in enumerate(slots)])

    slots = [int((each + 1e-6) // need) for each in free]
    count = 0
    while fits(count + 1, slots):
        count += 1
    return count


tenths = st.integers(1, 9)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(tenths, max_size=5), st.integers(0, 3), tenths, st.integers(1, 3))
def test_capacity_is_what_trying_finds(taken, whole, portion, parts):
    shared = gpus()
    for i, used in enumerate(taken):
        opened = shared.allocate(
            member(f"p{i}", used / 10), 0, Capacity.IDLE, 1.0, FillStrategy.SPREAD
        )
        assert opened is not None
        assert opened.opened == 1
    share = GpuShare(fraction=portion / 10, devices=parts)
    found = shared.replicas(share, np.array([float(whole)]), Capacity.IDLE, 50)
    free = [MIB * (1 - used / 10) for used in taken]
    assert found.total[0] == most_pods(free + [MIB] * whole, MIB * portion / 10, parts)
    assert found.shared[0] == most_pods(free, MIB * portion / 10, parts)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(tenths, st.integers(1, 2), st.booleans()), max_size=12),
    st.sampled_from(list(FillStrategy)),
)
def test_no_gpu_is_given_out_twice(asked, strategy):
    shared, whole = gpus(), 4
    used: dict[str, float] = {}
    undo = []
    for i, (tenth, devices, keep) in enumerate(asked):
        before = shared.replicas(
            GpuShare(fraction=0.1), np.array([float(whole)]), Capacity.IDLE, 99
        )
        taken = shared.allocate(
            member(f"p{i}", tenth / 10, devices), 0, Capacity.IDLE, float(whole), strategy
        )
        if taken is None:
            continue
        if not keep:
            taken.undo()
            after = shared.replicas(
                GpuShare(fraction=0.1), np.array([float(whole)]), Capacity.IDLE, 99
            )
            assert np.array_equal(after.total, before.total)
            continue
        undo.append(taken.undo)
        whole -= taken.opened
        assert len({gpu.group for gpu in taken.gpus}) == devices
        for gpu in taken.gpus:
            used[gpu.group] = used.get(gpu.group, 0.0) + tenth / 10
    assert whole >= 0
    assert len(used) == 4 - whole
    assert all(amount <= 1 + 1e-9 for amount in used.values())
    for step in reversed(undo):
        step()
    assert not shared.replicas(GpuShare(fraction=0.1), np.zeros(1), Capacity.IDLE, 99).total[0]


def test_packing_joins_the_fullest_gpu_that_has_capacity_and_spreading_opens_another():
    shared = gpus()
    for i, used in enumerate((0.5, 0.7, 0.9)):
        shared.allocate(member(f"p{i}", used), 0, Capacity.IDLE, 1.0, FillStrategy.SPREAD)
    packed = shared.allocate(member("x", 0.2), 0, Capacity.IDLE, 5.0, FillStrategy.BINPACK)
    assert [gpu.group for gpu in packed.gpus] == ["p1"]
    packed.undo()
    spread = shared.allocate(member("x", 0.2), 0, Capacity.IDLE, 5.0, FillStrategy.SPREAD)
    assert spread.opened == 1
    spread.undo()
    full = shared.allocate(member("x", 0.2), 0, Capacity.IDLE, 0.0, FillStrategy.SPREAD)
    assert [gpu.group for gpu in full.gpus] == ["p0"]


def test_a_gpu_that_is_still_to_be_freed_can_be_shared_only_later():
    shared = gpus()
    first = shared.allocate(member("a", 0.5), 0, Capacity.FUTURE_IDLE, 1.0, FillStrategy.BINPACK)
    assert first.opened == 1
    half = GpuShare(fraction=0.5)
    assert shared.replicas(half, np.zeros(1), Capacity.IDLE, 9).total[0] == 0
    assert shared.replicas(half, np.zeros(1), Capacity.FUTURE_IDLE, 9).total[0] == 1


def test_indices_are_the_lowest_that_no_pod_has():
    shared = gpus()
    first = shared.allocate(member("a", 0.9), 0, Capacity.IDLE, 9.0, FillStrategy.BINPACK)
    second = shared.allocate(member("b", 0.9, 2), 0, Capacity.IDLE, 9.0, FillStrategy.BINPACK)
    assert [gpu.index for gpu in (*first.gpus, *second.gpus)] == [0, 1, 2]


def test_an_amount_of_memory_needs_a_node_that_says_how_much_it_has():
    sharing = GpuSharing(memory=np.array([100.0, 300.0]), memory_known=np.array([False, True]))
    found = SharedGpus(sharing).replicas(GpuShare(memory=100), np.ones(2), Capacity.IDLE, 9)
    assert found.total.tolist() == [0, 3]


def test_a_shared_gpu_that_ends_on_such_a_node_has_no_capacity():
    sharing = GpuSharing(
        memory=np.array([100.0]),
        memory_known=np.array([False]),
        rows=np.zeros(1, dtype=np.int64),
        groups=np.array(["a"], dtype=object),
        index=np.zeros(1, dtype=np.int64),
        used=np.full(1, 50.0),
        releasing=np.full(1, 50.0),
        remaining_pods=np.zeros(1, dtype=np.int64),
        fully_releasing=np.ones(1, dtype=bool),
    )
    found = SharedGpus(sharing).replicas(GpuShare(memory=100), np.ones(1), Capacity.FUTURE_IDLE, 9)
    assert found.total.tolist() == found.shared.tolist() == [0]


def test_sums_of_portions_fill_a_gpu_exactly():
    for portions in combinations_with_replacement((0.1, 0.2, 0.3, 0.4), 4):
        if sum(portions) > 1 + 1e-9:
            continue
        shared = gpus()
        for i, portion in enumerate(portions):
            assert shared.allocate(
                member(f"p{i}", portion), 0, Capacity.IDLE, 1.0 * (i == 0), FillStrategy.BINPACK
            )


def test_of_alike_gpus_one_is_taken_whatever_the_order_of_the_columns():
    def joined(groups):
        shared = SharedGpus(
            GpuSharing(
                memory=np.full(1, MIB),
                memory_known=np.ones(1, dtype=bool),
                rows=np.zeros(2, dtype=np.int64),
                groups=np.array(groups, dtype=object),
                index=np.full(2, UNKNOWN_INDEX),
                used=np.full(2, 20.0),
                releasing=np.zeros(2),
                remaining_pods=np.ones(2, dtype=np.int64),
                fully_releasing=np.zeros(2, dtype=bool),
            )
        )
        return (
            shared.allocate(member("p", 0.2), 0, Capacity.IDLE, 0.0, FillStrategy.BINPACK)
            .gpus[0]
            .group
        )

    assert joined(["a", "b"]) == joined(["b", "a"]) == "a"
