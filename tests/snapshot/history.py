"""A builder that follows random events, and the model of what is there and assumed after them."""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from msgspec.structs import replace

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.pod_phases import FINISHED_PHASES
from kai_py.api.records.core import (
    Affinity,
    Container,
    LabelSelector,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    PodSchedulingGroup,
    ResourceRequirements,
)
from kai_py.api.records.node import NodeResourceTopology, TopologyAttribute, Zone, ZoneResource
from kai_py.api.records.policy import PodDisruptionBudget, PodDisruptionBudgetSpec
from kai_py.api.records.storage import ObjectReference, PersistentVolume, PersistentVolumeSpec
from kai_py.grouping.grouper import Grouper
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.settings import SnapshotSettings
from tests.support.scenario import (
    START,
    Cluster,
    claim,
    claiming,
    device_class,
    gpu_slice,
    job,
    node,
    pod,
    queue,
    shared,
)

NOW = START + 1000.0
POOLED = SnapshotSettings(pool_label="pool")
TRAIN = job("train", 2, queue="team")
ALIGNED = {"cpu": "2", "memory": "1Gi"}
REFUSES_WEB = Affinity(
    pod_anti_affinity=PodAffinity(
        required=(
            PodAffinityTerm(
                label_selector=LabelSelector(match_labels={"app": "web"}),
                topology_key="kubernetes.io/hostname",
            ),
        )
    )
)
PLAIN, FIRST, SECOND, CLAIMS, CLAIMS_TOO, REFUSING, SHARING, FOREIGN, ALIGNED_POD, GROUPED = range(
    10
)
NODES = ("n0", "n1")
WAITS = {"node": "", "phase": "Pending", "leaving": False, "labels": {}}


def make_pod(number, state):
    name = f"p{number}"
    if number in (FIRST, SECOND):
        return pod(name, owner=TRAIN, **state)
    if number in (CLAIMS, CLAIMS_TOO):
        return claiming(pod(name, 0, queue="team", **state), "shared", template=False)
    if number == REFUSING:
        return pod(name, queue="team", affinity=REFUSES_WEB, **state)
    if number == SHARING:
        return shared(pod(name, 0, queue="team", **state), gpu_memory="2000")
    group = PodSchedulingGroup(pod_group_name="native")
    if number == FOREIGN:
        return pod(name, scheduler_name="default-scheduler", scheduling_group=group, **state)
    if number == GROUPED:
        return pod(name, queue="team", scheduling_group=group, **state)
    made = pod(name, queue="team", **state)
    if number == ALIGNED_POD:
        resources = ResourceRequirements(requests=ALIGNED, limits=ALIGNED)
        main = Container(name="main", resources=resources)
        return replace(made, spec=replace(made.spec, containers=(main,)))
    return made


def zones(name):
    cpus = ZoneResource(name="cpu", allocatable="8", available="8")
    return NodeResourceTopology(
        metadata=ObjectMeta(name=name, uid=f"zones-{name}"),
        attributes=(TopologyAttribute(name="topologyManagerPolicy", value="restricted"),),
        zones=(Zone(name="node-0", resources=(cpus,)),),
    )


def volume(name, *, claimed):
    owner = ObjectReference(namespace="default", name="other") if claimed else None
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=name),
        spec=PersistentVolumeSpec(
            storage_class_name="local", capacity={"storage": "1Gi"}, claim_ref=owner
        ),
    )


def budget(app):
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="budget", namespace="default", uid="budget"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app})),
    )


def shared_claim(state):
    if state == "free":
        return claim("shared", 2)
    return claim("shared", 2, held_by=(f"p{CLAIMS}",), on=(("n0", "gpu-0"), ("n0", "gpu-1")))


ALLOCATION = shared_claim("allocated").status.allocation
FIXED = (
    queue("team", 8),
    device_class(),
    gpu_slice("n0"),
    gpu_slice("n1"),
    *(zones(name) for name in NODES),
)


def new_cluster(*objects):
    world = Cluster()
    world.builder = SnapshotBuilder(
        Grouper().identify, world.devices, lambda found: found, settings=POOLED
    )
    return world.add(*FIXED, *objects)


