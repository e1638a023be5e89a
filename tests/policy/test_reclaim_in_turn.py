"""One answer for many gangs is yes only where each of them, asked in its turn, hears yes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.policy.fairness_rules import KAI, NATIVE
from kai_py.policy.reclaim_batch import may_reclaim_batch
from kai_py.policy.reclaim_rules import check_reclaim, check_reclaimer, reclaimable_queues
from kai_py.snapshot.tables.queues import QueueInfo
from tests.policy.test_reclaim_rules import RESOURCES, as_victims, asks, queue, stand
from tests.support.examples import examples
from tests.support.records import replace

TREE = (("x", ""), ("y", ""), ("x1", "x"), ("x2", "x"), ("y1", "y"), ("z", ""))
LEAVES = ("x1", "x2", "y1", "z")
INF = float("inf")


@st.composite
def scenes(draw):
    few = st.integers(0, 5)
    bound = st.sampled_from([0.0, 2.0, 4.0, INF])
    most = st.sampled_from([3.0, INF, INF])
    specs = [
        QueueInfo(
            name=name,
            parent=parent,
            deserved={each: draw(bound) for each in RESOURCES},
            max={each: draw(most) for each in RESOURCES},
        )
        for name, parent in TREE
    ]
    own = {name: (draw(few), draw(few)) for name in LEAVES[1:]}
    fair = {name: (draw(st.integers(0, 9)), draw(st.integers(0, 9))) for name, _ in TREE}
    standing = stand(specs, own, fair)
    reclaimer = asks(standing, "x1", cpu=draw(st.integers(0, 1)))
    leaf = st.sampled_from([standing.queues.positions[name] for name in LEAVES[1:]])
    amount = st.sampled_from([(0, 1), (1, 1), (1, 2), (2, 0)])
    steps = st.lists(st.one_of(st.none(), st.tuples(leaf, amount)), min_size=1, max_size=4)
    return standing, reclaimer, draw(steps)


def each_in_its_turn(standing, reclaimer, steps, rules):
    """Also no where the queues that may be asked change: others would have come first."""
    queues = standing.queues
    at_first = reclaimable_queues(standing, reclaimer, rules)
    for victim in steps:
        asked = reclaimable_queues(standing, reclaimer, rules)
        taken = as_victims([victim] if victim else [])
        if check_reclaimer(standing, reclaimer, rules) is not None:
            return False
        if victim and not np.array_equal(asked, at_first):
            return False
        if victim and not (
            asked[victim[0]] and check_reclaim(standing, reclaimer, taken, rules) is None
        ):
            return False
        allocated = standing.allocated.copy()
        allocated[:, queues.ancestors(reclaimer.queue)] += reclaimer.request[:, None]
        if victim:
            allocated[:, queues.ancestors(victim[0])] -= np.array(victim[1], float)[:, None]
        standing = replace(standing, allocated=allocated)
    return True


@pytest.mark.slow
@settings(max_examples=examples(800), deadline=None, derandomize=True)
@given(scenes(), st.sampled_from([NATIVE, KAI]))
def test_yes_means_yes_for_each(scene, rules):
    standing, reclaimer, steps = scene
    victims = as_victims([each for each in steps if each])
    before = standing.allocated.copy()
    if may_reclaim_batch(standing, reclaimer, len(steps), victims, rules):
        assert each_in_its_turn(standing, reclaimer, steps, rules)
    assert np.array_equal(standing.allocated, before)


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([NATIVE, KAI]))
def test_in_the_common_case_no_means_no(count, share, rules):
    specs = [queue("v", 0), queue("x1", 9)]
    standing = stand(specs, {"v": (0, 6)}, {"v": (INF, 0), "x1": (INF, share)})
    reclaimer, steps = asks(standing, "x1"), [(standing.queues.positions["v"], (0, 1))] * count
    verdict = may_reclaim_batch(standing, reclaimer, count, as_victims(steps), rules)
    assert verdict == each_in_its_turn(standing, reclaimer, steps, rules)
    assert verdict == (count <= min(share, 6))


def test_queues_that_may_be_asked_stay_the_same():
    specs = [queue("v", 1), queue("w", 1), queue("x1", 2)]
    standing = stand(specs, {"v": (0, 3)}, {"v": (INF, 1), "w": (INF, 1), "x1": (INF, 9)})
    reclaimer, at = asks(standing, "x1"), standing.queues.positions["v"]
    verdicts = [
        may_reclaim_batch(standing, reclaimer, n, as_victims([(at, (0, 1))] * n), NATIVE)
        for n in (1, 2, 3)
    ]
    assert verdicts == [True, True, False]


@pytest.mark.parametrize(("cpu", "may"), [(0, True), (1, False)])
def test_what_no_gang_of_the_batch_requests_may_be_above_the_share(cpu, may):
    specs = [queue("v", 0), queue("x1", 9)]
    standing = stand(specs, {"v": (0, 6), "x1": (5, 0)}, {"v": (INF, 0), "x1": (4, 9)})
    reclaimer, at = asks(standing, "x1", cpu=cpu), standing.queues.positions["v"]
    victims = as_victims([(at, (0, 1))] * 2)
    assert may_reclaim_batch(standing, reclaimer, 2, victims, NATIVE) is may
