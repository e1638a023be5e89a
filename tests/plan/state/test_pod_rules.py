"""Counts kept through placements, evictions and their undo are those of a statement built so."""

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.pod_rules import PodRuleCounts
from tests.support.scenario import cluster, node, pod, queue

HOST = "kubernetes.io/hostname"
NODES = tuple(f"n{i}" for i in range(4))


def term(app, key):
    return PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"app": app}), topology_key=key
    )


def pods():
    """Two pods of each kind that wait, and two of each that run, one of those terminating."""
    near = Affinity(pod_affinity=PodAffinity(required=(term("a", "rack"),)))
    apart = Affinity(pod_anti_affinity=PodAffinity(required=(term("b", HOST),)))
    both = Affinity(
        pod_affinity=PodAffinity(required=(term("a", "rack"), term("c", HOST))),
        pod_anti_affinity=PodAffinity(required=(term("c", "rack"),)),
    )
    even = TopologySpreadConstraint(
        topology_key="rack", label_selector=LabelSelector(match_labels={"app": "a"})
    )
    for app in "abc":
        for at, affinity in enumerate((None, near, apart, both)):
            rules = {"affinity": affinity, "topology_spread_constraints": (even,) * (at % 2)}
            labels = {"app": app}
            for i in range(2):
                yield pod(f"{app}{at}-{i}", queue="q", labels=labels, **rules)
                yield pod(
                    f"{app}{at}-{i}-runs",
                    queue="q",
                    labels=labels,
                    node=NODES[(at + i) % len(NODES)],
                    leaving=i == 1,
                    **rules,
                )


def world():
    nodes = [node(name, 64, labels={"rack": f"r{i % 2}"}) for i, name in enumerate(NODES)]
    return cluster(nodes, queue("q", 500), list(pods())).snapshot()


SNAPSHOT = world()
MEMBERS = sorted(
    (m for gang in SNAPSHOT.gangs.values() for m in gang.members), key=lambda m: m.pod.name
)
WAITING = [m for m in MEMBERS if not m.node]
RUNNING = [m for m in MEMBERS if m.node and not m.pod.name.endswith("-1-runs")]
SHAPES = list({m.shape.number: m.shape for m in MEMBERS}.values())

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("place"),
            st.lists(st.sampled_from(range(len(WAITING))), min_size=1, max_size=3, unique=True),
            st.sampled_from(range(len(NODES))),
            st.sampled_from(list(Capacity)),
        ),
        st.tuples(st.just("evict"), st.sampled_from(range(len(RUNNING)))),
        st.tuples(st.just("undo")),
        st.tuples(st.just("ask"), st.sampled_from(range(len(SHAPES)))),
    ),
    max_size=20,
)


def answers(counts, shapes):
    """All that rules say of every shape."""
    return [
        (counts.concern(shape), reason, passes.tolist(), rules.preference(shape).tolist())
        for shape in shapes
        for capacity in Capacity
        for rules in [counts.rules(capacity)]
        for reason, passes in [
            ("", np.ones(len(NODES), dtype=np.bool_)),
            *rules.filters(shape),
        ]
    ]


@settings(max_examples=150, deadline=None)
@given(steps)
def test_counts_kept_are_counts_built(course):
    kept, undos, done = PodRuleCounts(SNAPSHOT), [], []
    for kind, *arguments in course:
        if kind == "place":
            which, row, capacity = arguments
            step = ([WAITING[i] for i in which], [row] * len(which), capacity)
            done.append(
                partial(PodRuleCounts.place, members=step[0], rows=step[1], capacity=step[2])
            )
        elif kind == "evict":
            member = RUNNING[arguments[0]]
            row = SNAPSHOT.nodes.positions[member.node]
            done.append(partial(PodRuleCounts.evict, member=member, row=row))
        elif kind == "undo":
            if undos:
                undos.pop()()
                done.pop()
            continue
        else:
            answers(kept, [SHAPES[arguments[0]]])
            continue
        undos.append(done[-1](kept))
    built = PodRuleCounts(SNAPSHOT)
    for step in done:
        step(built)
    assert answers(kept, SHAPES) == answers(built, SHAPES)
    while undos:
        undos.pop()()
    assert answers(kept, SHAPES) == answers(PodRuleCounts(SNAPSHOT), SHAPES)


def test_terminating_pods_refuse_until_they_are_gone_and_do_not_count_for_spread():
    apart = Affinity(pod_anti_affinity=PodAffinity(required=(term("web", HOST),)))
    even = TopologySpreadConstraint(
        topology_key=HOST, label_selector=LabelSelector(match_labels={"app": "web"})
    )
    waits = pod("waits", queue="q", labels={"app": "x"}, affinity=apart)
    spreads = pod("spreads", queue="q", labels={"app": "web"}, topology_spread_constraints=(even,))
    leaves = pod("leaves", queue="q", node="n0", labels={"app": "web"}, leaving=True)
    snapshot = cluster(node("n0"), node("n1"), queue("q", 8), waits, spreads, leaves).snapshot()
    members = {m.pod.name: m for gang in snapshot.gangs.values() for m in gang.members}
    counts = PodRuleCounts(snapshot)

    def passes(name, capacity):
        found = counts.rules(capacity).filters(members[name].shape)
        return [passes.tolist() for _, passes in found]

    assert passes("waits", Capacity.IDLE) == [[False, True]]
    assert passes("waits", Capacity.FUTURE_IDLE) == [[True, True]]
    assert passes("spreads", Capacity.IDLE) == [[True, True]]


def test_a_pod_that_is_promised_a_node_refuses_at_once_and_attracts_only_later():
    near = Affinity(pod_affinity=PodAffinity(required=(term("web", HOST),)))
    apart = Affinity(pod_anti_affinity=PodAffinity(required=(term("web", HOST),)))
    pods = [
        pod("web", queue="q", labels={"app": "web"}),
        pod("near", queue="q", affinity=near),
        pod("apart", queue="q", affinity=apart),
    ]
    snapshot = cluster(node("n0"), queue("q", 8), pods).snapshot()
    members = {m.pod.name: m for gang in snapshot.gangs.values() for m in gang.members}
    counts = PodRuleCounts(snapshot)
    counts.place([members["web"]], [0], Capacity.FUTURE_IDLE)
    found = {
        (name, capacity): [p.tolist() for _, p in counts.rules(capacity).filters(shape)]
        for capacity in Capacity
        for name in ("near", "apart")
        for shape in [members[name].shape]
    }
    assert found == {
        ("near", Capacity.IDLE): [[False]],
        ("near", Capacity.FUTURE_IDLE): [[True]],
        ("apart", Capacity.IDLE): [[False]],
        ("apart", Capacity.FUTURE_IDLE): [[False]],
    }
