"""A bound pod whose claim has lost its devices gets them back, or else it is evicted."""

import msgspec
import pytest

from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.claims.recovery import LeftoverTracker, find_leftover_claims
from kai_py.commit.upkeep.lost_devices import DamagedPod, PodRepair, RepairPasses, find_damaged_pods
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


@pytest.mark.parametrize(
    ("seen", "behind", "written", "repaired"),
    [
        ("a", [], "", []),
        ("aa", [], "", ["a"]),
        ("ab", [], "", []),
        ("aba", [], "", []),
        ("a a", [], "", []),
        ("aaa", ["pods"], "", ["a"]),
        ("aa", ["pods"], "", []),
        ("aa", [], "a", []),
    ],
)
async def test_a_pod_is_repaired_that_is_damaged_in_two_passes(seen, behind, written, repaired):
    """``seen``: what each pass sees; ``behind``: why the mirror is, when it is asked."""
    done, passes = [], iter(seen)
    pods = {
        name: DamagedPod(PodRef(NAMESPACE, name, name), ClaimRef(NAMESPACE, name, name))
        for name in "ab"
    }

    class Repair:
        async def repair(self, damaged):
            done.append(damaged.pod.name)

    async def catch_up():
        return behind.pop(0) if behind else ""

    each = RepairPasses(
        repair=Repair(),
        find=lambda: [pods[name] for name in next(passes).strip()],
        is_written=lambda damaged: damaged.pod.name == written,
        catch_up=catch_up,
    )
    for _ in seen:
        await each.run_once()
    assert done == repaired


def leftovers(cluster, *wanted):
    uids = {pod.uid for pod in wanted}
    found = find_leftover_claims(cluster.claims(), cluster.pods(), {SCHEDULER}, uids)
    return {left.claim.name: left.consumers for left in found}


def held_for(cluster, *consumers, name="gpu-0", owner=None):
    cluster.add_claim(name, owner)
    cluster.allocate(name, device(name, "node-a"), *consumers)


def test_a_claim_held_for_a_pod_that_is_never_bound_is_left_over(cluster):
    pod = cluster.add_pod("worker-0")
    held_for(cluster, pod)
    assert leftovers(cluster) == {"gpu-0": frozenset({pod.uid})}


def test_a_pod_that_is_placed_keeps_its_claim(cluster):
    pod = cluster.add_pod("worker-0")
    held_for(cluster, pod)
    assert leftovers(cluster, pod) == {}


def test_another_schedulers_claims_are_its_own(cluster):
    held_for(cluster, cluster.add_pod("stranger", schedulerName="default-scheduler"))
    assert leftovers(cluster) == {}


def test_claims_of_pods_with_another_name_of_ours_are_ours(cluster):
    pod = cluster.add_pod("changing-over", schedulerName="gpu-scheduler")
    held_for(cluster, pod)
    names = {SCHEDULER, "gpu-scheduler"}
    [found] = find_leftover_claims(cluster.claims(), cluster.pods(), names, set())
    assert found.consumers == {pod.uid}


async def test_a_running_pod_keeps_a_shared_claim_that_others_leave(cluster):
    running, waiting = cluster.add_pod("running"), cluster.add_pod("waiting")
    await cluster.access().client.bind(
        namespace=NAMESPACE, pod="running", uid=running.uid, node="node-a"
    )
    held_for(cluster, running, waiting)
    assert leftovers(cluster) == {"gpu-0": frozenset({waiting.uid})}


def test_a_device_without_a_holder_is_left_over_if_one_of_our_pods_asked_for_it(cluster):
    owner = cluster.add_pod("worker-0")
    user = cluster.add_pod(
        "worker-1", resourceClaims=[{"name": "gpu", "resourceClaimName": "named"}]
    )
    held_for(cluster, name="owned", owner=owner)
    held_for(cluster, name="named")
    held_for(cluster, name="foreign")
    assert leftovers(cluster) == {"owned": frozenset(), "named": frozenset()}
    assert leftovers(cluster, owner, user) == {}


def test_a_claim_without_devices_is_no_leftover(cluster):
    cluster.add_claim("gpu-0", cluster.add_pod("worker-0"))
    assert leftovers(cluster) == {}


def test_a_leftover_is_due_after_it_was_one_for_the_whole_grace(cluster):
    held_for(cluster, cluster.add_pod("worker-0"))
    found = find_leftover_claims(cluster.claims(), cluster.pods(), {SCHEDULER}, set())
    grace = LeftoverTracker(30.0)
    assert grace.due(found, 0.0) == ()
    assert grace.due(found, 29.0) == ()
    assert grace.due((), 29.5) == ()
    assert grace.due(found, 31.0) == (), "it was used in between"
    assert grace.due(found, 61.0) == found
