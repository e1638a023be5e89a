import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.snapshot.tables.queue_checks import MAX_DEPTH, MAX_WEIGHT
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import (
    DeviceLimit,
    QueueFault,
    QueueInfo,
    QueueInfos,
    inherited,
)
from tests.support.records import replace

RESOURCES = ("cpu", "gpu")


def build(*specs):
    return build_queue_table(specs, RESOURCES)


def test_levels_siblings_and_paths():
    table, problems = build(
        QueueInfo(name="b1", parent="b", created=3),
        QueueInfo(name="a", created=2),
        QueueInfo(name="b", created=1),
        QueueInfo(name="a2", parent="a", created=5),
        QueueInfo(name="a1", parent="a", created=4),
        QueueInfo(name="deep", parent="b1", created=0),
    )
    assert problems == ()
    assert table.names == ("b", "a", "b1", "a1", "a2", "deep")
    assert table.parent.tolist() == [-1, -1, 0, 1, 1, 2]
    assert table.depth.tolist() == [0, 0, 1, 1, 1, 2]
    assert [(level.start, level.stop) for level in table.levels()] == [(0, 2), (2, 5), (5, 6)]
    assert [table.names[q] for q in table.ancestors(5)] == ["b", "b1", "deep"]
    assert table.names[table.child_start[1] : table.child_end[1]] == ("a1", "a2")
    assert table.is_leaf.tolist() == [False, False, False, True, True, True]
    assert table.creation_order.tolist() == [1, 2, 3, 4, 5, 0]


def test_silence_rations_no_base_resource_and_guarantees_no_other():
    silent, _ = build(QueueInfo(name="q"))
    assert silent.deserved[:, 0].tolist() == [np.inf, 0]
    table, _ = build(
        QueueInfo(name="q", deserved={"cpu": 0, "gpu": 8}, weight=2, weights={"gpu": 5})
    )
    assert table.deserved[:, 0].tolist() == [0, 8]
    assert table.max[:, 0].tolist() == [np.inf, np.inf]
    assert table.weight[:, 0].tolist() == [2, 5]


def test_no_queues_make_an_empty_table():
    table, problems = build()
    assert (len(table), problems) == (0, ())
    assert table.subtree_sums(np.zeros((2, 0))).shape == (2, 0)
    assert list(table.levels()) == []


def test_w25_queue_without_parent_stays_as_orphan_with_its_subtree():
    table, problems = build(
        QueueInfo(name="lost", parent="gone"),
        QueueInfo(name="below", parent="lost"),
        QueueInfo(name="fine"),
    )
    assert [(problem.queue, problem.fault) for problem in problems] == [
        ("lost", QueueFault.MISSING_PARENT)
    ]
    assert "'gone' does not exist" in problems[0].reason
    assert table.parent[table.positions["lost"]] == -1
    assert table.names[table.parent[table.positions["below"]]] == "lost"
    own = np.array([[0.0, 0.0, 3.0], [0.0, 0.0, 1.0]])
    assert table.subtree_sums(own)[:, table.positions["lost"]].tolist() == [3, 1]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_w25_members_of_a_cycle_become_roots(size):
    ring = [QueueInfo(name=f"q{i}", parent=f"q{(i + 1) % size}") for i in range(size)]
    table, problems = build(*ring, QueueInfo(name="child", parent="q0"))
    assert [problem.fault for problem in problems] == [QueueFault.CYCLE] * size
    assert table.parent[: table.positions["child"]].tolist() == [-1] * size
    assert table.names[table.parent[table.positions["child"]]] == "q0"


def test_of_two_declarations_the_older_counts():
    table, problems = build(
        QueueInfo(name="q", created=2, priority=1), QueueInfo(name="q", created=1, priority=7)
    )
    assert (table.names, table.priority.tolist()) == (("q",), [7])
    assert problems[0].fault is QueueFault.DUPLICATE


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (QueueInfo(name="q", deserved={"gpu": -2}), "spec.deservedGPUs"),
        (QueueInfo(name="q", max={"cpu": float("nan")}), "spec.resources[cpu].max"),
        (QueueInfo(name="q", weight=float("inf")), "spec.weight"),
    ],
)
def test_impossible_numbers_count_as_none_and_are_reported(spec, field):
    table, problems = build(spec)
    assert problems[0].fault is QueueFault.INVALID_AMOUNT
    assert f"queue 'q': {field} is" in problems[0].reason
    finite = np.nan_to_num(np.stack([table.deserved, table.max, table.weight]), posinf=0)
    assert (finite >= 0).all()


names = st.sampled_from([f"q{i}" for i in range(12)])
forests = st.lists(
    st.builds(
        QueueInfo, name=names, parent=st.one_of(st.just(""), names), created=st.integers(0, 3)
    ),
    max_size=14,
)


