"""A name that nothing in the cluster has is said to be the cause, with the nearest that exists."""

from types import SimpleNamespace

import pytest

from kai_py.api.problems import MAX_CANDIDATES, closest_match
from kai_py.api.records.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    PodResourceClaim,
    SelectorRequirement,
)
from kai_py.api.records.node import Taint
from kai_py.api.records.resource import ResourceClaimSpec, ResourceClaimTemplate
from kai_py.dra.published_names import ATTRIBUTES, CAPACITY
from kai_py.grouping.topology_annotations import REQUIRED_LEVEL_KEY
from kai_py.plan.explain import unresolved_names
from kai_py.plan.explain.unresolved_names import MAX_EXPLAINED
from kai_py.snapshot.shape import ClaimUse
from tests.support.records import from_json, replace
from tests.support.scenario import cluster, job_with_pods, node, pod, queue
from tests.support.worlds import gang

H100 = {"gpu": "h100", "rack": "r0", "beta.kubernetes.io/os": "linux"}


def message(*objects):
    """Of the one gang that stays pending."""
    [found] = cluster(node("a", labels=H100), queue("team-a", 8), *objects).plan().unplaced
    return found.message


def in_affinity(operator, key, *values, terms=1):
    expression = SelectorRequirement(key=key, operator=operator, values=values)
    term = NodeSelectorTerm(match_expressions=(expression,))
    required = NodeSelector(node_selector_terms=(term,) * terms)
    return Affinity(node_affinity=NodeAffinity(required=required))


@pytest.mark.parametrize(("names", "is_told"), [((), False), (("b",), True), (("b", "c"), False)])
def test_a_node_is_missing_only_if_one_is_named(names, is_told):
    field = SelectorRequirement(key="metadata.name", operator="In", values=names)
    required = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))
    affinity = Affinity(node_affinity=NodeAffinity(required=required))
    found = message(pod("p", queue="team-a", affinity=affinity))
    assert "Infeasible: no node matches the node selector or affinity of a pod" in found
    assert ("No node" in found) == is_told


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"node_selector": {"gpu": "h1000"}}, "No node has label gpu=h1000; did you mean h100?"),
        ({"node_selector": {"gpuu": "h100"}}, "No node has label gpuu; did you mean gpu?"),
        ({"node_selector": {"gpu": "xyz"}}, "No node has label gpu=xyz."),
        (
            {"node_selector": {"topology.kubernetes.io/zone": "a"}},
            "No node has label topology.kubernetes.io/zone.",
        ),
        (
            {"node_selector": {"example.com/rack": "r0"}},
            "No node has label example.com/rack; did you mean rack?",
        ),
        (
            {"affinity": in_affinity("In", "rack", "r00")},
            "No node has label rack=r00; did you mean r0?",
        ),
        ({"affinity": in_affinity("Exists", "rak")}, "No node has label rak; did you mean rack?"),
        (
            {"requests": {"nvidia.com/gpus": "1"}},
            "No node reports resource nvidia.com/gpus; did you mean nvidia.com/gpu?",
        ),
        (
            {"requests": {"example.com/fpga": "1"}},
            "No node reports resource example.com/fpga, and no DeviceClass serves it.",
        ),
        ({"requests": {"hugepages-2Mi": "1"}}, "No node reports resource hugepages-2Mi."),
    ],
)
def test_the_nearest_name_is_said(options, hint):
    assert message(pod("p", queue="team-a", **options)).endswith(hint)


@pytest.mark.parametrize(
    "options",
    [
        {"affinity": in_affinity("NotIn", "rack", "r0")},
        {"affinity": in_affinity("In", "rack", "r9", terms=2)},
        {"requests": {"cpu": "500"}},
    ],
)
def test_what_need_not_exist_is_no_cause(options):
    assert "did you mean" not in message(pod("p", queue="team-a", **options))
    assert "No node has label" not in message(pod("p", queue="team-a", **options))


def test_a_misspelt_queue():
    assert message(pod("p", queue="team-aa")).endswith(" Did you mean queue team-a?")


def test_without_a_queue_those_that_take_the_namespace_are_listed():
    closed = queue("others", 8, namespaces={"names": ["elsewhere"]})
    assert message(closed, pod("p")).endswith(" Queues for namespace default: team-a.")


def test_a_closed_queue_lists_the_open_ones():
    closed = queue("zzz", 8, namespaces={"names": ["elsewhere"]})
    assert message(closed, pod("p", queue="zzz")).endswith(" Queues for namespace default: team-a.")


def test_a_misspelt_topology_level():
    owner, *pods = job_with_pods("train", 2, queue="team-a")
    noted = {**owner.metadata.annotations, REQUIRED_LEVEL_KEY: "rak"}
    owner = replace(owner, metadata=replace(owner.metadata, annotations=noted))
    assert message(owner, *pods).endswith("No node has label rak; did you mean rack?")


