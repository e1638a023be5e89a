"""Two schedulers give away the same device in the same moment: kube-scheduler and kai-py.

Nothing in the API keeps kube-scheduler from allocating a device that a claim of ours holds, nor
does it look. What we answer for: no pod of ours is bound onto a device that another scheduler had
first, and whoever came later than us is noticed at once, told, and given way to as configured.
"""

import asyncio
import random
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from kai_py.watch.kinds import PODS, RESOURCE_CLAIMS
from tests.cluster.claims.test_bad_claims import allocate
from tests.cluster.claims.test_device_claims import DRIVER, card, cards, device_class, exactly, pool
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim, pod, pod_spec, queue
from tests.support.cluster.scheduling import Running, install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.patience import patience

ROUNDS, NODES, AT_ONCE = 200, 4, 20
CARDS = ROUNDS // NODES
TAKEN = 5
THEIRS = "default-scheduler"
NOTHING: frozenset[str] = frozenset()
DOUBLES = "kai_py_device_double_allocations_total"


@dataclass
class Course:
    """What was written to claims and pods, as the watches showed it."""

    holders: dict[str, list[str]] = field(default_factory=dict)
    """Claims by the device that they hold now, the first one first."""
    bindings: dict[str, int] = field(default_factory=dict)
    """Pods with the version of the write that bound them."""
    _changes: list[tuple[int, str, frozenset[str]]] = field(default_factory=list)
    """Version of a write, the claim, and the devices that it holds from then on."""

    def observe(self, kind: Any, old: Any, new: Any) -> None:
        if kind is RESOURCE_CLAIMS:
            self._give(old, new)
        elif kind is PODS and new is not None and new.spec.node_name and not _node(old):
            self.bindings[new.metadata.name] = int(new.metadata.resource_version)

    def misplaced(self) -> list[str]:
        """Pods of ours that were bound onto a device that another scheduler had first.

        Two watches may lag behind each other, so versions tell what came before the binding.
        """
        return [
            name
            for name, version in self.bindings.items()
            if name.startswith("ours") and self._first_holder(name, version) != name
        ]

    def _give(self, old: Any, new: Any) -> None:
        before, after = _held(old), _held(new)
        for device in before - after:
            self.holders[device].remove(old.metadata.name)
        for device in after - before:
            self.holders.setdefault(device, []).append(new.metadata.name)
        if new is not None and before != after:
            version = int(new.metadata.resource_version)
            self._changes.append((version, new.metadata.name, after))

    def _first_holder(self, pod: str, bound: int) -> str:
        """Of the device of ``pod``, which has the number of its claim, when it was bound."""
        device = f"card-{pod.partition('-')[2]}"
        holders: dict[str, None] = {}
        for version, claim_name, held in sorted(self._changes, key=lambda change: change[0]):
            if version > bound:
                break
            if device in held:
                holders.setdefault(claim_name)
            else:
                holders.pop(claim_name, None)
        return next(iter(holders), "")


def _held(claim: Any) -> frozenset[str]:
    allocation = claim.status.allocation if claim is not None else None
    return frozenset(each.device for each in allocation.devices.results) if allocation else NOTHING


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
        assert course.misplaced() == []
        await eventually(lambda: is_told(view, course, running), within=30.0)


@pytest.mark.usefixtures("definitions")
async def test_a_claim_that_takes_devices_of_running_pods_is_reported_within_a_second(
    cluster: Cluster, view: View
):
    await cluster.submit(queue(), device_class())
    await cluster.submit(*pool("node-0", cards(TAKEN)))
    for number in range(TAKEN):
        text = f"device.attributes['{DRIVER}'].index == {number}"
        request = exactly(selectors=[{"cel": {"expression": text}}])
        await cluster.submit(claim(f"ours-{number}", request), claim(f"theirs-{number}", request))
    async with cluster.run_nodes([FakeNode(name="node-0")]), scheduling(cluster) as running:
        ours = [f"ours-{number}" for number in range(TAKEN)]
        await cluster.submit(*(pod(name, pod_spec(claim=name)) for name in ours))
        await eventually(lambda: start(view, ours), what="our pods")
        delays = [await delay_of_the_news(cluster, view, number) for number in range(TAKEN)]
        assert statistics.median(delays) < patience(1.0), delays
        assert running.count(DOUBLES) == TAKEN
        assert await view.bound() == dict.fromkeys(ours, "node-0")


async def delay_of_the_news(cluster: Cluster, view: View, number: int) -> float:
    """Seconds from the foreign write to the events that tell both claims of it."""
    ours, theirs = f"ours-{number}", f"theirs-{number}"
    written = datetime.now(UTC)
    await allocate(cluster, view, theirs, f"card-{number}")
    times = []
    for name, other in ((ours, theirs), (theirs, ours)):
        [event] = await eventually(lambda n=name: told(view, n), what=f"an event of {name}")
        assert f"device {DRIVER}/node-0/card-{number} is also allocated" in event["note"]
        assert f"claim default/{other}: pod default/{ours} is running" in event["note"]
        times.append(datetime.fromisoformat(event["eventTime"]))
    return (max(times) - written).total_seconds()


async def start(view: View, names: Iterable[str]) -> bool:
    phases = {each["metadata"]["name"]: each["status"].get("phase") for each in await view.pods()}
    return phases == dict.fromkeys(names, "Running")


async def told(view: View, name: str) -> list[Document]:
    """Events of a claim one of whose devices was given away twice."""
    return [
        event
        for event in await view.api.items(view.path("events"))
        if event["reason"] == "DeviceDoubleAllocated" and event["regarding"]["name"] == name
    ]


async def is_held(course: Course, number: int) -> bool:
    return bool(course.holders.get(f"card-{number}"))


async def is_settled(view: View, course: Course) -> bool:
    """Every device has one holder, or two of which ours has started."""
    phases = {each["metadata"]["name"]: each["status"].get("phase") for each in await view.pods()}
    bound = set(await view.bound())
    for number in range(ROUNDS):
        holders = course.holders[f"card-{number}"]
        assert holders, f"card-{number} has no holder"
        assert bound & set(holders), f"{holders} hold card-{number} and are not bound"
        if len(holders) > 1:
            assert phases[f"ours-{number}"] == "Running", f"{holders} hold card-{number}"
    return True


async def is_told(view: View, course: Course, running: Running) -> bool:
    """Claims that came after ours were counted, and both sides were told."""
    both = {name: holders for name, holders in course.holders.items() if len(holders) > 1}
    assert running.count(DOUBLES) >= len(both)
    for device, holders in both.items():
        for name in holders:
            notes = [event["note"] for event in await told(view, name)]
            assert any(f"/{device} is also allocated" in note for note in notes), (name, notes)
    return True
