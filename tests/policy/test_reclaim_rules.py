import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.policy.fairness_rules import KAI, NATIVE, FairnessRules
from kai_py.policy.queue_usage import QueueUsage, diverging_siblings
from kai_py.policy.reclaim_rules import (
    ReclaimAllowance,
    Reclaimer,
    ReclaimRule,
    Victims,
    check_reclaim,
    check_reclaimer,
    check_victims,
    reclaimable_queues,
)
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo

RESOURCES = ("cpu", "gpu")
INF = float("inf")


def stand(specs, held, fair, non_preemptible=None):
    """Standing from the own amounts ``{leaf: (cpu, gpu)}`` and the fair shares of all queues."""
    table = build_queue_table(specs, RESOURCES)[0]

    def rows(by_queue):
        by_queue = by_queue or {}
        return np.array([by_queue.get(name, (0, 0)) for name in table.names], np.float64).T

    held, guarded = table.subtree_sums(rows(held)), table.subtree_sums(rows(non_preemptible))
    return QueueUsage(table, np.zeros(2), held, guarded, rows(fair))


def queue(name, gpu=0, parent="", cpu=INF, priority=100):
    deserved = {"cpu": cpu, "gpu": gpu}
    return QueueInfo(name=name, parent=parent, deserved=deserved, priority=priority)


def asks(standing, name, cpu=0, gpu=1, preemptible=True):
    request = np.array([cpu, gpu], np.float64)
    return Reclaimer(standing.queues.positions[name], request, preemptible)


def victims(standing, *taken):
    at = standing.queues.positions
    amounts = np.array([(0, gpu) for _, gpu in taken], np.float64).reshape(-1, 2).T
    return Victims(np.array([at[name] for name, _ in taken], np.int32), amounts)


FLAT = [queue("a", 4), queue("b", 4), queue("c", 0)]
FAIR = {"a": (INF, 6), "b": (INF, 6), "c": (INF, 4)}


def test_only_within_its_fair_share_may_a_queue_reclaim():
    standing = stand(FLAT, {"a": (0, 5)}, FAIR)
    assert check_reclaimer(standing, asks(standing, "a"), NATIVE) is None
    refused = check_reclaimer(standing, asks(standing, "a", gpu=2), NATIVE)
    assert (refused.rule, refused.queue, refused.value, refused.bound) == (
        ReclaimRule.FAIR_SHARE,
        "a",
        7,
        6,
    )


def test_non_preemptible_work_reclaims_only_within_deserved():
    standing = stand(FLAT, {"a": (0, 4)}, FAIR, {"a": (0, 4)})
    refused = check_reclaimer(standing, asks(standing, "a", preemptible=False), NATIVE)
    assert (refused.rule, refused.value, refused.bound) == (ReclaimRule.DESERVED, 5, 4)


def test_a_resource_not_asked_for_stops_no_reclaim_but_in_the_kai_profile():
    fair = FAIR | {"a": (3, 6)}
    standing = stand(FLAT, {"a": (5, 0)}, fair)
    assert check_reclaimer(standing, asks(standing, "a"), NATIVE) is None
    assert check_reclaimer(standing, asks(standing, "a"), KAI).resource == 0


def test_starved_queue_takes_from_those_above_deserved_others_from_those_above_fair_share():
    held = {"a": (0, 3), "b": (0, 5), "c": (0, 4)}
    standing = stand(FLAT, held, FAIR)

    def candidates(gpu):
        mask = reclaimable_queues(standing, asks(standing, "a", gpu=gpu), NATIVE)
        return {name for name, taken in zip(standing.queues.names, mask, strict=True) if taken}

    assert candidates(gpu=1) == {"b", "c"}
    assert candidates(gpu=2) == set()


def test_starved_queue_may_ask_those_that_fall_short_of_nothing():
    standing = stand(FLAT, {"b": (0, 4)}, FAIR)
    mask = reclaimable_queues(standing, asks(standing, "a"), NATIVE)
    assert mask[standing.queues.positions["b"]]


def test_no_gang_reclaims_from_its_own_queue():
    standing = stand(FLAT, {"a": (0, 9), "b": (0, 9)}, FAIR)
    mask = reclaimable_queues(standing, asks(standing, "a"), NATIVE)
    assert mask.tolist() == [False, True, False]


