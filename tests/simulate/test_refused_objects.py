"""Objects in files that an API server would refuse."""

import pytest

from tests.simulate.manifests import (
    ANY_DEVICE,
    QUEUE,
    allocated,
    claim,
    exactly,
    gpus_of,
    node,
    placed_on,
    plan,
    pod,
    resource,
)

LABEL = "resource.kubernetes.io/admin-access"
ADMIN = exactly(adminAccess=True)


def asking(source="resourceClaimName", name="c", **fields):
    return pod("a", gpus=0, resourceClaims=[{"name": "gpu", source: name}], **fields)


def template(*requests, **fields):
    spec = {"spec": {"devices": {"requests": [*requests]}}}
    return resource("ResourceClaimTemplate", "c", spec, **fields)


def namespace(**labels):
    meta = {"name": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def planned(*objects, slices=(), classes=(ANY_DEVICE,)):
    return plan(node("n0"), QUEUE, *classes, *(slices or [gpus_of("n0")]), *objects)


def refused(found):
    return {each["object"]: each["problem"] for each in found["rejected"]}


def test_a_version_with_another_form_is_named_and_not_checked_as_if_it_had_todays():
    flat = template({"name": "gpu", "deviceClassName": "any"})
    old = flat | {"apiVersion": "resource.k8s.io/v1alpha3"}
    problem = "resource.k8s.io/v1alpha3 is not supported: use v1, v1beta2, v1beta1"
    assert refused(planned(old))["ResourceClaimTemplate default/c"] == problem
    assert refused(planned(flat | {"apiVersion": "resource.k8s.io/v1beta1"})) == {}


@pytest.mark.parametrize(
    ("source", "made", "kind"),
    [
        ("resourceClaimName", claim, "ResourceClaim"),
        ("resourceClaimTemplateName", lambda _name, each: template(each), "ResourceClaimTemplate"),
    ],
)
@pytest.mark.parametrize(
    ("spaces", "started"),
    [
        ([namespace()], False),
        ([namespace(**{LABEL: "false"})], False),
        ([namespace(**{LABEL: "true"})], True),
        ([], True),  # it is not known whether the namespace has the label
    ],
)
def test_admin_access_needs_the_label_of_its_namespace(source, made, kind, spaces, started):
    found = planned(made("c", ADMIN), asking(source), *spaces)
    assert bool(placed_on(found)) is started
    problems = {} if started else {f"{kind} default/c": LABEL}
    assert {name: LABEL for name, text in refused(found).items() if LABEL in text} == problems


@pytest.mark.parametrize(("fields", "started"), [({"resourceVersion": "7"}, True), ({}, False)])
def test_what_an_api_server_has_accepted_is_not_validated_again(fields, started):
    made = claim("c", ADMIN)
    made["metadata"] |= fields
    assert bool(placed_on(planned(made, asking(), namespace()))) is started


def test_a_template_needs_the_label_whenever_a_claim_is_made_of_it():
    made = template(ADMIN)
    made["metadata"]["resourceVersion"] = "7"
    found = planned(made, asking("resourceClaimTemplateName"), namespace())
    assert [*refused(found)] == ["ResourceClaimTemplate default/c"]


def test_an_allocated_claim_keeps_its_devices_though_it_would_be_refused():
    held = allocated("held", "n0", "gone")
    held["spec"]["devices"]["requests"] *= 2
    bound = pod("b", gpus=0, node="n0", resourceClaims=[{"name": "x", "resourceClaimName": "held"}])
    assert placed_on(planned(held, bound, claim("c", exactly()), asking())) == {}


def of_v1beta1(**request):
    return resource("ResourceClaim", "c", {"devices": {"requests": [request]}}, "v1beta1")


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (claim("c", exactly(), exactly()), "requests[1].name: Duplicate"),
        (
            claim("c", exactly() | {"firstAvailable": [exactly()["exactly"]]}),
            "requests[0]: Invalid",
        ),
        (claim("c", {"name": "gpu"}), "requests[0]: Required"),
        (claim("c", exactly(count=-1)), "exactly.count"),
        (claim("c", {"name": "gpu", "exactly": {"deviceClassName": ""}}), "deviceClassName"),
        (
            claim("c", exactly(capacity={"requests": {"memory": "much"}})),
            "capacity.requests[memory]",
        ),
        (of_v1beta1(name="gpu", deviceClassName="any", count=-1), "exactly.count"),
        (of_v1beta1(name="gpu"), "requests[0]: Required"),
        (claim("c", None), "requests[0].name: Required"),
        (claim("c", exactly(selectors=[None])), "selectors[0].cel.expression: Required"),
    ],
)
def test_a_claim_is_refused_with_the_words_of_the_api_server(made, field):
    found = planned(made, asking())
    assert placed_on(found) == {}
    assert field in refused(found)["ResourceClaim default/c"]


ANY = {"deviceClassName": "any"}


