"""Which pods of a gang come next, compared with all sets of pods that could."""

from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.grouping.gang import is_satisfied
from kai_py.plan.placement.next_pods import (
    active_counts,
    elastic_pods,
    elastic_rank,
    gated_pods,
    incomplete_subgroup,
    may_start,
    next_request,
    pod_not_ready,
    precondition,
    queue_refuses,
)
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import JoinedClaim, PodState
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import NamespaceRule, QueueInfo
from tests.support.records import replace
from tests.support.worlds import gang, subgroup


def decided(placed=(), evicted=(), later=()):
    """What a cycle has decided: pods on idle capacity, evicted ones, and on future capacity."""
    capacity = dict.fromkeys(placed, Capacity.IDLE) | dict.fromkeys(later, Capacity.FUTURE_IDLE)
    found = {uid: SimpleNamespace(capacity=each) for uid, each in capacity.items()}
    return SimpleNamespace(placed=found, evicted=frozenset(evicted))


NOTHING = decided()


def changed(made, which, **fields):
    """The gang with some of its pods changed, by position."""
    members = [
        replace(each, **fields) if n in which else each for n, each in enumerate(made.members)
    ]
    return replace(made, members=tuple(members))


def names(members):
    return [each.pod.name.removeprefix("g-") for each in members]


TREES = {
    "flat": lambda a, b, _: subgroup("", a + b),
    "all": lambda a, b, _: subgroup("", children=(subgroup("x", a), subgroup("y", b))),
    "some": lambda a, b, n: subgroup(
        "", needs=n, children=(subgroup("x", a), subgroup("y", b), subgroup("z", 1))
    ),
    "deep": lambda a, b, n: subgroup(
        "",
        children=(
            subgroup("x", a),
            subgroup("w", needs=n, children=(subgroup("y", b), subgroup("z", 1))),
        ),
    ),
}


@st.composite
def decided_gangs(draw):
    """A gang with pods in up to three subgroups, some of them on a node, placed or evicted."""
    kind = draw(st.sampled_from(sorted(TREES)))
    tree = TREES[kind](*draw(st.tuples(*[st.integers(0, 2)] * 3)))
    leaves = draw(st.text("xyz", min_size=1, max_size=6))
    nodes = draw(st.text("a-", min_size=len(leaves), max_size=len(leaves)))
    made = gang("g", nodes=nodes, leaves="" if kind == "flat" else leaves, tree=tree)
    marks = draw(st.text(" !w", min_size=len(leaves), max_size=len(leaves)))
    chosen = [m.pod.uid for m, mark in zip(made.members, marks, strict=True) if mark == "!"]
    waits = {n for n, mark in enumerate(marks) if mark == "w" and nodes[n] == "-"}
    bound = {m.pod.uid for m in made.bound}
    statement = decided(
        placed=[uid for uid in chosen if uid not in bound],
        evicted=[uid for uid in chosen if uid in bound],
    )
    return changed(made, waits, waiting_for="its claim"), statement


def counted(members):
    counts = {}
    for each in members:
        counts[each.subgroup] = counts.get(each.subgroup, 0) + 1
    return counts


def present(made, statement):
    """Pods that run or will."""
    return [
        m
        for m in made.members
        if m.pod.uid in statement.placed or (m.node and m.pod.uid not in statement.evicted)
    ]


@given(decided_gangs())
def test_the_next_pods_reach_the_minimum_and_no_pod_of_them_is_needless(world):
    made, statement = world
    runs = present(made, statement)
    left = [m for m in made.pending if m.pod.uid not in statement.placed and not m.waiting_for]
    assert active_counts(made, statement) == counted(runs)
    request = next_request(made, statement, lambda _: False)
    has_minimum = is_satisfied(made.tree, counted(runs))
    reaching = [
        chosen
        for size in range(1, len(left) + 1)
        for chosen in combinations(left, size)
        if is_satisfied(made.tree, counted([*runs, *chosen]))
    ]
    if request is None:
        assert not left or (made.tree.children if has_minimum else not reaching)
        return
    assert request.is_elastic is has_minimum
    assert request.has_more is (len(request.members) < len(left))
    assert set(names(request.members)) <= set(names(left))
    if has_minimum:
        assert len(request.members) == 1 or made.tree.children
        return
    assert is_satisfied(made.tree, counted([*runs, *request.members]))
    for each in request.members:
        rest = [m for m in request.members if m is not each]
        assert not is_satisfied(made.tree, counted([*runs, *rest]))


