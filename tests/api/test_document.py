"""Documents keep what paths name, and nothing else.

Records of objects of which some fields cannot be decoded.
"""

import msgspec
import pytest

from kai_py.api.records.core import Pod
from kai_py.api.records.partial import (
    MAX_UNREADABLE,
    has_unreadable_requests,
    read_partly,
    unreadable_fields,
)
from kai_py.api.records.record import record_decoder
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.resource_versions import decoder
from kai_py.api.records.unstructured import unstructured

JOB = {
    "apiVersion": "example.com/v1",
    "kind": "Job",
    "metadata": {"name": "j", "labels": {"a": "b"}},
    "spec": {
        "roles": {
            "Master": {"replicas": 1, "template": {"image": "x"}},
            "Worker": {"replicas": 4, "template": {"image": "x", "marks": {"size": "2"}}},
        },
        "tasks": [{"name": "a", "count": 2, "more": 1}, {"name": "b"}],
        "queue": None,
    },
    "status": {"phase": "Running"},
}


def test_only_named_fields_are_kept():
    found = unstructured(JOB, ["spec.tasks.*.count"])
    assert found.content == {"spec": {"tasks": [{"count": 2}, {}]}}
    assert (found.kind, found.metadata.name, found.metadata.labels) == ("Job", "j", {"a": "b"})


def test_a_field_named_beside_a_star_keeps_both():
    found = unstructured(JOB, ["spec.roles.*.replicas", "spec.roles.Worker.template.marks"])
    assert found.content["spec"]["roles"] == {
        "Master": {"replicas": 1},
        "Worker": {"replicas": 4, "template": {"marks": {"size": "2"}}},
    }


def test_a_path_that_ends_keeps_all_below_whatever_longer_paths_say():
    found = unstructured(JOB, ["spec.roles", "spec.roles.*.replicas"])
    assert found.content["spec"]["roles"] == JOB["spec"]["roles"]


def test_values_at_a_path_leave_out_absent_and_null_ones():
    found = unstructured(JOB, ["spec"])
    assert found.all_at("spec.roles.*.replicas") == (1, 4)
    assert found.all_at("spec.tasks.*.count") == (2,)
    assert found.first_at("spec.queue") is None
    assert found.first_at("spec.tasks.count") is None


DECODE = record_decoder(Pod)


def pod(**fields):
    spec = {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "2"}}}]}
    document = {"metadata": {"name": "p", "uid": "u"}, "spec": spec | fields.pop("spec", {})}
    found = read_partly(DECODE, msgspec.json.encode(document | fields))
    if found is None:
        return None
    record, readable = found
    assert DECODE(msgspec.json.encode(readable)).spec == record.spec
    return record


def test_a_pod_that_can_be_read_has_no_unreadable_fields():
    found = pod()
    assert found.metadata.unreadable == ()
    assert unreadable_fields(found.metadata) == ""


@pytest.mark.parametrize(
    ("fields", "unreadable", "requests"),
    [
        ({"spec": {"tolerations": [{"key": 7}]}}, "spec.tolerations[0].key", False),
        ({"spec": {"priority": 1e30}}, "spec.priority", False),
        ({"status": {"startTime": "20000-01-01T00:00:00Z"}}, "status.startTime", False),
        ({"spec": {"containers": 5}}, "spec.containers", True),
        ({"spec": {"containers": ["x"]}}, "spec.containers[0]", True),
        ({"spec": {"overhead": {"cpu": []}}}, "spec.overhead", True),
        ({"spec": {"resources": {"requests": {"cpu": {}}}}}, "spec.resources.requests", True),
        (
            {"spec": {"initContainers": [{"resources": {"limits": 1}}]}},
            "spec.initContainers[0].resources.limits",
            True,
        ),
        (
            {"spec": {"containers": [{"ports": [{"hostPort": "x"}]}]}},
            "spec.containers[0].ports[0].hostPort",
            False,
        ),
    ],
)
def test_what_cannot_be_read_is_left_out_and_named(fields, unreadable, requests):
    found = pod(**fields)
    assert found.metadata.unreadable == (unreadable,)
    assert (found.metadata.name, found.metadata.uid, found.spec.node_name) == ("p", "u", "n")
    assert has_unreadable_requests(found) is requests


def test_several_fields_and_no_end_of_them():
    wrong = [{"key": number} for number in range(MAX_UNREADABLE)]
    two = pod(spec={"tolerations": wrong[:2], "priority": "high"})
    assert len(two.metadata.unreadable) == 3
    assert pod(spec={"tolerations": wrong}) is None
    assert pod(metadata=5) is None


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_claim_keeps_the_devices_that_can_be_read(version):
    results = [{"driver": "d", "pool": "p", "device": "gpu-0"}, {"driver": "d", "device": 1}]
    document = {
        "metadata": {"name": "c", "uid": "u", "labels": {"a": 1}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    found, _ = read_partly(decoder(ResourceClaim, version), msgspec.json.encode(document))
    assert [each.device for each in found.status.allocation.devices.results] == ["gpu-0", ""]
    assert len(found.metadata.unreadable) == 2
    assert "metadata.labels" in found.metadata.unreadable
