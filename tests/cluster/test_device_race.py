"""Two schedulers give away the same device in the same moment: kube-scheduler and kai-py.

Nothing in the API keeps kube-scheduler from allocating a device that a claim of ours holds, nor
does it look. What we answer for: no pod of ours is bound onto a device that somebody else had
first, and whoever came later than us is noticed at once, told, and given way to as configured.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kai_py.watch.kinds import PODS, RESOURCE_CLAIMS
from tests.cluster.api import Document
from tests.cluster.clusters import Cluster
from tests.cluster.eventually import eventually
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode
from tests.cluster.manifests import claim, pod, pod_spec, queue
from tests.cluster.scheduling import Running, install_definitions, scheduling
from tests.cluster.test_bad_claims import allocate
from tests.cluster.test_device_claims import DRIVER, card, device_class, exactly, pool
from tests.cluster.view import View

ROUNDS, NODES, AT_ONCE = 200, 4, 20
CARDS = ROUNDS // NODES
THEIRS = "default-scheduler"
DOUBLES = "kai_py_device_double_allocations_total"


@dataclass
class Course:
    """What the watch showed, in the order in which it was written."""

    holders: dict[str, list[str]] = field(default_factory=dict)
    """Claims by the device that they hold now, the first one first."""
    misplaced: list[str] = field(default_factory=list)
    """Pods of ours bound onto a device that somebody else had first."""

    def observe(self, kind: Any, old: Any, new: Any) -> None:
        if kind is RESOURCE_CLAIMS:
            for device in _held(old) - _held(new):
                self.holders[device].remove(old.metadata.name)
            for device in _held(new) - _held(old):
                self._give(device, new.metadata.name)
        elif kind is PODS and new is not None and new.spec.node_name and not _node(old):
            self._bind(new.metadata.name)

    def _give(self, device: str, claim_name: str) -> None:
        self.holders.setdefault(device, []).append(claim_name)

    def _bind(self, name: str) -> None:
        if not name.startswith("ours"):
            return
        [holders] = [found for found in self.holders.values() if name in found]
        if holders[0] != name:
            self.misplaced.append(name)


def _held(claim: Any) -> set[str]:
    allocation = claim.status.allocation if claim is not None else None
    return {each.device for each in allocation.devices.results} if allocation else set()


def _node(pod: Any) -> str:
    return "" if pod is None else pod.spec.node_name


def slices() -> Iterator[Document]:
    for node in range(NODES):
        numbers = range(node * CARDS, (node + 1) * CARDS)
        yield from pool(f"node-{node}", {"devices": [card(number) for number in numbers]})


def round_of(number: int, scheduler: str) -> tuple[Document, Document]:
    """A pod and its claim for the one device of this round."""
    name = f"{'ours' if scheduler != THEIRS else 'theirs'}-{number}"
    text = f"device.attributes['{DRIVER}'].index == {number}"
    wanted = claim(name, exactly(selectors=[{"cel": {"expression": text}}]))
    return wanted, pod(name, pod_spec(claim=name, scheduler=scheduler))


@pytest.mark.usefixtures("kube_scheduler")
async def test_two_hundred_devices_that_two_schedulers_want_in_the_same_moment(real: Cluster):
    view, course, chance = View(real.api), Course(), random.Random(1)
    nodes = [FakeNode(name=f"node-{number}") for number in range(NODES)]
    await install_definitions(real.api)
    await real.submit(queue(deservedGPUs=ROUNDS, maxGPUs=ROUNDS), device_class(), *slices())
    rounds = [(round_of(n, THEIRS), round_of(n, "kai-scheduler")) for n in range(ROUNDS)]
    async with FakeKubelet(real.api, nodes), scheduling(real) as running:
        running.scheduler.mirror.subscribe(course.observe, RESOURCE_CLAIMS, PODS)
        lane = asyncio.Semaphore(AT_ONCE)

        async def play(number: int) -> None:
            async with lane:
                entrants = list(rounds[number])
                chance.shuffle(entrants)
                await asyncio.gather(*(real.submit(*entrant) for entrant in entrants))
                await eventually(lambda: is_held(course, number), what=f"device of {number}")

        await asyncio.gather(*(play(number) for number in range(ROUNDS)))
        await eventually(lambda: is_settled(view, course), within=30.0)
        assert course.misplaced == []
        await eventually(lambda: is_told(view, course, running), within=30.0)


@pytest.mark.usefixtures("definitions")
async def test_who_takes_a_device_of_a_running_pod_is_told_of_at_once(cluster: Cluster, view: View):
    nodes = [FakeNode(name="node-0")]
    wanted = (claim("ours", exactly()), claim("theirs", exactly()))
    await cluster.submit(queue(), device_class(), *wanted)
    await cluster.submit(*pool("node-0", {"devices": [card(0)]}))
    async with cluster.run_nodes(nodes), scheduling(cluster) as running:
        await cluster.submit(pod("ours", pod_spec(claim="ours")))
        await view.wait_bound("ours", 1)
        await eventually(lambda: starts(view, "ours"))
        await allocate(cluster, view, "theirs", "card-0")

        async def counted() -> bool:
            return running.count(DOUBLES) == 1.0

        await eventually(counted, within=5.0)
        for name, other in (("ours", "theirs"), ("theirs", "ours")):
            [note] = await eventually(lambda n=name: told(view, n), what=f"an event of {name}")
            assert "device card.example.com/node-0/card-0 is also allocated" in note
            assert f"claim default/{other}: pod default/ours has started and stays" in note
        assert await view.bound() == {"ours": "node-0"}


async def starts(view: View, name: str) -> bool:
    [found] = await view.pods(name)
    return found["status"].get("phase") == "Running"


async def told(view: View, name: str) -> list[str]:
    return await view.events(kind="ResourceClaim", name=name, reason="DeviceDoubleAllocated")


async def is_held(course: Course, number: int) -> bool:
    return bool(course.holders.get(f"card-{number}"))


async def is_settled(view: View, course: Course) -> bool:
    """Every device has one holder, or two of which ours has started."""
    phases = {each["metadata"]["name"]: each["status"].get("phase") for each in await view.pods()}
    bound = set(await view.bound())
    for number in range(ROUNDS):
        holders = course.holders[f"card-{number}"]
        assert holders, f"card-{number} is held by nobody"
        assert bound & set(holders), f"{holders} hold card-{number} and are not bound"
        if len(holders) > 1:
            assert phases[f"ours-{number}"] == "Running", f"{holders} hold card-{number}"
    return True


async def is_told(view: View, course: Course, running: Running) -> bool:
    """Those who came after us were counted, and both sides were told."""
    both = {name: holders for name, holders in course.holders.items() if len(holders) > 1}
    assert running.count(DOUBLES) >= len(both)
    for device, holders in both.items():
        for name in holders:
            notes = await told(view, name)
            assert any(f"/{device} is also allocated" in note for note in notes), (name, notes)
    return True
