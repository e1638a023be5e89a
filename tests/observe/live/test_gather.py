"""From mirrored objects to a picture: the holder and the state of each GPU."""

from datetime import UTC, datetime, timedelta

from kai_py.api.records.core import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kai_py.api.records.node import Node, NodeStatus
from kai_py.api.records.resource import (
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.observe.live.builder import LiveClusterBuilder
from kai_py.observe.live.cluster import MAX_SLOTS, GpuSlot, GpuState
from kai_py.plan.plan import Plan

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FREE = GpuSlot()


class Objects:
    """A mirror that holds what it is given."""

    def __init__(self, **kinds):
        self.kinds = kinds

    def objects(self, kind):
        records = self.kinds.get(kind.plural, ())
        return {(each.metadata.namespace, each.metadata.name): each for each in records}


def by_prefix(pod):
    """Pods belong to the gang named before the dash."""
    name = pod.metadata.name.partition("-")[0]
    owner = Owner("batch/v1", "Job", "default", name, name)
    return GangSpec(f"default/Job/{name}", owner, "queue", Subgroup())


def node(name, rack="", **allocatable):
    labels = {"topology.kubernetes.io/rack": rack} if rack else {}
    amounts = {key.replace("_", "/"): str(value) for key, value in allocatable.items()}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels), status=NodeStatus(allocatable=amounts)
    )


def gpus(name, *devices, kind="gpu"):
    published = tuple(
        Device(name=device, attributes={"type": DeviceAttribute(string_value=kind)})
        for device in devices
    )
    spec = ResourceSliceSpec(
        driver="d", node_name=name, pool=ResourcePool(name=name), devices=published
    )
    return ResourceSlice(metadata=ObjectMeta(name=f"{name}-{kind}"), spec=spec)


def pod(name, on="n", phase="Running", *, plugin=0, leaving=False, age=0):
    limits = {"nvidia.com/gpu": str(plugin)} if plugin else {}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            creation_timestamp=NOW - timedelta(seconds=age),
            deletion_timestamp=NOW if leaving else None,
        ),
        spec=PodSpec(
            node_name=on, containers=(Container(resources=ResourceRequirements(limits=limits)),)
        ),
        status=PodStatus(phase=phase),
    )


def claim(name, pool, *devices, user):
    results = tuple(DeviceRequestAllocationResult(pool=pool, device=device) for device in devices)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    status = ResourceClaimStatus(
        allocation=allocation,
        reserved_for=(ResourceClaimConsumerReference(resource="pods", name=user, uid=user),),
    )
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="default"), status=status)


def picture(mirror, gatherer=None):
    return (gatherer or LiveClusterBuilder(mirror, by_prefix)).build(Plan())


def slots(mirror):
    return [each.slots for each in picture(mirror).nodes]


def test_devices_are_held_through_claims_in_the_order_of_their_numbers():
    mirror = Objects(
        nodes=[node("n")],
        resourceslices=[gpus("n", "gpu-10", "gpu-2", "gpu-1")],
        resourceclaims=[claim("c", "n", "gpu-2", "gpu-10", user="a-0")],
        pods=[pod("a-0")],
    )
    held = GpuSlot(GpuState.RUNNING, "default/Job/a")
    assert slots(mirror) == [(FREE, held, held)]
    assert picture(mirror).used == 2


def test_a_slot_tells_whether_its_pod_starts_runs_or_leaves():
    mirror = Objects(
        nodes=[node("n")],
        resourceslices=[gpus("n", "gpu-0", "gpu-1", "gpu-2")],
        resourceclaims=[
            claim("c0", "n", "gpu-0", user="a-0"),
            claim("c1", "n", "gpu-1", user="a-1"),
            claim("c2", "n", "gpu-2", user="a-2"),
        ],
        pods=[pod("a-0", phase="Pending"), pod("a-1"), pod("a-2", leaving=True)],
    )
    states = [slot.state for slot in picture(mirror).nodes[0].slots]
    assert states == [GpuState.STARTING, GpuState.RUNNING, GpuState.TERMINATING]


def test_a_claim_whose_pod_is_not_known_yet_holds_its_device():
    mirror = Objects(
        nodes=[node("n")],
        resourceslices=[gpus("n", "gpu-0")],
        resourceclaims=[claim("c", "n", "gpu-0", user="unseen")],
    )
    assert slots(mirror) == [(GpuSlot(GpuState.STARTING),)]