def test_victim_queue_is_left_alone_once_it_is_down_to_its_share():
    standing = stand(FLAT, {"b": (0, 8)}, FAIR)
    above_deserved = asks(standing, "a", gpu=5)
    taken = victims(standing, *[("b", 1)] * 4)
    assert check_victims(standing, asks(standing, "a", gpu=4), taken, NATIVE) is None
    assert check_victims(standing, above_deserved, taken.first(2), NATIVE) is None
    refused = check_victims(standing, above_deserved, taken.first(3), NATIVE)
    assert (refused.rule, refused.queue, refused.against) == (ReclaimRule.VICTIM, "b", "a")
    assert (refused.value, refused.bound) == (6, 6)


def test_reclaimer_may_not_end_more_saturated_than_its_victim():
    tree = [queue("x", 4), queue("y", 4), queue("x1", 4, "x"), queue("y1", 4, "y")]
    fair = {"x": (INF, 4), "y": (INF, 4), "x1": (INF, 9), "y1": (INF, 4)}
    standing = stand(tree, {"x1": (0, 5), "y1": (0, 9)}, fair)
    reclaimer = asks(standing, "x1")
    assert check_reclaim(standing, reclaimer, victims(standing, ("y1", 1)), NATIVE) is None
    refused = check_reclaim(standing, reclaimer, victims(standing, *[("y1", 1)] * 3), NATIVE)
    assert (refused.rule, refused.queue, refused.against) == (ReclaimRule.SATURATION, "x", "y")
    assert (refused.value, refused.bound) == (1.5, 1.5)
    reluctant = FairnessRules(saturation_multiplier=1.4)
    refused = check_reclaim(standing, reclaimer, victims(standing, ("y1", 1)), reluctant)
    assert (refused.value, refused.bound) == (pytest.approx(2.1), 2)


def test_siblings_without_a_fair_share_do_not_hold_the_reclaimer_back():
    tree = [queue("x", 4), queue("y"), queue("x1", 4, "x")]
    fair = {"x": (INF, 4), "x1": (INF, 9)}
    standing = stand(tree, {"x1": (0, 5), "y": (0, 1)}, fair)
    assert (
        check_reclaim(standing, asks(standing, "x1"), victims(standing, ("y", 1)), NATIVE) is None
    )


def test_inside_a_department_only_its_children_are_compared():
    tree = [queue("x", 1), queue("x1", 2, "x"), queue("x2", 0, "x")]
    fair = {"x": (INF, 1), "x1": (INF, 3), "x2": (INF, 2)}
    standing = stand(tree, {"x1": (0, 2), "x2": (0, 3)}, fair)
    taken = victims(standing, ("x2", 1))
    assert check_reclaim(standing, asks(standing, "x1"), taken, NATIVE) is None


def test_resources_that_only_victims_lose_count_in_the_kai_profile():
    tree = [queue("x", 4, cpu=0), queue("y", 0, cpu=0), queue("x1", 4, "x")]
    fair = {"x": (2, 4), "y": (2, 1), "x1": (9, 9)}
    standing = stand(tree, {"x1": (6, 0), "y": (2, 2)}, fair)
    taken = Victims(np.array([standing.queues.positions["y"]]), np.array([[1.0], [1.0]]))
    assert check_reclaim(standing, asks(standing, "x1"), taken, NATIVE) is None
    refused = check_reclaim(standing, asks(standing, "x1"), taken, KAI)
    assert (refused.rule, refused.resource) == (ReclaimRule.SATURATION, 0)


def test_non_preemptible_reclaimer_stays_within_deserved_all_the_way_up():
    tree = [queue("x", 2), queue("y", 0), queue("x1", 4, "x"), queue("y1", 0, "y")]
    fair = dict.fromkeys(("x", "x1"), (INF, 4))
    standing = stand(tree, {"x1": (0, 2), "y1": (0, 2)}, fair, {"x1": (0, 2)})
    reclaimer = asks(standing, "x1", preemptible=False)
    refused = check_reclaim(standing, reclaimer, victims(standing, ("y1", 1)), NATIVE)
    assert (refused.rule, refused.queue, refused.value) == (ReclaimRule.DESERVED, "x", 3)


