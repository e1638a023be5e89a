"""Counts kept through placements, evictions and their undo are those of a statement built so."""

from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    ObjectMeta,
    PartialObjectMetadata,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.pod_decisions import PodDecision, domain_counts, evicted_pod, placed_pod
from kai_py.plan.state.pod_rules import PodRuleCounts
from kai_py.policy.pod_rules import PodRules
from kai_py.snapshot.gangs import PodState
from kai_py.snapshot.pod_selection import DomainTerm, rules_of, selects
from tests.support.examples import examples
from tests.support.scenario import cluster, node, placed, pod, queue

HOST = "kubernetes.io/hostname"
NODES = tuple(f"n{i}" for i in range(4))


def term(app, key):
    return PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"app": app}), topology_key=key
    )


def others(apps, key, **namespaces):
    """The pods of all apps but these, or without a label."""
    excluded = SelectorRequirement(key="app", operator="NotIn", values=tuple(apps))
    missing = SelectorRequirement(key="app", operator="DoesNotExist")
    selector = LabelSelector(match_expressions=(excluded if apps else missing,))
    return PodAffinityTerm(label_selector=selector, topology_key=key, **namespaces)


def excluding_pods():
    """Pods with terms that select all others, in two namespaces, that wait or run."""
    team = LabelSelector(match_labels={"team": "one"})
    everywhere = {"namespace_selector": LabelSelector()}
    terms = (
        others("ab", "rack", **everywhere),
        others("a", HOST, namespace_selector=team),
        others("", "rack", namespaces=("default", "two")),
        others("c", HOST),
    )
    for at, each in enumerate(terms):
        rules = PodAffinity(required=(each,))
        near, apart = Affinity(pod_affinity=rules), Affinity(pod_anti_affinity=rules)
        even = TopologySpreadConstraint(topology_key="rack", label_selector=each.label_selector)
        for i, (namespace, app) in enumerate((("default", "a"), ("two", "b"), ("default", ""))):
            common = {"queue": "q", "labels": {"app": app} if app else {}}
            node_name = NODES[(at + i) % len(NODES)]
            for each_pod in (
                pod(f"near{at}-{i}", affinity=near, **common),
                pod(f"apart{at}-{i}", affinity=apart, **common),
                pod(f"even{at}-{i}", topology_spread_constraints=(even,), **common),
                pod(f"apart{at}-{i}-runs", affinity=apart, node=node_name, **common),
            ):
                meta = replace(each_pod.metadata, namespace=namespace)
                yield replace(each_pod, metadata=meta)


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
    named = PartialObjectMetadata(metadata=ObjectMeta(name="two", labels={"team": "one"}))
    return cluster(nodes, queue("q", 500), [named], list(pods()), list(excluding_pods())).snapshot()


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


def by_comparing(snapshot, decided):
    """A ``CountedPods`` that compares every pod with every term."""
    on_nodes = [m for gang in snapshot.gangs.values() for m in gang.members if m.node]
    pods_on_nodes = [
        (m, snapshot.nodes.positions[m.node], 1, int(m.state is not PodState.RELEASING))
        for m in on_nodes
    ]

    class Compared:
        def counts(self, key, wanted, counted=None):
            found = domain_counts(snapshot.nodes, key, (), (), counted)
            for member, row, now, later in (*pods_on_nodes, *decided):
                if wanted(member):
                    found.add(row, now, later)
            return found

        def selected(self, term, counted=None):
            return self.counts(term.topology_key, partial(selected_by, term), counted)

        def refusing(self, shape):
            owned = [
                term
                for member, *_ in (*pods_on_nodes, *decided)
                for term in rules_of(member.shape).anti_affinity
            ]
            return [
                self.counts(term.topology_key, partial(owns, term))
                for term in dict.fromkeys(owned)
                if selects(term.selection, shape.namespace, shape.labels, snapshot.namespaces)
            ]

    def owns(term, member):
        return term in rules_of(member.shape).anti_affinity

    def selected_by(term, member):
        return selects(term.selection, member.pod.namespace, member.labels, snapshot.namespaces)

    return Compared()


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(steps)
def test_counts_are_those_of_comparing_every_pod_with_every_term(course):
    decided: list[PodDecision] = []
    kept = counts_of(decided)
    for kind, *arguments in course:
        news = []
        if kind == "place":
            which, row, capacity = arguments
            news = [placed_pod(WAITING[i], row, capacity) for i in which]
        elif kind == "evict":
            member = RUNNING[arguments[0]]
            news = [evicted_pod(member, SNAPSHOT.nodes.positions[member.node])]
        elif kind == "ask":
            answers(kept, [SHAPES[arguments[0]]])
        for each in news:
            if each.member.pod.uid not in {one.member.pod.uid for one in decided}:
                decided.append(each)
                if kept.is_counting:
                    kept.add(each)
    compared = by_comparing(SNAPSHOT, decided)
    for term in {term: None for shape in SHAPES for term in counted_terms(shape)}:
        assert counted(kept.selected(term)) == counted(compared.selected(term))
    for capacity in Capacity:
        starts_now = capacity is Capacity.IDLE
        expected = PodRules(SNAPSHOT.nodes, SNAPSHOT.namespaces, compared, starts_now)
        for shape in SHAPES:
            rules = kept.rules(capacity)
            assert rules.preference(shape).tolist() == expected.preference(shape).tolist()
            assert filters(rules, shape) == filters(expected, shape)
            refused = any(
                reason.startswith("didn't satisfy") for reason, _ in filters(rules, shape)
            )
            assert kept.concern(shape) == bool(rules_of(shape) or refused)


