import pytest

from kai_py.embedded.deletion import delete
from kai_py.embedded.errors import RequestError
from kai_py.embedded.nodes import h100_slices
from kai_py.embedded.resources import CLAIM_TEMPLATES, CLAIMS, SLICES
from tests.embedded.manifests import allocation, claim, claim_template, consumer, pod


def write_status(bare, status):
    present = bare.api.get(CLAIMS, "c", "default")
    document = {**present, "status": status}
    return bare.api.update(CLAIMS, "c", document, "default", subresource="status")


def refused_fields(call, *args, **kwargs):
    with pytest.raises(RequestError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == 422
    return [cause["field"] for cause in caught.value.details["causes"]]


def test_defaults_of_requests(bare):
    spec = bare.create(claim("c"))["spec"]
    exactly = spec["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    empty = bare.create(claim("empty", allocationMode="", count=0))["spec"]["devices"]["requests"]
    assert empty[0]["exactly"] == exactly
    whole = bare.create(claim("all", allocationMode="All"))["spec"]["devices"]["requests"][0]
    assert "count" not in whole["exactly"]
    inner = bare.create(claim_template("t"))["spec"]["spec"]["devices"]["requests"][0]
    assert inner["exactly"]["count"] == 1


def spec_of(**devices):
    document = claim("c")
    document["spec"] = {"devices": devices}
    return document


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (spec_of(requests=[{"name": "g", "deviceClassName": "x"}]), "spec.devices.requests[0]"),
        (
            spec_of(requests=[{"name": "g", "exactly": {"count": 1}}]),
            "spec.devices.requests[0].exactly.deviceClassName",
        ),
        (claim("c", count=-1), "spec.devices.requests[0].exactly.count"),
        (claim("c", allocationMode="All", count=2), "spec.devices.requests[0].exactly.count"),
        (claim("c", allocationMode="Some"), "spec.devices.requests[0].exactly.allocationMode"),
        (
            spec_of(
                requests=claim("c")["spec"]["devices"]["requests"],
                constraints=[{"requests": ["other"], "matchAttribute": "a/b"}],
            ),
            "spec.devices.constraints[0].requests[0]",
        ),
        (
            claim("c", selectors=[{"cel": {"expression": "device.driver =="}}]),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        ),
        (
            claim("c", selectors=[{"cel": {"expression": "device.driver"}}]),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        ),
        (
            spec_of(requests=claim("c")["spec"]["devices"]["requests"] * 2),
            "spec.devices.requests[1].name",
        ),
        (spec_of(requests=[None]), "spec.devices.requests[0].name"),
        (
            claim("c", selectors=[None]),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        ),
        (spec_of(config=[None]), "spec.devices.config[0].opaque"),
    ],
)
def test_claims_are_checked(bare, document, field):
    assert field in refused_fields(bare.create, document)


def test_a_claim_spec_never_changes(bare):
    created = bare.create(claim("c"))
    document = {**created, "spec": claim("c", count=2)["spec"]}
    assert refused_fields(bare.api.update, CLAIMS, "c", document, "default") == ["spec"]
    template = bare.create(claim_template("t"))
    document = {**template, "spec": {"spec": claim("c", count=2)["spec"]}}
    assert refused_fields(bare.api.update, CLAIM_TEMPLATES, "t", document, "default") == ["spec"]


def test_an_allocation_can_be_set_and_cleared_but_not_changed(bare):
    bare.create(claim("c"))
    write_status(bare, {"allocation": allocation("gpu-0")})
    assert refused_fields(write_status, bare, {"allocation": allocation("gpu-1")}) == [
        "status.allocation"
    ]
    assert write_status(bare, {})["status"] == {}
    assert write_status(bare, {"allocation": allocation("gpu-1")})


def test_an_allocation_names_the_claims_requests(bare):
    bare.create(claim("c"))
    fields = refused_fields(write_status, bare, {"allocation": allocation("d", request="other")})
    assert fields == ["status.allocation.devices.results[0].request"]


def test_no_pod_reserves_an_unallocated_claim(bare):
    bare.create(claim("c"))
    user = consumer(bare.create(pod("a")))
    assert refused_fields(write_status, bare, {"reservedFor": [user]}) == ["status.reservedFor"]
    allocated = {"allocation": allocation("gpu-0"), "reservedFor": [user]}
    assert write_status(bare, allocated)["status"] == allocated
    assert refused_fields(write_status, bare, {"reservedFor": [user]}) == ["status.reservedFor"]


def test_reservations_are_unique_and_closed_while_deleting(bare):
    document = claim("c")
    document["metadata"]["finalizers"] = ["x.io/hold"]
    bare.create(document)
    user, other = consumer(bare.create(pod("a"))), consumer(bare.create(pod("b")))
    base = {"allocation": allocation("gpu-0")}
    fields = refused_fields(write_status, bare, {**base, "reservedFor": [user, user]})
    assert fields == ["status.reservedFor[1].uid"]
    write_status(bare, {**base, "reservedFor": [user]})
    delete(bare.api, CLAIMS, "c", "default")
    fields = refused_fields(write_status, bare, {**base, "reservedFor": [user, other]})
    assert fields == ["status.reservedFor"]
    assert write_status(bare, base)


def test_parameters_of_drivers_may_contain_nulls(bare):
    opaque = {"driver": "gpu.example.com", "parameters": {"a": None, "b": [None]}}
    made = spec_of(requests=claim("c")["spec"]["devices"]["requests"], config=[{"opaque": opaque}])
    assert bare.create(made)["spec"]["devices"]["config"] == [{"opaque": opaque}]


def test_a_new_claim_has_no_status(bare):
    document = {**claim("c"), "status": {"allocation": allocation("gpu-0")}}
    assert bare.create(document)["status"] == {}


def test_slices_are_checked(bare):
    whole = h100_slices("n")[0]
    both = {**whole, "spec": {**whole["spec"], "allNodes": True}}
    assert refused_fields(bare.create, both) == ["spec"]
    many = {**whole, "spec": {**whole["spec"], "devices": [{"name": f"d{i}"} for i in range(129)]}}
    assert refused_fields(bare.create, many) == ["spec.devices"]
    null = {**whole, "spec": {**whole["spec"], "devices": [{"name": "d"}, None]}}
    assert refused_fields(bare.create, null) == ["spec.devices[1].name"]
    created = bare.create(whole)
    moved = {**created, "spec": {**created["spec"], "nodeName": "m"}}
    name = created["metadata"]["name"]
    assert refused_fields(bare.api.update, SLICES, name, moved) == ["spec.nodeName"]