@dataclass
class History:
    """A builder that follows events, and what is there and assumed after them."""

    world: Cluster = field(default_factory=new_cluster)
    live: dict = field(default_factory=dict)
    states: dict = field(default_factory=dict)
    assumed: dict = field(default_factory=dict)
    allocated_for: int | None = None
    volume_for: int | None = None
    unreported: dict = field(default_factory=dict)
    nominated: dict = field(default_factory=dict)
    evicted: set = field(default_factory=set)
    pools: dict = field(default_factory=dict)

    def set(self, key, each):
        self.live[key] = each
        self.world.add(each)

    def drop(self, key):
        if key in self.live:
            self.world.remove(self.live.pop(key))

    def pod(self, number, state):
        """A pod that is bound stays on its node, in its pool; one that has ended has ended."""
        before = self.states.get(number, WAITS)
        if before["node"] or number in self.assumed:
            self.pools.setdefault(number, before["labels"].get("pool", ""))
        else:
            self.pools.pop(number, None)
        state = {**state, "node": before["node"] or state["node"]}
        if before["phase"] in FINISHED_PHASES:
            state["phase"] = before["phase"]
        self.set(number, make_pod(number, state))
        self.states[number] = state
        if state["node"] or state["phase"] in FINISHED_PHASES:
            self.assumed.pop(number, None)
            self.nominated.pop(number, None)
        placed_on = state["node"] or self.assumed.get(number)
        if state["phase"] in FINISHED_PHASES or placed_on != self.unreported.get(number):
            self.unreported.pop(number, None)

    def gone(self, number):
        if number in self.live:
            self.drop(number)
            del self.states[number]
            self.withdrawn(number)
            self.nominated.pop(number, None)
            self.evicted.discard(number)
            self.pools.pop(number, None)

    def assume(self, number, at):
        state = self.states.get(number)
        waits = state and not state["node"] and state["phase"] not in FINISHED_PHASES
        if number in self.live and waits and number not in self.assumed:
            if number in (CLAIMS, CLAIMS_TOO) and self.allocated_for is None:
                self.allocated_for = number
            if number == PLAIN and self.volume_for is None:
                self.volume_for = number
            self.assumed[number] = self.unreported[number] = at
            self.nominated.pop(number, None)
            self.carry_out(self.world, number, at)

    def carry_out(self, world, number, at):
        """Assume a pod with its part of what is assumed of claims, volumes and GPUs."""
        claims = {"claim-shared": ALLOCATION} if number == self.allocated_for else {}
        gpus = (SharedGpu("group", 0),) if number == SHARING else ()
        volumes = ("disk",) if number == self.volume_for else ()
        uid = self.live[number].metadata.uid
        world.builder.assume(AssumedBinding(uid, at, claims, gpus, volumes=volumes))

    def forget(self, number):
        self.withdrawn(number)
        self.world.builder.forget(f"pod-p{number}")

    def withdrawn(self, number):
        self.assumed.pop(number, None)
        self.unreported.pop(number, None)
        if self.allocated_for == number:
            self.allocated_for = None
        if self.volume_for == number:
            self.volume_for = None

    def nominate(self, number, at):
        state = self.states.get(number)
        waits = state and not state["node"] and state["phase"] not in FINISHED_PHASES
        if number in self.live and waits and number not in self.assumed:
            self.nominated[number] = at
            self.world.builder.nominate(f"pod-p{number}", at, NOW)

    def evict(self, number):
        if number in self.live:
            self.evicted.add(number)
            self.world.builder.expect_eviction(f"pod-p{number}")

    def cancel_eviction(self, number):
        self.evicted.discard(number)
        self.world.builder.cancel_eviction(f"pod-p{number}")

    def job(self, team):
        self.set("job", job("train", 2, queue=team))

    def claim(self, state):
        if state == "gone":
            self.drop("claim")
        else:
            self.set("claim", shared_claim(state))
        if state == "allocated":
            self.allocated_for = None

    def volume(self, state):
        if state == "gone":
            self.drop("volume")
        else:
            self.set("volume", volume("disk", claimed=state == "claimed"))
        if state == "claimed":
            self.volume_for = None

    def budget(self, app):
        if app == "gone":
            self.drop("budget")
        else:
            self.set("budget", budget(app))

    def node(self, name, memory):
        labels = {"nvidia.com/gpu.memory": memory} if memory else {}
        self.set(name, node(name, labels=labels))

    def node_gone(self, name):
        self.drop(name)

    def steps(self, count):
        """A snapshot that is begun; the steps that are left are never taken."""
        deque(islice(self.world.builder.steps(NOW), count), maxlen=0)

    def snapshot(self):
        return self.world.builder.snapshot(NOW)

    def as_bound(self, number):
        """The state of a pod with the label of the pool in which it was bound."""
        state = self.states[number]
        if number not in self.pools:
            return state
        labels = {key: value for key, value in state["labels"].items() if key != "pool"}
        pool = self.pools[number]
        return {**state, "labels": labels | ({"pool": pool} if pool else {})}

    def rebuilt(self):
        """The same from nothing: what was bound as assumed is seen to wait first."""
        reported = [key for key in self.pools if key not in self.unreported]
        objects = [make_pod(number, self.as_bound(number)) for number in reported]
        objects += [each for key, each in self.live.items() if key not in self.unreported]
        world = new_cluster(*objects)
        for number, at in self.unreported.items():
            waiting = {**self.as_bound(number), "node": "", "phase": "Pending"}
            world.add(make_pod(number, waiting))
            self.carry_out(world, number, at)
            world.add(self.live[number])
        for number in {self.allocated_for, self.volume_for} - {None, *self.unreported}:
            # The pod is bound elsewhere or has ended: only its claim and volume are still assumed.
            world.add(make_pod(number, {**self.states[number], "node": "", "phase": "Pending"}))
            self.carry_out(world, number, "another-node")
            world.add(self.live[number])
        for number, at in self.nominated.items():
            world.builder.nominate(f"pod-p{number}", at, NOW)
        for number in self.evicted:
            world.builder.expect_eviction(f"pod-p{number}")
        return world.builder.snapshot(NOW)


def history_of(*changes):
    history = History()
    for change, *arguments in (*(("node", name, "") for name in NODES), *changes):
        getattr(history, change)(*arguments)
    return history
