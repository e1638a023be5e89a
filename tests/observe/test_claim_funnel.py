"""What becomes of the devices that a claim might have, as counts that add up."""

from msgspec.structs import replace

from kai_py.api.records.resource import (
    AllocationResult,
    CELDeviceSelector,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from kai_py.observe.claim_funnel import claim_funnel
from kai_py.observe.http_lists import entries_of
from tests.support.scenario import (
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    node,
    pod,
    queue,
)

H200 = 'device.attributes["gpu.nvidia.com"].productName == "H200"'


def world(*given):
    slices = [gpu_slice("n0", 4), gpu_slice("n1", 4, product="H200")]
    return cluster(
        device_class(), queue("team", 8), node("n0", 0), node("n1", 0), *slices, *given
    ).snapshot()


def running(name, *on):
    held = claim(name, owner=name, held_by=[name], on=[("n1", device) for device in on])
    return [held, claiming(pod(name, 0, queue="team", node="n1"), name)]


def test_every_device_is_turned_down_once_or_free():
    snapshot = world(*running("p", "gpu-0", "gpu-1", "gpu-2"), claim("wanted", 2, selector=H200))
    found = claim_funnel(snapshot, "default", "wanted")
    [request] = found.requests
    assert (found.nodes, found.devices) == (2, 8)
    assert (request.count, request.matching, request.free, request.max_per_node) == (2, 4, 1, 1)
    reasons = [(each.check, each.devices) for each in request.rejected]
    assert reasons == [("does not match a selector", 4), ("in use", 3)]
    assert H200 in request.rejected[0].reason
    assert found.message.startswith("claim default/wanted, request gpu: insufficient allocatable")


def test_the_nearest_device_is_told_where_none_matches():
    snapshot = world(claim("wanted", selector=H200.replace("H200", "B200")))
    [request] = claim_funnel(snapshot, "default", "wanted").requests
    assert request.nearest.device == "gpu.nvidia.com/n0/gpu-0"
    assert list(request.nearest.actual) == ["gpu.nvidia.com/productName"]


def test_a_claim_that_finds_devices_has_no_complaint_and_one_that_holds_some_says_which():
    snapshot = world(*running("p", "gpu-0"), claim("wanted"))
    assert claim_funnel(snapshot, "default", "wanted").message == ""
    assert claim_funnel(snapshot, "default", "p").allocated == ("gpu.nvidia.com/n1/gpu-0",)
    assert claim_funnel(snapshot, "default", "missing") is None


def test_an_alternative_that_cannot_be_evaluated_is_told():
    """The search does not come to it, as the first alternative is there."""
    bad = (DeviceSelector(cel=CELDeviceSelector(expression="1 +")),)
    first = DeviceSubRequest(name="first", device_class_name="gpu.nvidia.com")
    second = DeviceSubRequest(name="second", device_class_name="gpu.nvidia.com", selectors=bad)
    requests = (DeviceRequest(name="gpu", first_available=(first, second)),)
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    found = claim_funnel(world(replace(claim("wanted"), spec=spec)), "default", "wanted")
    assert "selector #0: CEL compile error" in found.message


def test_an_allocation_that_cannot_be_read_hides_no_other_claim_and_no_device():
    result = DeviceRequestAllocationResult(
        request="gpu",
        driver="gpu.nvidia.com",
        pool="n1",
        device="gpu-0",
        share_id="a",
        consumed_capacity={"memory": "9" * 5000},
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    broken = replace(claim("broken"), status=ResourceClaimStatus(allocation=allocation))
    snapshot = world(claim("wanted"))
    claims = snapshot.devices.claims | {("default", "broken"): broken}
    devices = replace(snapshot.devices, claims=claims)
    snapshot = replace(snapshot, devices=devices)
    [request] = claim_funnel(snapshot, "default", "wanted").requests
    assert request.matching == 8
    assert len(entries_of(snapshot)) == 8
