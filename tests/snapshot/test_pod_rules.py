"""Counts for rules between pods, kept as pods come and go, are those of counting all pods."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kai_py.snapshot.pod_selection import DomainTerm, PodSelector, covers, rules_of, selects
from kai_py.snapshot.selection_index import SelectionIndex, selection_parts
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.pod_rules import PodEntry, PodRuleTable
from tests.support.examples import examples
from tests.support.scenario import cluster, node, pod, queue

KEYS = ("rack", "kubernetes.io/hostname")
labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))
expression = st.builds(
    SelectorRequirement,
    key=st.sampled_from("ab"),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.sampled_from([("x",), ("x", "y")]),
)
selector = st.builds(
    LabelSelector,
    match_labels=labels,
    match_expressions=st.lists(expression, max_size=1).map(tuple),
)
term = st.builds(
    PodAffinityTerm,
    label_selector=st.none() | selector,
    namespace_selector=st.none() | selector,
    namespaces=st.sampled_from([(), ("one",), ("one", "two")]),
    topology_key=st.sampled_from(KEYS),
    match_label_keys=st.sampled_from([(), ("a",)]),
    mismatch_label_keys=st.sampled_from([(), ("b",)]),
)
rules = st.builds(
    PodAffinity,
    required=st.lists(term, max_size=2).map(tuple),
    preferred=st.lists(
        st.builds(WeightedPodAffinityTerm, weight=st.just(3), pod_affinity_term=term), max_size=1
    ).map(tuple),
)
spread = st.builds(
    TopologySpreadConstraint,
    topology_key=st.sampled_from(KEYS),
    label_selector=selector,
    when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    match_label_keys=st.sampled_from([(), ("a",)]),
)
affinity = st.builds(Affinity, pod_affinity=st.none() | rules, pod_anti_affinity=st.none() | rules)


@st.composite
def entries(draw):
    namespace, own = draw(st.sampled_from(["one", "two"])), draw(labels)
    shape = Shape(
        0,
        {},
        affinity=draw(st.none() | affinity),
        topology_spread=draw(st.lists(spread, max_size=1).map(tuple)),
        namespace=namespace,
        labels=own,
    )
    ours = draw(st.booleans())
    found, leaving = rules_of(shape), draw(st.booleans())
    return PodEntry(
        namespace,
        own,
        draw(st.sampled_from(["n0", "n1"] if not ours else ["", "n0", "n1"])),
        terminating=leaving,
        stuck=leaving and draw(st.booleans()),
        ours=ours,
        selections=tuple(dict.fromkeys(found.selections())) if ours else (),
        refused=found.anti_affinity,
    )


events = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from("pqrs"), st.none() | entries()),
        st.tuples(st.just("namespace"), st.sampled_from(["one", "two"]), st.none() | labels),
        st.tuples(st.just("snapshot")),
    ),
    max_size=25,
)


def build(pods):
    table = PodRuleTable()
    for uid, entry in pods.items():
        table.set(uid, entry)
    return table.snapshot()


def counted(pods):
    found = ({}, {}, {})
    for each in pods:
        for counts in found[: 1 + each.terminating + each.stuck] if each.node else ():
            counts[each.node] = counts.get(each.node, 0) + 1
    return found


def by_counting(pods, namespaces):
    """What every selection selects and who owns every term, from all pods at once."""
    entries = list(pods.values())
    wanted = {selection for each in entries for selection in each.selections}
    refused = {term for each in entries for term in each.refused}
    return (
        {
            selection: counted(
                p for p in entries if selects(selection, p.namespace, p.labels, namespaces)
            )
            for selection in wanted
        },
        {term: counted(p for p in entries if term in p.refused) for term in refused},
    )


def as_kept(index, pods, namespaces):
    """The same, from the index."""
    wanted = {selection for each in pods.values() for selection in each.selections}
    return {each: selected(index, each, namespaces) for each in wanted}, dict(index.refusing)


def selected(index, selection, namespaces):
    """The pods of the index by node that a selection selects: those of its base less excluded."""
    base, _, scopes = selection_parts(selection)
    kept = [index.selected[base, scope] for scope in scopes] if base is not None else []
    found = ({}, {}, {})
    for sign, by_namespace in (
        *((1, each) for each in kept),
        (-1, index.excluded.get(selection, {})),
    ):
        for name, counts in by_namespace.items():
            for at, of_kind in enumerate(counts if covers(selection, name, namespaces) else ()):
                for node_name, count in of_kind.items():
                    found[at][node_name] = found[at].get(node_name, 0) + sign * count
    return tuple({name: count for name, count in each.items() if count} for each in found)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(events)
def test_the_index_kept_is_the_index_built(changes):
    table, pods, namespaces = PodRuleTable(), {}, {}
    for kind, *arguments in changes:
        if kind == "snapshot":
            before = table.snapshot()
            assert table.snapshot() is before
            continue
        name, new = arguments
        known = pods if kind == "pod" else namespaces
        if kind == "pod":
            table.set(name, new)
        known.pop(name, None)
        if new is not None:
            known[name] = new
    kept = table.snapshot()
    assert kept == build(pods)
    assert as_kept(kept, pods, namespaces) == by_counting(pods, namespaces)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pqrs"), st.none() | entries()), max_size=15))
def test_pods_whose_labels_begin_to_matter_are_named(changes):
    table, pods, known = PodRuleTable(), {}, {}
    for uid, entry in changes:
        named = set(table.release(uid) if entry is None else table.set(uid, entry))
        pods.pop(uid, None)
        known.pop(uid, None)
        if entry is not None:
            pods[uid] = entry
        for each in (uid, *sorted(named)):  # as they are derived
            if each in pods:
                meta = ObjectMeta(
                    uid=each, namespace=pods[each].namespace, labels=pods[each].labels
                )
                table.labels_matter(Pod(metadata=meta))
        for each, pod_entry in pods.items():
            matters = table._terms.may_select(pod_entry.namespace, pod_entry.labels)
            if pod_entry.ours and matters and not known.get(each, False):
                assert each in named or each == uid
            assert matters or each not in named
            known[each] = matters or known.get(each, False)


@pytest.mark.parametrize("namespace", ["one", "two"])
def test_a_term_names_the_pods_of_the_namespaces_that_it_covers(namespace):
    table, own = PodRuleTable(), {"app": "a"}
    table.set("waiting", PodEntry(namespace, own, "", ours=True))
    assert not table.labels_matter(
        Pod(metadata=ObjectMeta(uid="waiting", namespace=namespace, labels=own))
    )
    other_apps = SelectorRequirement(key="app", operator="NotIn", values=("b",))
    selector = LabelSelector(match_expressions=(other_apps,))
    term = DomainTerm((PodSelector(b"", ("one",), None, selector, None),), KEYS[0])
    named = table.set("refusing", PodEntry("one", {"app": "b"}, "n0", refused=(term,)))
    assert named == (("waiting",) if namespace == "one" else ())


WEB = {"app": "web"}
APART = Affinity(
    pod_anti_affinity=PodAffinity(
        required=(
            PodAffinityTerm(label_selector=LabelSelector(match_labels=WEB), topology_key=KEYS[1]),
        )
    )
)


def shapes_of(world):
    return {
        member.pod.name: member.shape
        for gang in world.snapshot().gangs.values()
        for member in gang.members
    }


def test_labels_are_part_of_a_shape_only_where_a_rule_may_concern_the_pod():
    waiting = [pod(f"web-{i}", queue="q", labels=WEB | {"job": f"{i}"}) for i in range(2)]
    others = [pod(f"db-{i}", queue="q", labels={"app": "db", "job": f"{i}"}) for i in range(2)]
    world = cluster(node("a"), queue("q", 8), waiting, others)
    assert len({shape.number for shape in shapes_of(world).values()}) == 1
    world.add(pod("alone", node="a", scheduler_name="other", affinity=APART))
    shapes = shapes_of(world)
    assert shapes["db-0"] is shapes["db-1"]
    assert shapes["db-0"].labels == {}
    assert [shapes[f"web-{i}"].labels["job"] for i in range(2)] == ["0", "1"]


def test_an_index_that_counts_nothing_new_stays_the_same_object():
    world = cluster(
        node("a"), queue("q", 8), pod("alone", node="a", scheduler_name="other", affinity=APART)
    )
    before = world.snapshot().pod_rules
    world.add(pod("db", queue="q", node="a", labels={"app": "db"}))
    assert world.snapshot().pod_rules is before


def test_a_pod_is_still_selected_after_another_rule_for_it_has_gone():
    selector = LabelSelector(match_labels={"app": "train"})
    selection = (PodSelector(b"", ("one",), None, selector, None),)
    index = SelectionIndex()
    for name in ("first", "second"):
        index.add(name, selection)
    index.discard("first")
    (base,) = index.bases({"app": "train"})
    assert [item for item, _ in index.covering(base, "one", {})] == ["second"]
    index.discard("second")
    assert index.bases({"app": "train"}) == []
