"""No device, counter or share is ever given twice, over any sequence of cycles."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.quantity import parse_quantity
from kai_py.api.records.resource import ResourceClaim, ResourceSlice
from tests.support.examples import examples
from tests.support.records import from_json
from tests.support.scenario import at, claim, claiming, cluster, device_class, job, node, pod, queue

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
    counters = [{"name": "card", "counters": {"slots": {"value": "3"}}}]
    for part, content in (("d", {"devices": devices}), ("c", {"sharedCounters": counters})):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": name} | content
        yield from_json(ResourceSlice, {"metadata": {"name": f"{name}-{part}"}, "spec": spec})


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
    pods: dict = field(default_factory=dict)
    claims: dict = field(default_factory=dict)
    users: dict = field(default_factory=dict)
    """Pod name to the names of its claims."""
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
            self._put(wanted(kind, name, "", amount))
        for i in range(size):
            each = f"{name}-{i}"
            if not shared:
                self._put(wanted(kind, each, each, amount))
            made = pod(each, 0, owner=owner, priority=priority, created=float(self.made))
            self._put_pod(claiming(made, name if shared else each, template=not shared))
            self.users[each] = name if shared else each

    def cycle(self):
        plan = self.cluster.plan()
        for gang in plan.placements:
            for placed in gang.pods:
                self._bind(placed)
        for eviction in plan.evictions:
            gone = self.pods[eviction.pod.name]
            self._put_pod(replace(gone, metadata=replace(gone.metadata, deletion_timestamp=at(1))))
            self.leaving.append(eviction.pod.name)
        return plan

    def finish(self, name):
        """The pod is gone; the claim controller clears what no pod uses any more."""
        gone = self.pods.pop(name)
        self.cluster.remove(gone)
        used = self.claims[self.users.pop(name)]
        rest = tuple(c for c in used.status.reserved_for if c.uid != gone.metadata.uid)
        status = replace(used.status, reserved_for=rest)
        self._put(replace(used, status=status if rest else replace(status, allocation=None)))

    def _bind(self, placed):
        for found in placed.allocate:
            known = self.claims[found.claim.name]
            assert known.status.allocation is None, "an allocation is never replaced"
            status = replace(known.status, allocation=found.allocation)
            self._put(replace(known, status=status))
        for ref in placed.reserve:
            known = self.claims[ref.name]
            assert known.status.allocation is not None
            consumer = claim("x", held_by=[placed.pod.name], on=[("n", "d")]).status.reserved_for
            users = (*known.status.reserved_for, *consumer)
            self._put(replace(known, status=replace(known.status, reserved_for=users)))
        bound = self.pods[placed.pod.name]
        self._put_pod(
            replace(
                bound,
                spec=replace(bound.spec, node_name=placed.node),
                status=replace(bound.status, phase="Running"),
            )
        )

    def _put(self, changed):
        self.claims[changed.metadata.name] = changed
        self.cluster.add(changed)

    def _put_pod(self, changed):
        self.pods[changed.metadata.name] = changed
        self.cluster.add(changed)

    def check(self):
        whole, memory, slots = Counter(), Counter(), Counter()
        for held in self.claims.values():
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
                n for n, p in world.pods.items() if p.spec.node_name and n not in world.leaving
            )
            if running:
                world.finish(running[details[0] % len(running)])
        else:
            world.cycle()
        world.check()
    world.cycle()
    world.check()
