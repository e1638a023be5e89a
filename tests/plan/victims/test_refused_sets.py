"""Where fairness refuses the first victims found, others that it allows are found."""

from itertools import combinations
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_py.plan.plan import Action
from kai_py.plan.victims.search import SearchOutcome, VictimSearch
from kai_py.plan.victims.units import is_evicted_with
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.scenario import evicted
from tests.support.worlds import at_node, gang, world

ACTIONS = (Action.ALLOCATE, Action.RECLAIM)
TREE = (("a", ""), ("b", ""), ("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c", ""))
LEAVES = ("a1", "a2", "b1", "b2", "c")
NOW = 5000.0
MAX_UNITS = 8


def queue_of(name, deserved, parent=""):
    return QueueInfo(name=name, parent=parent, deserved={"gpu": float(deserved)})


def on_nodes(name, nodes, **options):
    made = gang(name, pods=len(nodes), **options)
    pods = tuple(at_node(m, node) for m, node in zip(made.members, nodes, strict=True))
    return replace(made, members=pods)


def tried_sets(before):
    """The outcomes of all sets of victims that were tried, and the plan."""
    outcomes, original = [], VictimSearch._try_victims

    def record(search, units):
        tried = original(search, units)
        outcomes.append(tried.outcome)
        return tried

    with patch.object(VictimSearch, "_try_victims", record):
        plan = before.plan(NOW)
    return outcomes, plan


def mixed_nodes(surplus, *, pods=1, nodes=16, age=0):
    """Nodes of four GPUs with pods of queues x and y; on the last node both may lose theirs.

    The pods of all other nodes are younger, and all of one queue; the pods of each node differ in
    age by ``age`` seconds.
    """
    names = {f"n{i:02d}": 4 for i in range(nodes)}
    running = [
        gang(f"{name}-{i}", node=name, pods=1, queue="xy"[at % 2], created=400 - at - i * age)
        for at, name in enumerate(list(names)[:-1])
        for i in range(4)
    ]
    running += [
        gang(f"last-{i}", node=f"n{nodes - 1:02d}", pods=1, queue="xy"[i % 2], created=i)
        for i in range(4)
    ]
    has = [sum(each.queue == queue for each in running) for queue in "xy"]
    queues = [queue_of(queue, n - surplus) for queue, n in zip("xy", has, strict=True)]
    wants = gang("wants", gpus=4, pods=pods, queue="r", created=500)
    return world(names, *running, wants, queues=[*queues, queue_of("r", 8)], actions=ACTIONS)


def test_the_only_node_that_queues_may_lose_is_found_after_one_refused_set():
    outcomes, plan = tried_sets(mixed_nodes(2))
    assert outcomes == [SearchOutcome.REFUSED, SearchOutcome.PLACED]
    assert evicted(plan) == ["last-0-0", "last-1-0", "last-2-0", "last-3-0"]


def test_what_a_first_pod_takes_is_not_allowed_to_a_second():
    assert not evicted(mixed_nodes(2, pods=2).plan(NOW))
    assert len(evicted(mixed_nodes(4, pods=2).plan(NOW))) == 8


@pytest.mark.parametrize(("surplus", "sets"), [(0, 2), (1, 4)])
def test_a_reclaim_ends_after_few_refused_sets_of_many_units(surplus, sets):
    """One set for each queue is enough to see that its queue can lose nothing at all."""
    before = mixed_nodes(surplus, nodes=100, age=100)
    outcomes, plan = tried_sets(before)
    assert outcomes == [SearchOutcome.REFUSED] * sets
    (unplaced,) = plan.unplaced
    assert "its deserved quota" in unplaced.message


def test_the_pod_that_brings_its_queue_below_its_share_comes_last():
    """``old`` and then ``pair`` may leave, ``young`` and then ``old`` may not."""
    running = [
        on_nodes("young", ["c"], gpus=2, queue="x", created=9),
        on_nodes("old", ["c"], gpus=1, queue="x", created=8),
        on_nodes("pair", ["a", "c", "c"], gpus=1, queue="x", created=7),
    ]
    wants = gang("wants", gpus=3, pods=1, queue="r", created=200)
    queues = [queue_of("x", 4), queue_of("r", 5)]
    before = world({"a": 1, "c": 5}, *running, wants, queues=queues, actions=ACTIONS)
    assert evicted(before.plan(NOW)) == ["old-0", "pair-0", "pair-1", "pair-2"]


@st.composite
def worlds(draw):
    """Nodes full of gangs of queues that have little to give, and a gang of another queue."""
    nodes = {f"n{i}": draw(st.integers(2, 5)) for i in range(draw(st.integers(2, 3)))}
    givers = draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=3))
    free, running = dict(nodes), []
    while any(free.values()) and len(running) < MAX_UNITS:
        gpus, where = draw(st.sampled_from([1, 1, 1, 2, 3])), []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            fitting = [name for name, left in free.items() if left >= gpus]
            if fitting:
                where.append(draw(st.sampled_from(fitting)))
                free[where[-1]] -= gpus
        if where:
            floor = draw(st.sampled_from([len(where), len(where), 0, 1]))
            queue, created = draw(st.sampled_from(givers)), draw(st.integers(0, 40))
            name, priority = f"r{len(running)}", draw(st.sampled_from([0, 0, 1]))
            options = {"gpus": gpus, "queue": queue, "created": created, "priority": priority}
            running.append(on_nodes(name, where, floor=floor, **options))
        elif draw(st.booleans()):
            break
    taker = draw(st.sampled_from(("a1", "b1", "c", "d", "d")))
    queues = [*(_poor_queue(draw, *each, taker, running) for each in TREE), queue_of("d", 9)]
    wants = gang(
        "wants",
        gpus=draw(st.integers(1, 4)),
        pods=draw(st.sampled_from([1, 1, 2, 3])),
        queue=taker,
        created=100,
    )
    return world(nodes, *running, wants, queues=queues, actions=ACTIONS)


def _poor_queue(draw, name, parent, taker, running):
    has = sum(
        m.charge["gpu"] for each in running if each.queue.startswith(name) for m in each.members
    )
    if taker.startswith(name):
        return queue_of(name, has + draw(st.sampled_from([3, 4, 12])), parent)
    deserved = has - draw(st.sampled_from([0, 1, 1, 2, 3, has])) if has else 0
    return queue_of(name, max(deserved, 0), parent)


def some_allowed_set(search, units):
    """A set of ``units`` that the request needs and fairness allows, none of them relocated."""
    state, trials = search._state, search.trials
    fitting = []
    for chosen in (each for n in range(len(units) + 1) for each in combinations(units, n)):
        if any(unit not in chosen and is_evicted_with(unit, chosen) for unit in units):
            continue
        if any(set(each) <= set(chosen) for each in fitting):
            continue
        with state.statement.trial():
            if trials.place(chosen, explain=False):
                fitting.append(chosen)
                if search.strategy.refused_unit(chosen) is None:
                    return chosen
    return None


@pytest.mark.slow
@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@given(worlds())
def test_a_set_that_fairness_allows_is_found_if_there_is_one(before):
    original = VictimSearch.run

    def run(search, candidates):
        units = list(candidates)
        if len(units) > MAX_UNITS or any(unit.is_partial for unit in units):
            return original(search, units)
        probes = search.trials.probes
        allowed = some_allowed_set(search, units)
        search.trials.probes = probes
        outcome = original(search, units)
        assert allowed is None or outcome is SearchOutcome.PLACED
        return outcome

    with patch.object(VictimSearch, "run", run):
        assert not before.plan(NOW).set_aside
