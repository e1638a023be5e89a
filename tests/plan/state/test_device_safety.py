"""No device, counter or share is ever given twice, over any sequence of cycles."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.quantity import parse_quantity
from kai_py.api.records.resource import ResourceClaim
from tests.support.examples import examples
from tests.support.executed_plans import remove_pod, start
from tests.support.scenario import (
    at,
    claim,
    claiming,
    cluster,
    device_class,
    job,
    node,
    partitions,
    pod,
    queue,
)

DRIVER = "gpu.nvidia.com"
KINDS = ("whole", "part", "share")
WHOLE, PART, SHARE = (
    f'device.attributes["{DRIVER}"].type == "{kind}"' for kind in ("gpu", "mig", "shared")
)


def slices(name: str):
    """Two whole GPUs, one that can be cut into 4 parts of which 3 fit, one of 10Gi to share."""

    def device(each, kind, **more):
        return {"name": each, "attributes": {"type": {"string": kind}}} | more

    draws = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
    memory = {"value": "10Gi", "requestPolicy": {"default": "1Gi"}}
    devices = [
        *(device(f"gpu-{i}", "gpu") for i in range(2)),
        *(device(f"part-{i}", "mig", consumesCounters=draws) for i in range(4)),
        device("shared", "shared", allowMultipleAllocations=True, capacity={"memory": memory}),
    ]
    return partitions(name, devices, {"card": {"slots": 3}})


def wanted(kind: str, name: str, owner: str, amount: int) -> ResourceClaim:
    if kind == "share":
        made = claim(name, 1, selector=SHARE, owner=owner)
        [request] = made.spec.devices.requests
        asked = replace(
            request.exactly, capacity=replace(request.exactly.capacity, requests={"memory": "4Gi"})
        )
        devices = replace(made.spec.devices, requests=(replace(request, exactly=asked),))
        return replace(made, spec=replace(made.spec, devices=devices))
    return claim(name, amount, selector=WHOLE if kind == "whole" else PART, owner=owner)


@dataclass
class World:
    """What the API server, the claim controller and the kubelet would do with plans."""

    cluster: object = field(default_factory=lambda: cluster(queue("a", 4), queue("b", 4)))
    leaving: list = field(default_factory=list)
    made: int = 0

    def __post_init__(self):
        self.cluster.add(device_class(), *(node(name, 0) for name in ("n0", "n1")))
        for name in ("n0", "n1"):
            self.cluster.add(*slices(name))

    def submit(self, kind, size, team, priority, shared, amount):
        name = f"g{self.made}"
        self.made += 1
        owner = job(name, size, team)
        self.cluster.add(owner)
        if shared:
            self.cluster.add(wanted(kind, name, "", amount))
        for i in range(size):
            each = f"{name}-{i}"
            if not shared:
                self.cluster.add(wanted(kind, each, each, amount))
            made = pod(each, 0, owner=owner, priority=priority, created=float(self.made))
            self.cluster.add(claiming(made, name if shared else each, template=not shared))

    def cycle(self):
        plan = self.cluster.plan()
        for gang in plan.placements:
            for placed in gang.pods:
                start(self.cluster, placed)
        for eviction in plan.evictions:
            gone = self.cluster.get("pods", eviction.pod.name)
            meta = replace(gone.metadata, deletion_timestamp=at(1))
            self.cluster.add(replace(gone, metadata=meta))
            self.leaving.append(eviction.pod.name)
        return plan

    def finish(self, name):
        remove_pod(self.cluster, self.cluster.get("pods", name))

    def check(self):
        whole, memory, slots = Counter(), Counter(), Counter()
        for held in self.cluster.all("resourceclaims"):
            if held.status.allocation is None:
                continue
            for result in held.status.allocation.devices.results:
                device = (result.pool, result.device)
                if result.share_id:
                    asked = result.consumed_capacity["memory"]
                    memory[device] += parse_quantity(asked).nano
                else:
                    whole[device] += 1
                slots[result.pool] += result.device.startswith("part-")
        assert all(count == 1 for count in whole.values())
        assert all(count <= 3 for count in slots.values())
        assert all(amount <= parse_quantity("10Gi").nano for amount in memory.values())


STEPS = st.one_of(
    st.tuples(
        st.just("submit"),
        st.sampled_from(KINDS),
        st.integers(1, 4),
        st.sampled_from("ab"),
        st.sampled_from([0, 10]),
        st.booleans(),
        st.integers(1, 2),
    ),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("finish"), st.integers(0, 9)),
    st.tuples(st.just("cycle")),
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_nothing_is_given_twice(steps):
    world = World()
    for step, *details in steps:
        if step == "submit":
            world.submit(*details)
        elif step == "leave" and world.leaving:
            world.finish(world.leaving.pop(details[0] % len(world.leaving)))
        elif step == "finish":
            running = sorted(
                each.metadata.name
                for each in world.cluster.all("pods")
                if each.spec.node_name and each.metadata.name not in world.leaving
            )
            if running:
                world.finish(running[details[0] % len(running)])
        else:
            world.cycle()
        world.check()
    world.cycle()
    world.check()