@given(decided_gangs())
def test_pods_beside_the_minimum_are_elastic(world):
    made, statement = world
    found = [each.name for each in elastic_pods(made, statement, lambda _: False)]
    left = [m for m in made.pending if m.pod.uid not in statement.placed]
    min_pods = made.tree.min_pods()
    if min_pods <= 1 or len(made.members) <= min_pods:
        assert found == []
        return
    needed = [m for m in left if m.pod.name not in found]
    together = counted([*present(made, statement), *needed])
    if found:
        assert is_satisfied(made.tree, together)
    ready = changed(made, range(len(made.members)), waiting_for="")
    request = next_request(ready, statement, lambda _: False)
    if request is not None and not request.is_elastic:
        assert {m.pod.name for m in left} - {m.pod.name for m in request.members} == set(found)


@given(decided_gangs())
def test_gangs_below_their_minimum_come_before_those_at_it_and_those_above(world):
    made, statement = world
    runs = counted(present(made, statement))
    below, most = not is_satisfied(made.tree, runs), made.tree.min_pods()
    expected = 0 if below else 1 + (sum(runs.values()) > most)
    assert elastic_rank(made, statement) == expected


@pytest.mark.parametrize(
    ("nodes", "floor", "skipped", "shapes", "orders", "found"),
    [
        ("a---", 1, (), "1111", "0000", ["1"]),
        ("a---", 1, (1,), "1111", "0000", None),
        ("a---", 1, (1,), "1121", "0000", ["2"]),
        ("a---", 1, (1,), "1121", "0010", None),  # it starts after the pod that did not fit
        ("a---", 1, (2,), "1121", "0010", ["1"]),
        ("a----", 1, (1, 2), "11323", "00000", ["3"]),
        ("----", 3, (1,), "1111", "0000", ["0", "1", "2"]),  # what minMember needs
    ],
)
def test_pods_like_one_that_did_not_fit_are_left_out(nodes, floor, skipped, shapes, orders, found):
    made = gang("g", nodes=nodes, floor=floor)
    for n, (shape, order) in enumerate(zip(shapes, orders, strict=True)):
        other = gang("x", pods=1, gpus=int(shape)).members[0].shape
        made = changed(made, {n}, shape=other, order=int(order))
    left_out = [made.members[n] for n in skipped]
    request = next_request(made, NOTHING, lambda _: False, left_out)
    assert (request and names(request.members)) == found


def test_another_subgroup_goes_on_where_one_did_not_fit():
    tree = subgroup("", children=(subgroup("x", 1), subgroup("y", 1)))
    made = gang("g", nodes="ab---", leaves="xyxxy", tree=tree)
    skipped = [made.members[2]]
    request = next_request(made, NOTHING, lambda _: False, skipped)
    assert names(request.members) == ["4"]


@pytest.mark.parametrize(
    ("floor", "orders", "found"),
    [
        (1, "000", ["1"]),  # a pod that no node can hold is passed
        (2, "000", ["1", "2"]),
        (3, "000", ["0", "1", "2"]),  # unless it is needed
        (1, "011", ["0"]),  # or is to start before others
    ],
)
def test_pods_that_never_run_are_passed_if_they_may_be(floor, orders, found):
    made = gang("g", pods=3, floor=floor)
    large = gang("x", pods=1, gpus=9).members[0].shape
    made = changed(made, {0}, shape=large)
    for n, order in enumerate(orders):
        made = changed(made, {n}, order=int(order))
    request = next_request(made, NOTHING, lambda shape: shape.number == 9)
    assert names(request.members) == found


def test_what_is_created_later_is_requested_with_the_minimum_only():
    later = gang("later", pods=1).members
    first = replace(gang("g", pods=2, floor=1), placeholders=later)
    assert names(next_request(first, NOTHING, lambda _: False).members) == ["0", "later-0"]
    whole = replace(first, tree=gang("g", pods=2).tree)
    assert names(next_request(whole, NOTHING, lambda _: False).members) == ["0", "1", "later-0"]
    started = replace(gang("g", nodes="a-", floor=1), placeholders=later)
    assert names(next_request(started, NOTHING, lambda _: False).members) == ["1"]


