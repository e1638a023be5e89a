"""No queue rises above its bounds, in whatever order pods that share claims start and end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.core import PodResourceClaim
from kai_py.snapshot.accounting import GPU
from tests.support.examples import examples
from tests.support.executed_plans import carry_out, remove_pod
from tests.support.scenario import claim, cluster, device_class, gpu_slice, job, node, pod, queue

LEAVES = ("a", "b", "c")
PARENT = {"a": "team", "b": "team"}
NAMES = ("one", "two")
USES = ((), (), ("one",), ("one",), ("two",), ("one", "two"))

POD = st.tuples(
    st.just("start"),
    st.sampled_from(LEAVES),
    st.sampled_from(USES),
    st.integers(1, 3),
    st.sampled_from((1, 1, 2)),
    st.sampled_from((0, 0, 1)),
    st.sampled_from((False, False, True)),
)
END = st.tuples(st.just("end"), st.integers(0, 9))
STEPS = st.lists(st.one_of(POD, POD, POD, END), min_size=6, max_size=16)
ENDS = st.lists(END, min_size=6, max_size=6)
BOUNDS = st.fixed_dictionaries(
    {each: st.tuples(st.integers(0, 4), st.integers(2, 6)) for each in LEAVES}
    | {"team": st.tuples(st.integers(4, 6), st.integers(6, 9))}
)
SIZES = st.tuples(*[st.integers(1, 3)] * len(NAMES))


class World:
    """Pods that share three claims, and others with GPUs of their own, in a tree of queues."""

    def __init__(self, bounds, sizes):
        self.bounds = {name: (min(each), max(each)) for name, each in bounds.items()}
        self.now, self.number = 1000.0, 0
        claims = [claim(name, size) for name, size in zip(NAMES, sizes, strict=True)]
        queues = [
            queue(name, *each, **({"parent": PARENT[name]} if name in PARENT else {}))
            for name, each in self.bounds.items()
        ]
        self.cluster = cluster(
            node("n", 0),
            gpu_slice("n"),
            node("p", 8),
            device_class(),
            queues,
            claims,
        )

    def start(self, queue_name, names, gpus, pods, priority, rigid):
        self.number += 1
        kind = "non-preemptible" if rigid else "preemptible"
        notes = {"scheduling.kai.io/preemptibility": kind}
        owner = job(f"j{self.number}", pods, queue_name, **notes)
        self.cluster.add(owner)
        uses = tuple(
            PodResourceClaim(name=each, resource_claim_name=each) for each in sorted(names)
        )
        for index in range(pods):
            self.cluster.add(
                pod(
                    f"j{self.number}-{index}",
                    0 if uses else gpus,
                    owner=owner,
                    priority=priority,
                    annotations=notes,
                    resource_claims=uses,
                )
            )

    def end(self, number):
        running = [each for each in self.cluster.all("pods") if each.spec.node_name]
        if running:
            remove_pod(self.cluster, running[number % len(running)])

    def decide(self):
        carry_out(self.cluster, self.cluster.plan(self.now))

    def check(self):
        """Every queue, with those below it, is within max and, of what stays, within deserved."""
        self.now += 10
        snapshot = self.cluster.snapshot(self.now)
        for name, (deserved, maximum) in self.bounds.items():
            below = [each for each in LEAVES if name in (each, PARENT.get(each))]
            for amounts, bound in (
                (snapshot.queue_allocated, maximum),
                (snapshot.queue_non_preemptible, deserved),
            ):
                held = sum(amounts.get(each, {}).get(GPU, 0.0) for each in below)
                assert held <= bound, (name, held, bound)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(BOUNDS, SIZES, STEPS, ENDS)
def test_no_queue_rises_above_its_bounds(bounds, sizes, steps, ends):
    world = World(bounds, sizes)
    for step, *values in (*steps, *ends):
        getattr(world, step)(*values)
        if step == "start":
            world.decide()
        world.check()
