"""Whether claims together need more devices than are free, and which devices are of one kind."""

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from tests.support.scenario import (
    claim,
    claim_of,
    cluster,
    device_class,
    device_slice,
    gpu_slice,
    node,
)

OTHER = "other.example.com"
CLASSES = (
    device_class(),
    device_class(OTHER, f'device.driver == "{OTHER}"'),
    device_class("any", "true"),
)


def exceeded(classes, *wanted, shared=False):
    """Whether ``wanted`` needs too much of five GPUs, of which two are in use, and one other."""
    known = cluster(
        *classes,
        node("a", 0),
        node("b", 0),
        gpu_slice("a", 2),
        gpu_slice("b", 3, product="small"),
        device_slice(
            "a", [{"name": "x", "allowMultipleAllocations": shared}], driver=OTHER, part="other"
        ),
        claim("used", 2, held_by=["p"], on=[("a", "gpu-0"), ("b", "gpu-2")]),
    ).snapshot()
    devices = ClusterDevices()
    devices.sync(known.devices)
    return devices.free.are_exceeded_by([each.spec for each in wanted], devices.state)


def other(count):
    request = {"name": "r", "exactly": {"deviceClassName": OTHER, "count": count}}
    return claim_of("o", request)


def gpus(name="r", **exactly):
    return {"name": name, "exactly": {"deviceClassName": "gpu.nvidia.com"} | exactly}


EVERY = {"allocationMode": "All"}


@pytest.mark.parametrize(
    ("wanted", "too_many"),
    [
        ([claim("c", 3)], False),
        ([claim("c", 4)], True),
        ([claim("c", 2), claim("d", 1)], False),
        ([claim("c", 2), claim("d", 2)], True),
        ([claim("c", 3), other(1)], False),
        ([claim("c", 1), other(2)], True),
        ([claim_of("c", gpus(**EVERY)), claim("d", 2)], False),
        ([claim_of("c", gpus(**EVERY)), claim("d", 3)], True),
        ([claim_of("c", gpus(adminAccess=True, count=9))], False),
    ],
)
def test_claims_together_need_the_devices_of_a_driver_that_are_free(wanted, too_many):
    assert exceeded(CLASSES[:2], *wanted) is too_many


def test_devices_that_are_shared_or_of_a_class_with_several_drivers_may_always_suffice():
    assert not exceeded(CLASSES[:2], other(9), shared=True)
    assert exceeded(CLASSES[:2], claim("c", 9), shared=True)
    assert not exceeded(CLASSES, claim("c", 9), other(9))


def kinds(*devices, driver="d"):
    known = cluster(node("a", 0), device_slice("a", devices, driver=driver)).snapshot()
    synced = ClusterDevices()
    synced.sync(known.devices)
    return {each.row.kind for each in synced.costs.kinds.all().values()}


def test_devices_are_of_one_kind_but_for_what_identifies_each():
    def device(name, model="m", memory="1Gi", **more):
        attributes = {"uuid": {"string": name}, "model": {"string": model}}
        capacity = {"memory": {"value": memory}}
        return {"name": name, "attributes": attributes, "capacity": capacity} | more

    first = device("0")
    assert len(kinds(first, device("1"))) == 1
    assert len(kinds(first, device("1", model="n"))) == 2
    assert len(kinds(first, device("1", memory="2Gi"))) == 2
    assert len(kinds(first, device("1", allowMultipleAllocations=True))) == 2
    assert kinds(first) != kinds(first, driver="e")