amounts = st.tuples(st.integers(0, 4), st.sampled_from([0, 0.5, 1, 3, 5]))
bounds = st.sampled_from([0.0, 1.0, 3.0, INF])


@st.composite
def scenes(draw):
    names = [f"q{i}" for i in range(draw(st.integers(2, 9)))]
    specs = [
        QueueInfo(
            name=name,
            parent=draw(st.sampled_from(["", *names[:i]])),
            deserved={resource: draw(bounds) for resource in RESOURCES},
            max={resource: draw(st.sampled_from([2.0, INF])) for resource in RESOURCES},
        )
        for i, name in enumerate(names)
    ]
    table = build_queue_table(specs, RESOURCES)[0]
    leaves = np.flatnonzero(table.is_leaf).tolist()
    reclaiming = draw(st.sampled_from(leaves))
    others = [leaf for leaf in leaves if leaf != reclaiming]
    taken = (
        draw(st.lists(st.tuples(st.sampled_from(others), amounts), max_size=6)) if others else []
    )
    own = {table.names[leaf]: np.array(draw(amounts), float) for leaf in leaves}
    for leaf, amount in taken:
        own[table.names[leaf]] += amount
    rows = st.fixed_dictionaries(dict.fromkeys(names, amounts))
    standing = stand(specs, own, draw(rows), draw(rows))
    request = np.array(draw(amounts), float)
    return standing, Reclaimer(reclaiming, request, draw(st.booleans())), taken


def as_victims(taken):
    amount = np.array([amount for _, amount in taken], np.float64).reshape(-1, 2).T
    return Victims(np.array([leaf for leaf, _ in taken], np.int32), amount)


def compared(reclaimer, rules):
    """The resources that count."""
    requested = np.flatnonzero(reclaimer.request).tolist()
    return (
        requested if requested and rules.compared_resources is NATIVE.compared_resources else [0, 1]
    )


def is_above(amounts, bounds, rows):
    return any(amounts[row] > bounds[row] for row in rows)


def may_start(standing, reclaimer, rules):
    """Rule 1 as a loop over resources."""
    at, rows = reclaimer.queue, compared(reclaimer, rules)
    if is_above(standing.allocated[:, at] + reclaimer.request, standing.fair[:, at], rows):
        return False
    stays = standing.non_preemptible[:, at] + reclaimer.request
    return reclaimer.preemptible or not is_above(stays, standing.queues.deserved[:, at], rows)


def queues_to_ask(standing, reclaimer, rules):
    """Rule 2 as loops over queues and resources."""
    queues, rows = standing.queues, compared(reclaimer, rules)
    asked = []
    for r, v in zip(*diverging_siblings(queues, reclaimer.queue), strict=True):
        own = standing.allocated[:, r] + reclaimer.request
        has, deserved = standing.allocated[:, v], queues.deserved[:, v]
        requested = [row for row in (0, 1) if reclaimer.request[row] and deserved[row] < INF]
        if is_above(own, queues.deserved[:, r], rows):
            takes = is_above(has, standing.allocatable[:, v], rows)
        else:
            takes = is_above(has, deserved, requested) or not is_above(deserved, has, requested)
        asked.append(bool(takes and r != v))
    return asked


def allowed_one_by_one(standing, reclaimer, taken, rules):
    """Rules 3 to 5 as loops over queues, resources and victims."""
    queues, rows = standing.queues, compared(reclaimer, rules)
    left = {q: standing.allocated[:, q].copy() for q in range(len(queues))}
    involved = {}
    ours, theirs = diverging_siblings(queues, reclaimer.queue)
    for leaf, amount in sorted(taken, key=lambda victim: victim[0]):
        r, v = ours[leaf], theirs[leaf]
        own = standing.allocated[:, r] + reclaimer.request
        starved = not is_above(own, queues.deserved[:, r], rows)
        above_share = is_above(left[v], standing.allocatable[:, v], rows)
        above_deserved = is_above(left[v], queues.deserved[:, v], rows)
        if not (above_share or (starved and above_deserved)):
            return False
        for q in queues.ancestors(leaf):
            left[q] -= amount
            involved.setdefault(q, set()).update(np.flatnonzero(amount).tolist())
    requested = set(np.flatnonzero(reclaimer.request).tolist())
    for q in queues.ancestors(reclaimer.queue):
        for x, lost in involved.items():
            if queues.parent[x] != queues.parent[q] or x == q:
                continue
            for row in requested | (lost if rules is not NATIVE else set()):
                ratio = saturation(left[q][row] + reclaimer.request[row], standing.fair[row, q])
                other = saturation(left[x][row], standing.fair[row, x])
                weighted = ratio * rules.saturation_multiplier
                if ratio > 1 and standing.fair[row, x] > 0 and weighted >= other:
                    return False
        held = standing.non_preemptible[:, q] + reclaimer.request
        if not reclaimer.preemptible and is_above(held, queues.deserved[:, q], rows):
            return False
    return True