def joined(claim="claim", charged_to="other", waits=False):
    return JoinedClaim(claim, charged_to, {"gpu": 2.0}, waits)


@pytest.mark.parametrize(
    ("relies_on", "counted", "charged", "gpus", "owes", "relies"),
    [
        ([joined(charged_to="g-1")], False, False, 1.0, 0, 1),  # it starts with that pod
        ([joined()], True, False, 1.0, 0, 1),
        ([joined()], False, False, 1.0, 1, 1),
        ([joined(waits=True)], False, True, 1.0, 1, 1),
        ([joined(waits=True)], False, False, 3.0, 0, 0),
        ([joined(), joined(waits=True)], False, False, 1.0, 1, 2),  # one claim counts once
        ([joined(), joined("own", waits=True)], False, False, 3.0, 1, 1),
    ],
)
def test_a_shared_claim_is_charged_to_one_pod(relies_on, counted, charged, gpus, owes, relies):
    made = changed(gang("g", pods=2), {0}, relies_on=tuple(relies_on))
    shared = SimpleNamespace(is_counted=lambda *_, **__: counted, is_charged=lambda _: charged)
    statement = SimpleNamespace(placed={}, evicted=(), quota=SimpleNamespace(shared_claims=shared))
    request = next_request(made, statement, lambda _: False)
    assert names(request.members) == ["1", "0"], "first the pods that rely on no other"
    one = request.members[1]
    assert (one.charge["gpu"], len(one.owes), len(one.relies_on)) == (gpus, owes, relies)
    assert request.members[0] is made.members[1]


@pytest.mark.parametrize(
    ("later", "starting", "starts"),
    [
        ((), "1", True),
        (("g-2",), "01", True),
        (("g-2",), "0", False),
        (("g-1", "g-2"), "0", False),
        (("g-1", "g-2"), "01", True),
    ],
)
def test_no_pod_starts_before_those_that_the_minimum_needs(later, starting, starts):
    made = gang("g", pods=3, floor=2)
    members = [made.members[int(n)] for n in starting]
    assert may_start(made, members, decided(later=later)) is starts


QUEUES = build_queue_table(
    [
        QueueInfo(name="top"),
        QueueInfo(name="low", parent="top"),
        QueueInfo(name="closed", namespaces=NamespaceRule(names=("other",))),
    ],
    ("gpu",),
)[0]


@pytest.mark.parametrize(
    ("name", "namespace", "stage", "text"),
    [
        ("low", "default", None, ""),
        ("closed", "other", None, ""),
        ("gone", "default", Stage.QUEUE_NOT_FOUND, 'queue "gone" does not exist; create it, or'),
        ("", "default", Stage.QUEUE_NOT_FOUND, "no queue is named; set"),
        ("top", "default", Stage.QUEUE_NOT_FOUND, 'queue "top" has children; only'),
        ("closed", "default", Stage.INVALID, 'queue "closed" does not accept workloads from'),
    ],
)
def test_only_open_queues_without_children_take_gangs(name, namespace, stage, text):
    found = queue_refuses(name, namespace, QUEUES, {})
    assert (found and found.stage) == stage
    assert found is None or found.summary.startswith(text)


WAITS = {"waiting_for": "its claim does not exist"}
SUBGROUPS = subgroup("", children=(subgroup("x", 1), subgroup("y", 1)))
REFUSED = Unschedulable(Stage.QUEUE_NOT_FOUND, "no queue")


