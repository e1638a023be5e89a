"""The order of queues and of their gangs; all turns at once are those taken one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.policy.queue_limits import check_max
from kai_py.policy.queue_order import QueueOrder, gang_key, in_rotation, order_keys
from kai_py.policy.queue_usage import QueueUsage
from kai_py.policy.round_robin import GangCosts, cumulative_usage, round_robin_order
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.records import replace
from tests.support.worlds import gang

RESOURCES = ("cpu", "gpu")
INF = float("inf")


def stand(specs, held, fair, total=(100.0, 100.0)):
    """Standing from ``{queue: (cpu, gpu)}``."""
    table = build_queue_table(specs, RESOURCES)[0]

    def rows(by_queue):
        return np.array([by_queue.get(name, (0, 0)) for name in table.names], np.float64).T

    none = np.zeros((len(RESOURCES), len(table)))
    return QueueUsage(table, np.array(total), rows(held), none, rows(fair))


def first(standing, ask, rules=NATIVE):
    """The name of the next queue, for ``{leaf: (cpu, gpu)}``; both ways must agree."""
    queues = standing.queues
    request = np.zeros((len(RESOURCES), len(queues)))
    waiting = np.zeros(len(queues), bool)
    line = QueueOrder(standing, rules)
    for name, amounts in ask.items():
        at = queues.positions[name]
        request[:, at], waiting[at] = amounts, True
        line.update(at, request[:, at])
    leaf = next_queue(standing, request, waiting, rules)
    assert leaf == line.first()
    return None if leaf is None else queues.names[leaf]


def next_queue(standing, request, waiting, rules):
    """The leaf whose gang comes next, or None where no queue has any.

    ``waiting`` (queues,) marks the leaves with a gang, ``request`` (resources, queues) what it asks
    for. One vectorised pass over the tree; ``QueueOrder`` does the same step by step.
    """
    queues = standing.queues
    leaf = np.where(waiting, np.arange(len(queues)), -1)
    for level in reversed(list(queues.levels())):
        at = np.flatnonzero(leaf[level] >= 0).astype(np.int32) + level.start
        keys = order_keys(standing, at, request[:, leaf[at]], rules)
        parent = queues.parent[at]
        order = np.lexsort((*keys[::-1], parent))
        best = order[np.unique(parent[order], return_index=True)[1]]
        if level.start == 0:
            return int(leaf[at[best[0]]]) if len(best) else None
        leaf[parent[best]] = leaf[at[best]]
    return None


def two(**fields_of_b):
    shares = {"deserved": {"cpu": INF, "gpu": 4}}
    return [
        QueueInfo(name="a", created=1, **shares),
        QueueInfo(name="b", created=2, **(shares | fields_of_b)),
    ]


CASES = {
    "without a weight the surplus is for others, whatever the priority": (
        two(weight=0.0, priority=200),
        {"a": (0, 4), "b": (0, 4)},
        {"a": (9, 6), "b": (9, 4)},
        {"a": (0, 1), "b": (0, 1)},
        "a",
    ),
    "without a weight a queue has what it deserves by priority": (
        two(weight=0.0, priority=200),
        {"a": (0, 3), "b": (0, 3)},
        {"a": (9, 6), "b": (9, 4)},
        {"a": (0, 1), "b": (0, 1)},
        "b",
    ),
    "no gang waits": (two(), {}, {"a": (9, 9)}, {}, None),
    "older wins a tie": (two(), {}, {}, {"a": (0, 1), "b": (0, 1)}, "a"),
    "less of its due": (
        two(),
        {"a": (0, 2), "b": (0, 1)},
        {"a": (9, 8), "b": (9, 8)},
        {"a": (0, 1), "b": (0, 1)},
        "b",
    ),
    "smaller gang": (two(), {}, {"a": (9, 8), "b": (9, 8)}, {"a": (0, 2), "b": (0, 1)}, "b"),
    "higher priority": (
        two(priority=200),
        {"b": (0, 2)},
        {"a": (9, 8), "b": (9, 8)},
        {"a": (0, 1), "b": (0, 1)},
        "b",
    ),
    "guarantee before priority": (
        two(priority=200),
        {"b": (0, 4)},
        {"a": (9, 8), "b": (9, 8)},
        {"a": (0, 1), "b": (0, 1)},
        "a",
    ),
    "fair share before guarantee": (
        two(),
        {"a": (0, 3), "b": (0, 4)},
        {"a": (9, 2), "b": (9, 8)},
        {"a": (0, 1), "b": (0, 1)},
        "b",
    ),
    "what it may not hold goes last": (
        [QueueInfo(name=name, deserved={"cpu": 0}) for name in "ab"],
        {"a": (8, 0)},
        {"a": (8, 8), "b": (0, 8)},
        {"a": (1, 0), "b": (0.001, 0)},
        "a",
    ),
    "what it may not hold and does not ask for is of no importance": (
        [QueueInfo(name=name, deserved={"cpu": 0}) for name in "ab"],
        {"b": (0, 1)},
        {"a": (0, 8), "b": (8, 8)},
        {"a": (0, 1), "b": (0, 1)},
        "a",
    ),
    "a guarantee that is exceeded in what it does not ask for": (
        two(deserved={"cpu": 1, "gpu": 4}),
        {"a": (0, 3), "b": (2, 0)},
        {"a": (9, 9), "b": (9, 9)},
        {"a": (0, 1), "b": (0, 1)},
        "b",
    ),
    "a guarantee that is just reached": (
        two(deserved={"cpu": INF, "gpu": 0}),
        {"a": (0, 3)},
        {"a": (9, 8), "b": (9, 8)},
        {"a": (0, 1), "b": (0, 1)},
        "a",
    ),
    "weaker queue": (
        two(deserved={"cpu": INF, "gpu": 2}),
        {},
        {"a": (9, 0), "b": (9, 0)},
        {"a": (0, 0), "b": (0, 0)},
        "b",
    ),
}


@pytest.mark.parametrize(("specs", "held", "fair", "ask", "expected"), CASES.values(), ids=CASES)
def test_which_queue_goes_first(specs, held, fair, ask, expected):
    assert first(stand(specs, held, fair), ask) == expected


def test_profiles_differ_in_the_resources_that_count():
    standing = stand(two(), {"a": (9, 3)}, {"a": (5, 8), "b": (5, 8)})
    gpu_only = {"a": (0, 1), "b": (0, 2)}
    both = {"a": (1, 1), "b": (1, 2)}
    over_cpu = [
        order_keys(standing, np.array([0], np.int32), np.array(ask["a"], float)[:, None], rules)[0]
        for ask, rules in ((gpu_only, NATIVE), (both, NATIVE), (both, KAI))
    ]
    assert [bool(key[0]) for key in over_cpu] == [False, True, False]


def test_inner_queue_stands_for_its_best_child():
    specs = [
        QueueInfo(name="x", deserved={"gpu": 10}, created=1),
        QueueInfo(name="y", deserved={"gpu": 10}, created=2),
        QueueInfo(name="x1", parent="x", deserved={"gpu": 5}, created=3),
        QueueInfo(name="x2", parent="x", deserved={"gpu": 5}, created=4),
        QueueInfo(name="y1", parent="y", deserved={"gpu": 10}, created=5),
    ]
    held = {"x": (0, 6), "x1": (0, 1), "x2": (0, 5), "y": (0, 7), "y1": (0, 7)}
    fair = dict.fromkeys(("x", "y", "x1", "x2", "y1"), (0, 10))
    standing = stand(specs, held, fair)
    assert first(standing, {"x2": (0, 1), "x1": (0, 1), "y1": (0, 1)}) == "x1"
    assert first(standing, {"x1": (0, 3), "y1": (0, 1)}) == "y1"
    assert first(standing, {"x2": (0, 1)}) == "x2"


def test_victims_already_taken_lower_the_share():
    standing = stand(two(), {"a": (0, 4), "b": (0, 4)}, {"a": (9, 2), "b": (9, 2)})
    at = np.arange(2, dtype=np.int32)
    request = np.array([[0.0, 0.0], [1.0, 1.0]])
    released = np.array([[0.0, 0.0], [0.0, 2.0]])
    keys = order_keys(standing, at, request, NATIVE, released).T.tolist()
    assert max(keys) == keys[0]


amounts = st.tuples(st.integers(0, 6), st.sampled_from([0, 0.5, 1, 2, 4]))


@st.composite
def scenes(draw):
    names = [f"q{i}" for i in range(draw(st.integers(1, 8)))]
    bound = st.fixed_dictionaries(
        {name: st.sampled_from([0.0, 1.0, 3.0, INF]) for name in RESOURCES}
    )
    specs = [
        QueueInfo(
            name=name,
            parent=draw(st.sampled_from(["", *names[:i]])),
            deserved=draw(bound),
            max=draw(bound),
            weight=draw(st.sampled_from([0.0, 1.0])),
            priority=draw(st.sampled_from([1, 2])),
            created=draw(st.integers(0, 2)),
        )
        for i, name in enumerate(names)
    ]
    rows = st.fixed_dictionaries(dict.fromkeys(names, amounts))
    standing = stand(specs, draw(rows), draw(rows))
    leaves = np.flatnonzero(standing.queues.is_leaf).tolist()
    gang = st.one_of(st.none(), amounts)
    steps = st.lists(st.tuples(st.sampled_from(leaves), gang, amounts), max_size=12)
    return standing, draw(steps)


@given(scenes(), st.sampled_from([NATIVE, KAI]))
def test_line_equals_sorting_again_after_every_change(scene, rules):
    standing, steps = scene
    line = QueueOrder(standing, rules)
    waiting = np.zeros(len(standing.queues), bool)
    request = np.zeros(standing.allocated.shape)
    for leaf, size, started in steps:
        line_of = standing.queues.ancestors(leaf)
        standing.allocated[:, line_of] += np.array(started, np.float64)[:, None]
        waiting[leaf] = size is not None
        request[:, leaf] = size or 0
        line.update(leaf, None if size is None else request[:, leaf])
        assert line.first() == next_queue(standing, request, waiting, rules)


def test_thousands_of_steps_in_milliseconds():
    specs = [QueueInfo(name=f"d{i}", created=i) for i in range(10)]
    specs += [QueueInfo(name=f"q{i}", parent=f"d{i % 10}", created=i) for i in range(100)]
    standing = stand(specs, {}, {spec.name: (10, 10) for spec in specs})
    line = QueueOrder(standing, NATIVE)
    gang = np.array([1.0, 1.0])
    for leaf in np.flatnonzero(standing.queues.is_leaf):
        line.update(int(leaf), gang)
    with cpu_limit(processor_seconds(1.0)):
        for _ in range(4000):
            leaf = line.first()
            standing.allocated[:, standing.queues.ancestors(leaf)] += gang[:, None]
            line.update(leaf, gang)
    held = standing.allocated[0, standing.queues.is_leaf]
    assert (held == 40).all()


one_cost = st.tuples(st.sampled_from([0, 1, 0.1]), st.sampled_from([0, 0.5, 1, 0.3]))
sizes = st.lists(st.sampled_from([1, 1, 3, 0.7]), min_size=2, max_size=2)


def one_by_one(standing, waiting, costs, rules):
    line, left, order = QueueOrder(standing, rules), dict(waiting), []
    for leaf in waiting:
        line.update(leaf, costs.pod[:, leaf] * costs.pods[leaf])
    while (leaf := line.first()) is not None:
        cost = costs.pod[:, leaf] * costs.pods[leaf]
        if check_max(standing, leaf, cost) is not None:
            break
        order.append(leaf)
        left[leaf] -= 1
        for queue in standing.queues.ancestors(leaf):
            for _ in range(costs.pods[leaf]):
                standing.allocated[:, queue] += costs.pod[:, leaf]
        line.update(leaf, cost if left[leaf] else None)
    return order


@pytest.mark.slow
@given(scenes(), st.data(), one_cost, st.sampled_from([NATIVE, KAI]))
def test_turns_at_once_equal_the_line(scene, data, amounts, rules):
    standing, _ = scene
    leaves = np.flatnonzero(standing.queues.is_leaf).tolist()
    counts = st.dictionaries(st.sampled_from(leaves), st.integers(1, 9), min_size=1)
    waiting, pod = data.draw(counts), np.zeros((2, len(standing.queues)))
    pod[:, leaves] = np.transpose([np.multiply(amounts, data.draw(sizes)) for _ in leaves])
    pods = np.array([data.draw(st.sampled_from([1, 1, 3])) for _ in standing.queues.names])
    costs = GangCosts(pod, pods)
    at_once = round_robin_order(standing, waiting, costs, rules)
    held = standing.allocated.copy()
    for queue in range(len(standing.queues)):
        its = at_once[(standing.queues.path[at_once] == queue).any(axis=1)]
        held[:, queue] = cumulative_usage(held[:, queue], costs.by_pod(its))[:, -1]
    assert at_once.tolist() == one_by_one(standing, waiting, costs, rules)
    assert np.array_equal(standing.allocated, held)


def rank(each, served=0, gained=0):
    return gang_key(each, served, gained)


def test_priority_then_need_then_age_then_name():
    old, young = gang("old", pods=1), gang("young", pods=1, created=5)
    assert rank(gang("first", pods=1, priority=1, created=9)) < rank(old)
    assert rank(young, served=0) < rank(old, served=1) < rank(old, served=2)
    assert rank(old) < rank(young)
    assert rank(gang("a", pods=1)) < rank(gang("b", pods=1))


def test_what_was_gained_by_waiting_counts_like_priority():
    old, urgent = gang("old", pods=1), gang("urgent", pods=1, priority=10, created=1000)
    assert rank(urgent) < rank(old)
    assert rank(urgent) < rank(old, gained=9)
    assert rank(old, gained=10) < rank(urgent), "alike, and older"


def test_gangs_that_ran_out_come_last_and_the_longest_ago_first():
    a, b, c = (gang(name, pods=1) for name in "abc")
    assert in_rotation([a, b, c], {a.key: 7, b.key: 3}) == [[c], [b], [a]]
    assert in_rotation([], {}) == []


def test_a_gang_is_not_younger_for_being_renamed():
    each = gang("a", pods=1)
    assert rank(each)[:3] == rank(replace(each, key="z"))[:3]