def saturation(held, fair):
    if fair == 0:
        return INF if held > 0 else 0
    return held / fair


@given(scenes(), st.sampled_from([NATIVE, KAI, replace(KAI, saturation_multiplier=1.5)]))
def test_arrays_equal_loops(scene, rules):
    standing, reclaimer, taken = scene
    taken = [(leaf, amount) for leaf, amount in taken if any(amount)]
    refused = check_reclaim(standing, reclaimer, as_victims(taken), rules)
    assert (refused is None) == allowed_one_by_one(standing, reclaimer, taken, rules)
    begins = check_reclaimer(standing, reclaimer, rules) is None
    assert begins == may_start(standing, reclaimer, rules)
    asked = reclaimable_queues(standing, reclaimer, rules).tolist()
    assert asked == queues_to_ask(standing, reclaimer, rules)


@given(scenes(), st.sampled_from([NATIVE, KAI]))
def test_victims_taken_one_by_one_are_those_allowed_together(scene, rules):
    """In the order of their queues, as ``check_victims`` takes them."""
    standing, reclaimer, taken = scene
    allowance, allowed = ReclaimAllowance(standing, reclaimer, rules), True
    for leaf, amount in sorted(taken, key=lambda victim: victim[0]):
        allowed = allowed and allowance.allows(leaf)
        allowance.take(leaf, np.array(amount, float))
    together = check_victims(standing, reclaimer, as_victims(taken), rules)
    assert allowed == (together is None)
    for leaf, amount in taken:
        allowance.take(leaf, -np.array(amount, float))
    fresh = ReclaimAllowance(standing, reclaimer, rules)
    assert all(allowance.allows(q) == fresh.allows(q) for q in range(len(standing.queues)))


@given(scenes(), st.randoms(use_true_random=False), st.sampled_from([NATIVE, KAI]))
def test_w22_verdict_does_not_depend_on_how_queues_are_visited(scene, chance, rules):
    standing, reclaimer, taken = scene
    by_leaf = {leaf: [v for v in taken if v[0] == leaf] for leaf, _ in taken}
    visited = list(by_leaf.values())
    chance.shuffle(visited)
    again = [victim for chunk in visited for victim in chunk]
    first = check_reclaim(standing, reclaimer, as_victims(taken), rules)
    assert check_reclaim(standing, reclaimer, as_victims(again), rules) == first


def test_w22_leaves_below_one_victim_queue_are_judged_in_table_order():
    tree = [queue("a", 9), queue("v"), queue("v1", 0, "v"), queue("v2", 0, "v")]
    fair = {"a": (INF, 9), "v": (INF, 4), "v1": (INF, 2), "v2": (INF, 2)}
    standing = stand(tree, {"v1": (0, 1), "v2": (0, 6)}, fair)
    reclaimer = asks(standing, "a", gpu=10)
    verdicts = [
        check_victims(standing, reclaimer, victims(standing, *taken), NATIVE)
        for taken in ([("v1", 1), ("v2", 6)], [("v2", 6), ("v1", 1)])
    ]
    assert verdicts == [None, None]


@given(scenes(), st.sampled_from([NATIVE, KAI]))
def test_a_refused_prefix_stays_refused(scene, rules):
    standing, reclaimer, taken = scene
    every = as_victims(taken)
    legal = [
        check_victims(standing, reclaimer, every.first(count), rules) is None
        for count in range(len(taken) + 1)
    ]
    assert legal == sorted(legal, reverse=True)