@given(forests, st.randoms(use_true_random=False))
def test_any_listing_gives_the_same_table(specs, chance: random.Random):
    shuffled = list(specs)
    chance.shuffle(shuffled)
    first, first_problems = build(*specs)
    second, second_problems = build(*shuffled)
    assert first.names == second.names
    assert first.parent.tolist() == second.parent.tolist()
    assert first_problems == second_problems


@given(forests)
def test_every_queue_stays_and_sums_reach_the_roots(specs):
    table, _ = build(*specs)
    assert set(table.names) == {spec.name for spec in specs}
    assert (table.parent < np.arange(len(table))).all()
    own = np.arange(2.0 * len(table)).reshape(2, len(table))
    sums = table.subtree_sums(own)
    for queue in range(len(table)):
        below = [q for q in range(len(table)) if queue in table.ancestors(q)]
        assert sums[:, queue].tolist() == own[:, below].sum(axis=1).tolist()
        assert table.depth[queue] == len(table.ancestors(queue)) - 1


def chain(depth):
    names = [f"q{number}" for number in range(depth)]
    return [
        QueueInfo(name=name, parent=parent)
        for name, parent in zip(names, ("", *names), strict=False)
    ]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_tree_of_5000_levels_is_cut_and_the_queues_at_the_cuts_say_so(reverse):
    table, problems = build(*chain(5000)[:: -1 if reverse else 1])
    assert len(table) == 5000
    assert table.path.shape[1] == MAX_DEPTH + 1
    assert {problem.fault for problem in problems} == {QueueFault.TOO_DEEP}
    cut = {f"q{level}" for level in range(MAX_DEPTH + 1, 5000, MAX_DEPTH + 1)}
    assert {problem.queue for problem in problems} == cut


@pytest.mark.slow
def test_a_cycle_of_5000_queues_is_told_briefly():
    ring = [QueueInfo(name=f"q{n}", parent=f"q{(n + 1) % 5000}") for n in range(5000)]
    _, problems = build(*ring)
    assert {problem.fault for problem in problems} == {QueueFault.CYCLE}
    assert max(len(problem.reason) for problem in problems) < 300


def test_inheritance_passes_through_5000_levels_once():
    specs = chain(5000)
    specs[0] = replace(specs[0], ageing=7.0)
    assert inherited(reversed(specs), lambda spec: spec.ageing) == {s.name: 7.0 for s in specs}


LOWEST, HIGHEST = -(2**31), 2**31 - 1


@pytest.mark.parametrize(
    ("written", "counts"),
    [(LOWEST, None), (HIGHEST, None), (HIGHEST + 1, HIGHEST), (-(2**40), LOWEST)],
)
def test_the_priorities_that_the_crd_admits_count_and_others_are_named_as_written(written, counts):
    table, problems = build(QueueInfo(name="q", priority=written))
    assert table.priority.tolist() == [written if counts is None else counts]
    said = [] if counts is None else [f"is {written}, must be", f"treated as {counts}"]
    assert len(problems) == bool(said)
    assert all(each in problems[0].reason for each in said)


def test_absurd_weights_and_priorities_are_cut_and_told():
    table, problems = build(
        QueueInfo(name="a", weight=1e308, priority=10**30), QueueInfo(name="b", weight=1e308)
    )
    assert table.weight.max() == MAX_WEIGHT
    assert table.priority.max() == 2**31 - 1
    assert [(p.queue, p.fault) for p in problems] == [
        ("a", QueueFault.INVALID_AMOUNT),
        ("a", QueueFault.INVALID_AMOUNT),
        ("b", QueueFault.INVALID_AMOUNT),
    ]


def test_device_limits_are_read_again_only_where_those_of_a_queue_changed():
    """They are those of all queues: reading them for each of thousands takes long."""
    limit = DeviceLimit(attribute="product", values=("H100",))
    told: list[list[DeviceLimit]] = []
    table = QueueInfos(lambda each: each, None, lambda limits: told.append(list(limits)))
    plain = QueueInfo(name="plain")
    counting = QueueInfo(name="counting", device_limits=(limit,))
    table.apply("queues", None, plain)
    table.apply("queues", plain, replace(plain, priority=7))
    assert told == []
    table.apply("queues", None, counting)
    table.apply("queues", counting, replace(counting, priority=7))
    assert told == [[limit]]
    table.apply("queues", counting, replace(counting, device_limits=()))
    assert told == [[limit], []]
    table.apply("queues", None, counting)
    table.apply("queues", counting, None)
    assert told == [[limit], [], [limit], []]