def test_partitions_are_no_gpus():
    mirror = Objects(
        nodes=[node("n")], resourceslices=[gpus("n", "gpu-0"), gpus("n", "mig-0", kind="mig")]
    )
    assert slots(mirror) == [(FREE,)]


def test_plugin_pods_keep_their_places():
    first = Objects(
        nodes=[node("n", **{"nvidia.com_gpu": 4})],
        pods=[pod("a-0", plugin=1), pod("b-0", plugin=2)],
    )
    gatherer = LiveClusterBuilder(first, by_prefix)
    a, b = (GpuSlot(GpuState.RUNNING, f"default/Job/{name}") for name in "ab")
    assert picture(first, gatherer).nodes[0].slots == (a, b, b, FREE)
    first.kinds["pods"] = [pod("a-0", phase="Succeeded", plugin=1), pod("b-0", plugin=2)]
    assert picture(first, gatherer).nodes[0].slots == (FREE, b, b, FREE)


def test_a_node_may_lose_gpus_that_pods_have():
    mirror = Objects(
        nodes=[node("n", **{"nvidia.com_gpu": 4})],
        pods=[pod("a-0", plugin=2), pod("b-0", plugin=2)],
    )
    builder = LiveClusterBuilder(mirror, by_prefix)
    a, b = (GpuSlot(GpuState.RUNNING, f"default/Job/{name}") for name in "ab")
    assert picture(mirror, builder).nodes[0].slots == (a, a, b, b)
    mirror.kinds["nodes"] = [node("n", **{"nvidia.com_gpu": 3})]
    assert picture(mirror, builder).nodes[0].slots == (a, a, b)
    mirror.kinds["nodes"] = [node("n", **{"nvidia.com_gpu": 4})]
    assert picture(mirror, builder).nodes[0].slots == (a, a, b, b)


def test_a_pod_takes_the_place_of_one_that_terminates():
    terminating, starting = pod("a-0", plugin=1, leaving=True), pod("b-0", plugin=1)
    mirror = Objects(nodes=[node("n", **{"nvidia.com_gpu": 1})], pods=[terminating, starting])
    builder = LiveClusterBuilder(mirror, by_prefix)
    assert picture(mirror, builder).nodes[0].slots[0].gang == "default/Job/a"
    mirror.kinds["pods"] = [starting]
    assert picture(mirror, builder).nodes[0].slots[0].gang == "default/Job/b"


def test_of_an_absurd_number_of_gpus_some_are_drawn():
    mirror = Objects(nodes=[node("n", **{"nvidia.com_gpu": 2**63 - 1})])
    assert len(slots(mirror)[0]) == MAX_SLOTS


def test_nothing_is_kept_of_pods_that_are_gone():
    mirror = Objects(nodes=[node("n", **{"nvidia.com_gpu": 1})], pods=[pod("a-0", plugin=1)])
    builder = LiveClusterBuilder(mirror, by_prefix)
    picture(mirror, builder)
    mirror.kinds["pods"] = []
    picture(mirror, builder)
    assert not builder._plugin_places


def test_nodes_stand_by_rack_then_by_number():
    mirror = Objects(nodes=[node("n10", "r1"), node("n9", "r1"), node("n11", "r0")])
    assert [each.name for each in picture(mirror).nodes] == ["n11", "n9", "n10"]


def test_gangs_count_their_pods():
    mirror = Objects(
        pods=[
            pod("a-0"),
            pod("a-1", phase="Pending"),
            pod("a-2", on="", phase="Pending"),
            pod("a-3", phase="Succeeded"),
            pod("a-4", leaving=True),
        ]
    )
    [gang] = picture(mirror).gangs
    counts = (gang.pods, gang.bound, gang.running, gang.finished, gang.terminating)
    assert (gang.name, *counts) == ("a", 4, 2, 1, 1, 1)


def test_gangs_are_in_the_order_of_their_oldest_pods():
    pods = [pod("a-0"), pod("b-0"), pod("b-1", age=10), pod("c-0", age=5), pod("c-1", age=5)]
    assert [each.name for each in picture(Objects(pods=pods)).gangs] == ["b", "c", "a"]


def test_pods_of_other_schedulers_are_no_gangs_but_use_gpus():
    mirror = Objects(nodes=[node("n", **{"nvidia.com_gpu": 1})], pods=[pod("a-0", plugin=1)])
    builder = LiveClusterBuilder(mirror, lambda _pod: None)
    seen = picture(mirror, builder)
    assert (seen.gangs, seen.used) == ((), 1)
