"""A device that another scheduler gives away after us: told, counted, resolved by the rule."""

import asyncio
import contextlib

import pytest

from kai_py.api.references import PodRef
from kai_py.commit.retry import RetryPolicy
from kai_py.commit.upkeep.device_conflicts import DeviceConflictResolver
from kai_py.config import DoubleAllocationPolicy
from kai_py.embedded.resources import CLAIMS, PODS
from tests.commit.cluster import NAMESPACE, SCHEDULER, Cluster, Fresh, device, refuse
from tests.support.records import replace

RULE = DoubleAllocationPolicy
GPU = device("gpu-0", "node-a")


class Told:
    """What people would read."""

    def __init__(self):
        self.said = []

    def report_device_conflict(self, clash, verdict):
        self.said.append((clash.earlier.name, clash.later.name, clash.device[2], verdict))


class World(Cluster):
    """A pod of ours, bound and holding a device, and the watch for clashes."""

    def __init__(self, rule=RULE.GIVE_WAY_BEFORE_START, limits=()):
        super().__init__()
        self.told, self.counted, self.carried = Told(), 0, False
        self.clashes = DeviceConflictResolver(
            access=self.access(),
            holders=self.holders,
            pods=lambda: {(NAMESPACE, p.metadata.name): p for p in self.pods()},
            scheduler_names={SCHEDULER},
            is_committing=lambda _uid: self.carried,
            releasing=set(),
            catch_up=Fresh().catch_up,
            event_writer=self.told,
            evictions=self.evictions(limits=limits),
            count=self._count,
            policy=rule,
        )

    def _count(self):
        self.counted += 1

    async def ours(self, name="ours", *, node="node-a", phase="Pending", **spec):
        pod = self.add_pod(name, **spec)
        self.add_claim(name)
        self.allocate(name, GPU, pod)
        if node:
            await self.access().client.bind(namespace=NAMESPACE, pod=name, uid=pod.uid, node=node)
            self.api.patch_status(PODS, self.api.find(PODS, name, NAMESPACE), {"phase": phase})

    def theirs(self):
        pod = self.add_pod("theirs", schedulerName="default-scheduler")
        self.add_claim("theirs")
        self.allocate("theirs", GPU, pod)

    @contextlib.asynccontextmanager
    async def watching(self):
        self.holders.subscribe(self.clashes.add)
        async with self.resolving():
            yield

    @contextlib.asynccontextmanager
    async def resolving(self):
        task = asyncio.create_task(self.clashes.run())
        try:
            yield
            for _ in range(1000):
                if not self.clashes._unresolved:
                    return
                await asyncio.sleep(0.005)
            raise AssertionError(f"never settled: {self.clashes._unresolved}")
        finally:
            task.cancel()

    def leaving(self):
        return [p.metadata.name for p in self.pods() if p.metadata.deletion_timestamp is not None]

    def left(self):
        return {"ours", "theirs"} - {p.metadata.name for p in self.pods()} | set(self.leaving())


@pytest.mark.parametrize(
    ("rule", "phase", "gone"),
    [
        (RULE.GIVE_WAY_BEFORE_START, "Pending", True),
        (RULE.GIVE_WAY_BEFORE_START, "Running", False),
        (RULE.GIVE_WAY, "Running", True),
        (RULE.KEEP, "Pending", False),
    ],
)
async def test_the_rule_says_which_claim_gives_way(rule, phase, gone):
    world = World(rule)
    await world.ours(phase=phase)
    async with world.watching():
        world.theirs()
    assert world.left() == ({"ours"} if gone else set())
    [(earlier, later, name, verdict)] = world.told.said
    assert (earlier, later, name) == ("ours", "theirs", "gpu-0")
    assert ("is released" in verdict) is gone
    assert world.counted == 1


async def test_a_pod_that_has_started_since_it_was_watched_is_kept():
    world = World()
    await world.ours()
    watched = {(NAMESPACE, pod.metadata.name): pod for pod in world.pods()}
    world.clashes.pods = lambda: watched
    world.api.patch_status(PODS, world.api.find(PODS, "ours", NAMESPACE), {"phase": "Running"})
    async with world.watching():
        world.theirs()
    assert world.left() == set()


async def test_what_clashed_before_anybody_listened_is_found():
    world = World()
    await world.ours()
    world.theirs()
    async with world.watching():
        pass
    assert world.left() == {"ours"}
    assert world.counted == 1


async def test_a_claim_whose_pod_still_waits_is_released():
    world = World()
    await world.ours(node="")
    async with world.watching():
        world.theirs()
    assert world.devices() == {"theirs": ("gpu-0",)}
    assert world.leaving() == []


async def test_the_clashes_of_others_are_theirs():
    world = World()
    await world.ours(schedulerName="another")
    async with world.watching():
        world.theirs()
    assert (world.told.said, world.left()) == ([], set())


async def test_a_running_transaction_is_left_to_decide_by_itself():
    world = World()
    await world.ours()
    world.carried = True
    async with world.watching():
        world.theirs()
        await asyncio.sleep(0.02)
        assert world.told.said == []
        world.carried = False
    assert world.left() == {"ours"}


async def test_an_eviction_that_is_refused_is_tried_again_and_told_once():
    world = World()
    await world.ours()
    world.fail_once("create", "Pod/eviction", refuse(429, "TooManyRequests"))
    async with world.watching():
        world.theirs()
    assert world.left() == {"ours"}
    assert len(world.told.said) == 1


async def test_a_clash_outlives_an_error_of_its_resolution():
    world = World()
    await world.ours()
    world.clashes.count = {}.popitem
    world.holders.subscribe(world.clashes.add)
    world.theirs()
    with pytest.raises(KeyError):
        await world.clashes.run()
    world.clashes.count = world._count
    async with world.resolving():
        pass
    assert world.left() == {"ours"}


async def test_all_pods_of_a_claim_give_way_although_one_is_refused_at_first():
    world = World()
    await world.ours()
    [first] = world.pods()
    second = world.add_pod("second")
    bind = world.access().client.bind
    await bind(namespace=NAMESPACE, pod="second", uid=second.uid, node="node-a")
    world.allocate("ours", GPU, PodRef.of(first.metadata), second)
    world.fail_once("create", "Pod/eviction", refuse(429, "TooManyRequests"))
    async with world.watching():
        world.theirs()
    assert {pod.metadata.name for pod in world.pods()} - set(world.leaving()) == {"theirs"}


async def test_pods_of_a_group_give_way_together():
    world = World(RULE.GIVE_WAY)
    await world.ours(schedulingGroup={"podGroupName": "train"})
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train"}
    held = world.api.find(CLAIMS, "ours", NAMESPACE)
    world.api.patch_status(CLAIMS, held, {"reservedFor": [{**consumer, "uid": "group-uid"}]})
    async with world.watching():
        world.theirs()
    assert world.left() == {"ours"}


async def test_a_conflict_that_stays_is_tried_again_after_longer_and_longer_times():
    world, waits = World(), []

    class Noted(RetryPolicy):
        def delay(self, failures, *, at_least=0.0):
            waits.append(super().delay(failures, at_least=at_least))
            world.carried = len(waits) < 4
            return waits[-1]

    retry = Noted(base=1e-6, uniform=max)
    world.clashes.access = replace(world.clashes.access, retry=retry)
    await world.ours()
    world.carried = True
    async with world.watching():
        world.theirs()
    assert waits[:4] == [1e-6, 2e-6, 4e-6, 8e-6]
