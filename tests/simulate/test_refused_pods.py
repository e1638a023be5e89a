"""Pods in files that an API server would refuse for what its scheduler reads."""

import pytest

from tests.simulate.manifests import QUEUE, node, placed_on, plan, pod

NODES = "requiredDuringSchedulingIgnoredDuringExecution"
BY_HOST = {"topologyKey": "kubernetes.io/hostname"}
SPREAD = BY_HOST | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


def on_nodes(*expressions):
    terms = [{"matchExpressions": [each]} for each in expressions]
    return {"affinity": {"nodeAffinity": {NODES: {"nodeSelectorTerms": terms}}}}


def near(kind="podAffinity", **term):
    return {"affinity": {kind: {NODES: [term]}}}


def preferring(kind, weight, **given):
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {kind: {preferred: [{"weight": weight, **given}]}}}


def using(claim):
    return {"containers": [{"name": "main", "resources": {"claims": [{"name": claim}]}}]}


def with_amounts(**resources):
    return {"containers": [{"name": "main", "resources": resources}]}


REFUSED = [
    (with_amounts(limits={"gpu": 1}), 'limits[gpu]: Invalid value: "gpu": must be a standard'),
    (with_amounts(requests={"CPU": 1}), "requests[CPU]: Invalid"),
    ({"tolerations": [None]}, "operator must be Exists when `key` is empty"),
    ({"resourceClaims": [None]}, "spec.resourceClaims[0].name: Required"),
    ({"resourceClaims": [{"name": "a"}]}, "spec.resourceClaims[0]"),
    ({"resourceClaims": [{"resourceClaimName": "c"}]}, "spec.resourceClaims[0].name"),
    (
        {"resourceClaims": [{"name": "a", "resourceClaimName": "c"}] * 2},
        "spec.resourceClaims[1].name: Duplicate",
    ),
    (using("a"), "spec.containers[0].resources.claims[0]: Invalid"),
    ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, "spec.schedulingGates[1].name"),
    ({"tolerations": [{"key": "a", "operator": "Is"}]}, "spec.tolerations[0].operator"),
    ({"tolerations": [{"value": "a"}]}, "operator must be Exists when `key` is empty"),
    (
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "value must be empty when `operator` is 'Exists'",
    ),
    ({"tolerations": [{"operator": "Exists", "effect": "No"}]}, "spec.tolerations[0].effect"),
    (
        {"tolerations": [{"operator": "Exists", "tolerationSeconds": 5}]},
        "effect must be 'NoExecute' when `tolerationSeconds` is set",
    ),
    (on_nodes(), "must have at least one node selector term"),
    (on_nodes({"key": "a", "operator": "Is"}), "matchExpressions[0].operator"),
    (on_nodes({"operator": "Exists"}), "matchExpressions[0].key"),
    (on_nodes({"key": "a", "operator": "In", "values": []}), "matchExpressions[0].values"),
    (on_nodes({"key": "a", "operator": "Exists", "values": ["b"]}), "matchExpressions[0].values"),
    (on_nodes({"key": "a", "operator": "Gt", "values": ["1", "2"]}), "matchExpressions[0].values"),
    (preferring("nodeAffinity", 0, preference={}), "must be in the range 1-100"),
    (preferring("podAntiAffinity", 101, podAffinityTerm=BY_HOST), "must be in the range 1-100"),
    (preferring("podAffinity", 1, podAffinityTerm={}), "podAffinityTerm.topologyKey"),
    (near(labelSelector={}), "spec.affinity.podAffinity." + NODES + "[0].topologyKey"),
    (
        near(
            "podAntiAffinity",
            labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            **BY_HOST,
        ),
        "labelSelector.matchExpressions[0].operator",
    ),
    ({"topologySpreadConstraints": [SPREAD | {"maxSkew": 0}]}, "[0].maxSkew"),
    ({"topologySpreadConstraints": [SPREAD | {"topologyKey": ""}]}, "[0].topologyKey"),
    ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "x"}]}, "whenUnsatisfiable"),
    ({"topologySpreadConstraints": [SPREAD | {"minDomains": 0}]}, "[0].minDomains"),
    ({"topologySpreadConstraints": [SPREAD, SPREAD]}, "topologySpreadConstraints[0]"),
    ({"preemptionPolicy": "Maybe"}, "spec.preemptionPolicy"),
]


def problems(found):
    return {each["object"]: each["problem"] for each in found["rejected"]}


@pytest.mark.parametrize(("spec", "problem"), REFUSED)
def test_a_pod_is_refused_with_the_words_of_the_api_server(spec, problem):
    found = plan(node("n0"), QUEUE, pod("a", **spec), pod("b"))
    assert placed_on(found) == {"default/b": "n0"}
    assert problem in problems(found)["Pod default/a"]


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"operator": "Exists"}, {"key": "a", "operator": "Lt", "value": "5"}]},
        {"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 0}]},
        on_nodes({"key": "a", "operator": "DoesNotExist"}),
        near("podAntiAffinity", labelSelector=None, **BY_HOST),
        {"topologySpreadConstraints": [SPREAD, SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"tolerations": None, "affinity": None, "resourceClaims": None},
    ],
)
def test_a_pod_that_is_accepted_is_placed(spec):
    found = plan(node("n0"), QUEUE, pod("a", **spec))
    assert (placed_on(found), problems(found)) == ({"default/a": "n0"}, {})


@pytest.mark.parametrize(("fields", "started"), [({"resourceVersion": "7"}, True), ({}, False)])
def test_a_pod_that_an_api_server_has_accepted_is_not_validated_again(fields, started):
    given = pod("a", preemptionPolicy="Later")
    given["metadata"] |= {"uid": "a", **fields}
    given["status"] = {"phase": "Pending"}
    assert bool(placed_on(plan(node("n0"), QUEUE, given))) is started


def test_a_pod_on_a_node_keeps_its_capacity():
    odd = pod("odd", gpus=4, node="n0", preemptionPolicy="Maybe")
    assert placed_on(plan(node("n0"), QUEUE, odd, pod("a"))) == {}