def test_the_taint_is_named():
    tainted = node("b", taints=(Taint(key="spot", value="true", effect="NoSchedule"),))
    text = message(tainted, pod("p", 16, queue="team-a"))
    assert "1 had untolerated taint {spot: true}" in text


def test_advice_is_bounded():
    lost = [pod(f"p{i:03}", queue=f"team-b{i}") for i in range(MAX_EXPLAINED + 5)]
    plan = cluster(node("a"), queue("team-a", 8), *lost).plan()
    assert sum("Did you mean" in each.message for each in plan.unplaced) == MAX_EXPLAINED


def test_of_a_pod_with_very_many_labels_only_those_that_are_said_are_compared(monkeypatch):
    compared = []
    monkeypatch.setattr(
        unresolved_names, "closest_match", lambda word, _known: compared.append(word)
    )
    wanted = {f"label-{number}": "x" for number in range(1000)}
    assert "No node has label label-0" in message(pod("p", queue="team-a", node_selector=wanted))
    assert len(compared) == unresolved_names.MAX_NAMES


def test_of_very_many_names_those_that_begin_alike_are_compared():
    names = [f"node-{i}" for i in range(MAX_CANDIDATES * 3)] + ["zebra-1"]
    assert closest_match("zebra-11", names) == "zebra-1"


def claiming(name, *, claim="", template=""):
    entry = PodResourceClaim(
        name="gpu",
        resource_claim_name=claim,
        resource_claim_template_name=template,
    )
    found = pod(name, queue="team-a")
    return replace(found, spec=replace(found.spec, resource_claims=(entry,)))


def template(name, namespace="default"):
    return ResourceClaimTemplate(metadata=ObjectMeta(name=name, namespace=namespace, uid=name))


def test_a_misspelt_template_and_no_longer_once_it_exists():
    ours = cluster(
        node("a"), queue("team-a", 8), template("one-gpu"), claiming("p", template="one-gpus")
    )
    assert ours.plan().unplaced[0].message.endswith(" Did you mean ResourceClaimTemplate one-gpu?")
    ours.add(template("one-gpus"))
    assert "Did you mean" not in ours.plan().unplaced[0].message
    ours.remove(template("one-gpus"))
    assert "Did you mean" in ours.plan().unplaced[0].message


def test_names_that_nothing_misses_are_no_part_of_the_snapshot():
    ours = cluster(node("a"), queue("team-a", 8), template("one-gpu"))
    assert ours.snapshot().known_names == {}
    waits = claiming("p", template="one-gpus")
    ours.add(waits)
    scope = ("resourceclaimtemplates", "default")
    assert ours.snapshot().known_names == {scope: {"one-gpu"}}
    ours.add(template("two-gpus"))
    assert ours.snapshot().known_names == {scope: {"one-gpu", "two-gpus"}}
    ours.remove(waits)
    assert ours.snapshot().known_names == {}


def test_a_template_of_another_namespace_is_not_meant():
    text = message(template("one-gpu", "elsewhere"), claiming("p", template="one-gpus"))
    assert "Did you mean" not in text


def test_of_tolerations_the_one_that_admits_most_nodes_is_named():
    spot = Taint(key="spot", value="true", effect="NoSchedule")
    rare = Taint(key="rare", effect="NoExecute")
    passing = Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule")
    nodes = [
        node(f"n{i}", labels={"pool": "x"}, taints=taints)
        for i, taints in enumerate([(spot,), (spot,), (rare,), (spot, rare), (passing,)])
    ]
    text = message(*nodes, pod("p", queue="team-a", node_selector={"pool": "x"}))
    assert text.endswith(" A toleration of taint spot=true:NoSchedule would admit 2 nodes.")


def test_values_that_no_device_publishes_are_looked_for_by_every_name_in_claims():
    """But for those that the claim derives itself."""
    request = {
        "name": "r",
        "exactly": {
            "deviceClassName": "any",
            "derivedAttributes": [{"name": "d/derived"}],
            "capacity": {"requests": {"memory": "1Gi"}},
        },
    }
    constraints = [
        {"matchAttribute": "d/derived"},
        {"distinctAttribute": "d/distinct"},
        {"matchAttribute": "d/match"},
    ]
    devices = {"requests": [request], "constraints": constraints}
    shape = replace(
        gang("g", pods=1).members[0].shape,
        claims=(ClaimUse("c", from_json(ResourceClaimSpec, {"devices": devices})),),
    )
    pending = [SimpleNamespace(shape=shape)] * 2
    assert [*unresolved_names._named_values(SimpleNamespace(pending=pending))] == [
        (ATTRIBUTES, "d/distinct"),
        (ATTRIBUTES, "d/match"),
        (CAPACITY, "memory"),
    ]
