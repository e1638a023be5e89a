"""Extended resources become requests of a claim: by container, with reuse by init containers."""

import pytest

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from kai_py.api.records.resource import DeviceClass, DeviceClassSpec
from kai_py.snapshot.extended_resources import (
    NO_EXTENDED_RESOURCES,
    classes_by_resource,
    extended_resources,
)
from kai_py.snapshot.requests import pod_requests
from tests.support.scenario import at

GPU = "nvidia.com/gpu"
NAMES = {"gpu": GPU, "nic": "example.com/nic"}
CLASSES = {GPU: "gpu.nvidia.com", "example.com/nic": "nic"}


def container(name, *, restart="", limits=None, **requests):
    named = {NAMES.get(key, key): value for key, value in requests.items()}
    return Container(
        name=name,
        resources=ResourceRequirements(requests=named, limits=limits or {}),
        restart_policy=restart,
    )


def asked(*containers, init=()):
    pod = Pod(spec=PodSpec(containers=containers, init_containers=init))
    found = extended_resources(pod, lambda name: CLASSES.get(name, ""))
    return pod, found


def requests(found):
    return {each.name: (each.resource, each.device_class, each.count) for each in found.requests}


def uses(found):
    return [(use.container_name, use.request_name) for use in found.container_uses]


def test_each_container_has_a_request_named_by_where_it_stands():
    _, found = asked(container("a", cpu="1", gpu="2"), container("b", gpu="1", nic="1"))
    assert requests(found) == {
        "container-0-request-1": (GPU, "gpu.nvidia.com", 2),
        "container-1-request-1": (GPU, "gpu.nvidia.com", 1),
        "container-1-request-0": ("example.com/nic", "nic", 1),
    }
    assert found.resources == ("example.com/nic", GPU)


def test_a_limit_alone_is_a_request():
    _, found = asked(container("a", limits={GPU: "1"}))
    assert requests(found) == {"container-0-request-0": (GPU, "gpu.nvidia.com", 1)}


def test_what_no_class_answers_to_and_what_is_zero_makes_no_request():
    _, found = asked(container("a", cpu="1", gpu="0"))
    assert found is NO_EXTENDED_RESOURCES


def test_an_init_container_uses_what_later_containers_have_and_asks_for_the_rest():
    pod, found = asked(
        container("main", gpu="2"),
        init=(container("warm", gpu="3"), container("check", gpu="5"), container("small", gpu="1")),
    )
    assert requests(found) == {
        "container-1-request-0": (GPU, "gpu.nvidia.com", 3),
        "container-3-request-0": (GPU, "gpu.nvidia.com", 2),
    }
    assert uses(found) == [
        ("main", "container-3-request-0"),
        ("warm", "container-3-request-0"),
        ("check", "container-3-request-0"),
        ("small", "container-3-request-0"),
        ("warm", "container-1-request-0"),
        ("check", "container-1-request-0"),
    ]
    assert sum(each.count for each in found.requests) == pod_requests(pod)[GPU]


def test_a_sidecar_that_runs_already_is_not_reused():
    pod, found = asked(
        container("main", gpu="1"),
        init=(container("side", restart="Always", gpu="1"), container("warm", gpu="2")),
    )
    assert sum(each.count for each in found.requests) == pod_requests(pod)[GPU] == 3
    assert requests(found)["container-1-request-0"][2] == 1
    assert ("warm", "container-0-request-0") not in uses(found)


def test_the_claim_for_a_node_asks_only_for_what_is_missing_there():
    _, found = asked(container("a", gpu="1", nic="1"))
    [request] = found.claim_spec([GPU]).devices.requests
    assert (request.exactly.device_class_name, request.exactly.count) == ("gpu.nvidia.com", 1)


def test_a_malformed_amount_is_told():
    with pytest.raises(QuantityError):
        asked(container("a", gpu="two"))


def device_class(name, resource="", created=0):
    meta = ObjectMeta(name=name, creation_timestamp=at(created))
    return DeviceClass(metadata=meta, spec=DeviceClassSpec(extended_resource_name=resource))


def test_of_several_classes_the_newest_answers_then_the_first_by_name():
    classes = [
        device_class("old", GPU, 0),
        device_class("b", GPU, 5),
        device_class("a", GPU, 5),
        device_class("other", "", 9),
    ]
    for order in (classes, classes[::-1]):
        found = classes_by_resource(order)
        assert found[GPU] == "a"
        assert found["deviceclass.resource.kubernetes.io/old"] == "old"
        assert found["deviceclass.resource.kubernetes.io/other"] == "other"
