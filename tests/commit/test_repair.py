"""A bound pod whose claim has lost its devices gets them back, or else it is evicted."""

import msgspec
import pytest

from kai_py.commit.claims.repair import PodRepair, find_damaged_pods
from kai_py.embedded.resources import CLAIMS, PODS
from kai_py.grouping.gang import FailureLimit, Owner
from tests.commit.cluster import JOB, NAMESPACE, SCHEDULER, Cluster, device, first, refuse

GPU = device("gpu-0", "node-a")


class Reports:
    def __init__(self):
        self.notes = []

    def report_repair(self, pod, claim, note):
        self.notes.append((pod.name, claim.name, note))


class World(Cluster):
    """A pod of ours on node-a with gpu-0, and a stranger's claim."""

    owner, limits = JOB, ()

    def __init__(self, *, phase="Running", scheduler=SCHEDULER, seen=True, **spec):
        super().__init__()
        self.reports, self.outcomes = Reports(), []
        self.blind = not seen
        use = {"name": "gpu", "resourceClaimName": "gpu"}
        self.ours = self.add_pod(
            "ours", nodeName="node-a", schedulerName=scheduler, resourceClaims=[use], **spec
        )
        self.api.patch_status(PODS, self.api.find(PODS, "ours", NAMESPACE), {"phase": phase})
        self.add_claim("gpu", self.ours)
        self.allocate("gpu", GPU, self.ours)

    def clear(self, *, allocation=True):
        status = {"reservedFor": None, **({"allocation": None} if allocation else {})}
        self.api.patch_status(CLAIMS, self.api.find(CLAIMS, "gpu", NAMESPACE), status)
        self.blind = False

    def damaged(self):
        claims = {(NAMESPACE, claim.metadata.name): claim for claim in self.claims()}
        return list(find_damaged_pods(self.pods(), claims, {SCHEDULER}))

    async def repair(self):
        repair = PodRepair(
            access=self.access(),
            holders=self.holders,
            event_writer=self.reports,
            evictions=self.evictions(self.owner, self.limits),
            count=self.outcomes.append,
        )
        for each in self.damaged():
            await repair.repair(each)

    def is_leaving(self):
        pod = self.pod("ours")
        return pod is None or pod.metadata.deletion_timestamp is not None

    def is_whole(self):
        status = self.claim("gpu").status
        return status.allocation is not None and [c.name for c in status.reserved_for] == ["ours"]


async def test_a_pod_that_has_its_devices_is_left_alone():
    world = World()
    assert world.damaged() == []


async def test_devices_that_are_known_and_free_are_given_back():
    world = World()
    before = msgspec.to_builtins(world.claim("gpu").status.allocation.devices)
    world.clear()
    await world.repair()
    assert world.is_whole()
    assert msgspec.to_builtins(world.claim("gpu").status.allocation.devices) == before
    assert (world.outcomes, world.is_leaving()) == (["restored"], False)
    [(pod, claim, note)] = world.reports.notes
    assert (pod, claim) == ("ours", "gpu")
    assert "the same devices are allocated to it again" in note
    assert world.damaged() == []


async def test_a_lost_reservation_is_made_again():
    world = World()
    world.clear(allocation=False)
    await world.repair()
    assert world.is_whole()
    assert world.outcomes == ["reserved"]


async def test_a_pod_whose_devices_another_claim_has_is_evicted():
    world = World()
    world.clear()
    world.add_claim("theirs")
    world.allocate("theirs", GPU, world.add_pod("theirs"))
    await world.repair()
    assert world.is_leaving()
    assert world.outcomes == ["evicted"]
    assert "is also allocated to claim team-a/theirs" in world.reports.notes[0][2]
    assert world.devices() == {"theirs": ("gpu-0",)}


async def test_a_pod_whose_devices_are_not_known_is_evicted():
    world = World(seen=False)
    world.clear()
    await world.repair()
    assert world.is_leaving()
    assert "is not known" in world.reports.notes[0][2]


@pytest.mark.parametrize("code", [401, 403, 404, 410, 500])
@pytest.mark.parametrize("kind", ["Pod", "ResourceClaim"])
async def test_nothing_is_done_on_a_read_that_fails(kind, code):
    world = World(seen=False)
    world.clear()
    for _ in range(4):
        world.fail_once("get", kind, refuse(code))
    await world.repair()
    assert (world.outcomes, world.is_leaving()) == ([], False)


async def test_a_pod_that_has_ended_needs_no_repair():
    world = World(phase="Succeeded")
    world.clear()
    assert world.damaged() == []


async def test_the_pods_of_other_schedulers_are_theirs():
    world = World(scheduler="default-scheduler")
    world.clear()
    assert world.damaged() == []


async def test_a_claim_that_is_well_by_then_is_left_alone():
    world = World()
    world.clear()
    world.fail_once("get", "ResourceClaim", first(lambda: world.allocate("gpu", GPU, world.ours)))
    await world.repair()
    assert (world.outcomes, world.reports.notes) == ([], [])


async def test_what_another_writes_in_between_is_not_overwritten():
    world = World()
    world.clear()
    other = device("gpu-7", "node-b")
    world.fail_once(
        "patch", "ResourceClaim/status", first(lambda: world.allocate("gpu", other, world.ours))
    )
    await world.repair()
    assert world.devices() == {"gpu": ("gpu-7",)}
    assert world.outcomes == ["failed"]
    assert not world.is_leaving()


async def test_a_claim_reserved_for_the_pods_group_is_well():
    world = World(schedulingGroup={"podGroupName": "train"})
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train"}
    held = world.api.find(CLAIMS, "gpu", NAMESPACE)
    world.api.patch_status(CLAIMS, held, {"reservedFor": [{**consumer, "uid": "group-uid"}]})
    assert world.damaged() == []


async def test_a_pod_whose_workload_would_fail_is_kept_and_reported():
    world = World(seen=False)
    world.owner = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", NAMESPACE, "train", "uid")
    world.limits = (FailureLimit("train", world.owner, 0, "spec.failurePolicy.maxRestarts is 0"),)
    world.clear()
    await world.repair()
    assert (world.outcomes, world.is_leaving()) == (["failed"], False)
    assert "kept, as its workload would fail (JobSet team-a/train" in world.reports.notes[0][2]