@pytest.mark.parametrize(
    "made",
    [
        of_v1beta1(name="gpu", deviceClassName="any"),
        of_v1beta1(name="gpu", deviceClassName="any", allocationMode=None, count=0),
        claim("c", exactly(selectors=None)),
        claim("c", exactly(count=0)),
        claim("c", exactly(allocationMode="", count=None)),
        claim("c", {"name": "g", "firstAvailable": [{**ANY, "name": "s", "count": 0}]}),
    ],
)
def test_a_claim_that_is_accepted_is_used(made):
    found = planned(made, asking())
    assert (placed_on(found), refused(found)) == ({"default/a": "n0"}, {})
    [allocation] = found["placements"][0]["claims"].values()
    assert len(allocation["devices"]["results"]) == 1


@pytest.mark.parametrize(
    "request_",
    [
        exactly("Gpu_0"),
        exactly(allocationMode="All", count=2),
        {"name": "gpu", "firstAvailable": [{"name": "Sub", "deviceClassName": "any"}] * 9},
    ],
)
def test_a_claim_whose_meaning_is_clear_is_used(request_):
    found = planned(claim("c", request_), asking())
    assert (placed_on(found), refused(found)) == ({"default/a": "n0"}, {})


@pytest.mark.parametrize("odd", [None, [], {"devices": []}, {"devices": {"requests": "x"}}])
def test_what_cannot_be_read_stops_nothing_else(odd):
    made = claim("c") | {"spec": odd}
    assert placed_on(planned(made, pod("b"))) == {"default/b": "n0"}


def slice_with(version="v1", **fields):
    made = gpus_of("n0")
    made["spec"] |= fields
    return made | {"apiVersion": f"resource.k8s.io/{version}"}


ANY_NODE = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]}


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (slice_with(allNodes=True), "spec: Invalid"),
        (slice_with(nodeName=None), "spec: Required"),
        (slice_with(nodeName=None, allNodes=False), "spec.allNodes"),
        (
            slice_with(nodeName=None, nodeSelector={"nodeSelectorTerms": [ANY_NODE, ANY_NODE]}),
            "exactly one node selector term",
        ),
        (slice_with(devices=[{"name": "a"}, {"name": "a"}]), "devices[1].name: Duplicate"),
        (slice_with(devices=[{"name": "a", "nodeName": "n0"}]), "perDeviceNodeSelection"),
        (slice_with(perDeviceNodeSelection=True, nodeName=None), "spec.devices[0]: Required"),
        (
            slice_with(devices=[{"name": "a", "attributes": {"x": {"version": "1"}}}]),
            "attributes[x].version",
        ),
        (slice_with(pool={"name": "n0", "generation": 1}), "resourceSliceCount"),
    ],
)
def test_the_devices_of_a_slice_that_is_refused_are_not_given(made, field):
    found = planned(claim("c", exactly()), asking(), slices=[made])
    assert placed_on(found) == {}
    assert field in refused(found)["ResourceSlice n0-gpus"]


@pytest.mark.parametrize(
    "fields",
    [
        {"devices": [{"name": f"D_{i}"} for i in range(129)]},
        {"devices": [{"name": "a", "attributes": {"x": {}, "a-b": {"int": 1}}}]},
        {"devices": [{"name": "a", "capacity": {"capacity-0": {"value": "1Gi"}}}]},
    ],
)
def test_a_slice_whose_meaning_is_clear_gives_its_devices(fields):
    found = planned(claim("c", exactly()), asking(), slices=[slice_with(**fields)])
    assert (placed_on(found), refused(found)) == ({"default/a": "n0"}, {})


def test_counters_beside_devices_are_taken_as_older_versions_take_them():
    counters = [{"name": "s", "counters": {"units": {"value": "1"}}}]
    uses = [{"counterSet": "s", "counters": {"units": {"value": "1"}}}]
    made = slice_with(sharedCounters=counters, devices=[{"name": "a", "consumesCounters": uses}])
    assert placed_on(planned(claim("c", exactly()), asking(), slices=[made])) == {"default/a": "n0"}


def test_a_class_whose_selector_is_wrong_selects_nothing():
    wrong = resource("DeviceClass", "any", {"selectors": [{"cel": {"expression": "device."}}]})
    found = planned(claim("c", exactly()), asking(), classes=[wrong])
    assert placed_on(found) == {}
    assert "selectors[0].cel.expression" in refused(found)["DeviceClass any"]


def budget(**spec):
    metadata = {"name": "b"}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"selector": {}, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "is_refused"),
    [
        ({"minAvailable": 1, "maxUnavailable": 0}, True),
        ({"minAvailable": None, "maxUnavailable": 0}, False),
    ],
)
def test_a_budget_of_two_kinds_is_refused_and_protects_nothing(spec, is_refused):
    running, wanted = pod("low", gpus=4, node="n0"), pod("high", gpus=4, priority=5)
    found = plan(node("n0"), QUEUE, budget(**spec), running, wanted)
    assert bool(found["evictions"]) is is_refused
    assert [*refused(found)] == ["PodDisruptionBudget default/b"] * is_refused


def test_a_priority_class_above_the_highest_is_refused_with_its_pods():
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 2_000_000_000,
    }
    found = plan(node("n0"), QUEUE, high, pod("a", priorityClassName="high"))
    assert placed_on(found) == {}
    assert [*refused(found)] == ["Pod default/a", "PriorityClass high"]