@pytest.mark.parametrize(
    ("made", "refused", "stage", "text"),
    [
        (gang("g", pods=2), None, None, ""),
        (gang("g", pods=2), REFUSED, Stage.QUEUE_NOT_FOUND, "no queue"),
        (gang("g", pods=2, floor=3), REFUSED, Stage.QUEUE_NOT_FOUND, "no queue"),
        (replace(gang("g", pods=2), problem="bad"), REFUSED, Stage.INVALID, "bad"),
        (
            replace(gang("g", pods=2), problem="bad", owner_unknown=True),
            None,
            Stage.BELOW_MIN_MEMBER,
            "bad",
        ),
        (changed(gang("g", pods=2), {1}, problem="broken"), None, Stage.INVALID, "broken"),
        (
            gang("g", pods=2, floor=3),
            None,
            Stage.BELOW_MIN_MEMBER,
            "minMember is 3; existing pods: 2.",
        ),
        (
            gang("g", nodes="a-", floor=3),
            None,
            Stage.BELOW_MIN_MEMBER,
            "minMember is 3; existing pods: 2.",
        ),
        (gang("g", nodes="aa-", floor=2), None, None, ""),
        (
            changed(gang("g", pods=2), {1}, state=PodState.GATED, gates=("a", "b")),
            None,
            Stage.SCHEDULING_GATED,
            "minMember is 2; existing pods: 1, gated pods: 1 (by a, b).",
        ),
        (
            changed(gang("g", pods=1, leaves="z", tree=SUBGROUPS), {0}, **WAITS),
            None,
            Stage.INVALID,
            "minMember is 2; existing pods: 1; pod default/g-0: its claim does not exist.",
        ),
        (
            changed(gang("g", pods=1, leaves="x", tree=SUBGROUPS), {0}, **WAITS),
            None,
            Stage.BELOW_MIN_MEMBER,
            "minMember is 2; existing pods: 1.",
        ),
        (
            changed(gang("g", pods=2), {1}, **WAITS),
            None,
            Stage.CLAIMS_NOT_READY,
            "pod default/g-1: its claim does not exist.",
        ),
        (changed(gang("g", pods=3, floor=2), {2}, **WAITS), None, None, ""),
        (
            changed(gang("g", nodes="a-", floor=1), {1}, **WAITS),
            None,
            Stage.CLAIMS_NOT_READY,
            "pod default/g-1: its claim does not exist.",
        ),
        (changed(gang("g", nodes="a--", floor=1), {1}, **WAITS), None, None, ""),
        (
            changed(gang("g", nodes="a--", floor=3), {1}, **WAITS),
            None,
            Stage.CLAIMS_NOT_READY,
            "pod default/g-1: its claim does not exist.",
        ),
    ],
)
def test_what_must_happen_before_a_gang_is_placed(made, refused, stage, text):
    found = precondition(made, lambda *_: refused)
    assert (found and (found.stage, found.summary)) == (stage and (stage, text))


def test_a_subgroup_with_too_few_pods_is_named():
    tree = subgroup("", needs=1, children=(subgroup("x", 1), subgroup("y", 2)))
    made = gang("g", nodes="a--", leaves="xyy", tree=tree)
    assert incomplete_subgroup(made) is None
    fewer = replace(made, members=made.members[:2])
    found = incomplete_subgroup(fewer)
    assert found.stage is Stage.BELOW_MIN_MEMBER
    assert found.summary == "minMember of subgroup y is 2; existing pods: 1."
    gated = changed(made, {2}, state=PodState.GATED)
    assert incomplete_subgroup(gated).summary == found.summary


def test_gated_pods_and_pods_of_no_subgroup_are_told():
    made = changed(gang("g", pods=3), {0, 1}, state=PodState.GATED, gates=("a",))
    assert gated_pods(made) == "gated pods: 2 (by a)"
    assert gated_pods(gang("g", pods=3)) == ""
    for leaf, stage in (("x", Stage.CLAIMS_NOT_READY), ("z", Stage.INVALID)):
        one = changed(gang("g", pods=1, leaves=leaf, tree=SUBGROUPS), {0}, **WAITS)
        assert pod_not_ready(one, one.members[0]).stage is stage


GATED_BY_A = {"state": PodState.GATED, "gates": ("a",)}


def test_a_gang_with_too_few_pods_in_a_subgroup_names_it_if_others_make_up_for_them():
    tree = subgroup("", children=(subgroup("x", 1), subgroup("y", 2)))
    made = gang("g", pods=3, leaves="xxy", tree=tree)
    assert precondition(made, lambda *_: None).summary == (
        "minMember of subgroup y is 2; existing pods: 1."
    )
    gated = changed(gang("g", pods=4, leaves="xxxy", tree=tree), {3}, **GATED_BY_A)
    assert precondition(gated, lambda *_: None).summary == (
        "minMember of subgroup y is 2; existing pods: 0, gated pods: 1 (by a)."
    )
    fewer = gang("g", pods=2, leaves="xy", tree=tree)
    assert precondition(fewer, lambda *_: None).summary == "minMember is 3; existing pods: 2."