def counted_terms(shape):
    rules = rules_of(shape)
    yield from (DomainTerm(rules.affinity, key) for key in rules.affinity_keys)
    yield from rules.anti_affinity
    yield from (term for term, _ in (*rules.preferred, *rules.spread))


def counted(counts):
    return counts.codes.tolist(), counts.now.tolist(), counts.later.tolist()


def filters(rules, shape):
    return [(reason, passes.tolist()) for reason, passes in rules.filters(shape)]


def counts_of(decided=()):
    return PodRuleCounts(SNAPSHOT, lambda: decided)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(steps, steps)
def test_counts_kept_are_counts_built(before, course):
    """``before``: decided when the first rule is asked for."""
    decided: list[PodDecision] = []
    kept = PodRuleCounts(SNAPSHOT, lambda: decided)
    for kind, *arguments in (*before, ("ask", 0), *course):
        if kind == "place":
            which, row, capacity = arguments
            news = [placed_pod(WAITING[i], row, capacity) for i in which]
        elif kind == "evict":
            member = RUNNING[arguments[0]]
            news = [evicted_pod(member, SNAPSHOT.nodes.positions[member.node])]
        elif kind == "undo":
            if decided:
                last = decided.pop()
                if kept.is_counting:
                    kept.undo(last.member.pod.uid, placed=last.later > 0)
            continue
        else:
            answers(kept, [SHAPES[arguments[0]]])
            continue
        known = {each.member.pod.uid for each in decided}
        for each in news:
            if each.member.pod.uid not in known:
                decided.append(each)
                if kept.is_counting:
                    kept.add(each)
    assert answers(kept, SHAPES) == answers(counts_of(decided), SHAPES)
    while decided:
        last = decided.pop()
        kept.undo(last.member.pod.uid, placed=last.later > 0)
    assert answers(kept, SHAPES) == answers(counts_of(), SHAPES)


def test_nothing_is_counted_while_no_rule_concerns_what_is_asked():
    plain = [pod(f"plain-{i}", queue="q", labels={"app": "x"}) for i in range(3)]
    dns = Affinity(
        pod_anti_affinity=PodAffinity(
            required=(term("dns", HOST),),
            preferred=(WeightedPodAffinityTerm(weight=1, pod_affinity_term=term("x", HOST)),),
        )
    )
    runs = pod("dns", node="n0", labels={"app": "dns"}, affinity=dns, scheduler_name="other")
    world = cluster(node("n0"), queue("q", 8), plain, runs)
    counted = []
    with patch.object(PodRuleCounts, "add", lambda _, decision: counted.append(decision)):
        assert len(placed(world.plan())) == 3
    assert not counted


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
    counts = PodRuleCounts(snapshot, lambda: ())

    def passes(name, capacity):
        found = counts.rules(capacity).filters(members[name].shape)
        return [passes.tolist() for _, passes in found]

    assert passes("waits", Capacity.IDLE) == [[False, True]]
    assert passes("waits", Capacity.FUTURE_IDLE) == []  # no node is excluded
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
    counts = PodRuleCounts(snapshot, lambda: ())
    counts.add(placed_pod(members["web"], 0, Capacity.FUTURE_IDLE))
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
