"""How the statuses of queues are written."""

import asyncio
import contextlib
import json
from itertools import pairwise

import pytest

from kai_py.api.crd import crds
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.statuses import report_writer
from kai_py.commit.statuses.queue import QueueStatusWriter
from kai_py.embedded.crds import CustomResources, definitions_resource
from kai_py.embedded.deletion import delete
from kai_py.plan.plan import Plan
from kai_py.watch.client import Client
from kai_py.watch.kinds import QUEUES
from tests.commit.cluster import QUICK, Cluster, refuse
from tests.support.scenario import cluster as scenario
from tests.support.scenario import node, pod, queue
from tests.watch import virtual_time

INTERVAL = 5.0


@pytest.fixture
def quick_passes(monkeypatch):
    monkeypatch.setattr(report_writer, "MIN_INTERVAL_SECONDS", 0.0)


@pytest.fixture
def server(quick_passes):
    server = Cluster()
    (definition,) = crds().values()
    CustomResources(server.api)
    server.api.create(definitions_resource(), definition)
    server.told = []
    return server


@contextlib.asynccontextmanager
async def writing(server, interval=INTERVAL):
    writer = QueueStatusWriter(
        Client(server),
        QUEUES.at(),
        lambda name: stored(server, name),
        interval=interval,
        backoff=ObjectBackoff(QUICK),
        on_transition=lambda was, finding: server.told.append((was.metadata.name, finding.reason)),
    )
    running = asyncio.create_task(writer.run())
    yield writer
    running.cancel()


def create(server, name, **spec):
    body = {"metadata": {"name": name}, "spec": {"deservedGPUs": 4} | spec}
    server.api.create(server.api.registry.named("queues.scheduling.kai.io"), body)


def stored(server, name):
    document = server.api.find(server.api.registry.named("queues.scheduling.kai.io"), name)
    return QUEUES.at().decode(json.dumps(document).encode()) if document else None


def writes(server):
    return server.made("patch", "Queue/status")


def using(gpus, *more):
    """A plan in which q has ``gpus`` pods of one GPU."""
    pods = (pod(f"p-{i}", queue="q", node="n") for i in range(gpus))
    return scenario(node("n"), queue("q", 4), *more, *pods).plan()


async def settle(turns=200):
    for _ in range(turns):
        await asyncio.sleep(0)


async def test_a_status_is_written_once_and_reads_back(server):
    create(server, "q")
    async with writing(server) as writer:
        for _ in range(3):
            writer.update(using(2))
            await settle()
    assert writes(server) == 1
    status = stored(server, "q").queue.status
    assert str(status.allocated["gpus"]) == "2"
    assert status.observed_generation == 1
    assert {c.type for c in status.conditions} == {"Ready", "Orphan", "OverDeserved", "OverMax"}
    assert ("q", "Accepted") in server.told


async def test_a_new_writer_finds_nothing_to_say(server):
    create(server, "q")
    for _ in range(2):
        async with writing(server) as writer:
            writer.update(using(2))
            await settle()
    assert writes(server) == 1


@virtual_time.test
async def test_what_changes_in_between_is_written_later_without_another_plan(server):
    create(server, "q")
    async with writing(server, interval=0.1) as writer:
        for gpus in (1, 2, 3, 4):
            writer.update(using(gpus))
            await settle()
        assert str(stored(server, "q").queue.status.allocated["gpus"]) == "1"
        await asyncio.sleep(0.3)
    assert str(stored(server, "q").queue.status.allocated["gpus"]) == "4"
    assert writes(server) == 2


@virtual_time.test
async def test_a_change_by_another_is_not_overwritten_but_read(server):
    create(server, "q")
    known_before = stored(server, "q")
    queues = server.api.registry.named("queues.scheduling.kai.io")
    foreign = {"type": "Audited", "status": "True", "reason": "ByHand"}
    foreign["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    server.api.patch_status(queues, server.api.find(queues, "q"), {"conditions": [foreign]})
    lagging = [known_before]
    writer = QueueStatusWriter(
        Client(server),
        QUEUES.at(),
        lambda name: lagging.pop() if lagging else stored(server, name),
        interval=0.01,
        backoff=ObjectBackoff(QUICK),
        on_transition=lambda *_: None,
    )
    running = asyncio.create_task(writer.run())
    writer.update(using(2))
    await asyncio.sleep(0.2)
    running.cancel()
    assert writes(server) == 2
    types = {c.type for c in stored(server, "q").queue.status.conditions}
    assert types == {"Audited", "Ready", "Orphan", "OverDeserved", "OverMax"}


@virtual_time.test
async def test_a_refused_write_is_repeated_and_delays_no_other_queue(server):
    create(server, "q")
    create(server, "r")
    server.fail_once("patch", "Queue/status", refuse(500))
    async with writing(server, interval=0.05) as writer:
        writer.update(using(2, queue("r", 4)))
        await settle()
        assert not stored(server, "q").queue.status.conditions
        assert stored(server, "r").queue.status.conditions
        await asyncio.sleep(0.2)
    assert stored(server, "q").queue.status.conditions
    assert writes(server) == 3


@pytest.mark.slow
async def test_every_queue_has_its_turn(server, monkeypatch):
    monkeypatch.setattr(report_writer, "MAX_WRITES_PER_PASS", 2)
    names = [f"q-{i}" for i in range(7)]
    for name in names:
        create(server, name)
    async with writing(server, interval=0.0) as writer:
        for used in range(1, 30):
            busy = [pod(f"{name}-{i}", queue=name, node="n") for name in names for i in range(used)]
            cluster = scenario(node("n", gpus=500, cpu="999"), *(queue(n, 4) for n in names), *busy)
            writer.update(cluster.plan())
            await settle(10)
        await settle()
    turns = [call.path.split("/")[-2] for call in server.calls if call.verb == "patch"]
    for name in names:
        at = [turn for turn, written in enumerate(turns) if written == name]
        assert len(at) >= 3
        assert max(later - earlier for earlier, later in pairwise(at)) <= 2 * len(names)


async def test_a_queue_that_is_gone_is_forgotten(server):
    create(server, "q")
    async with writing(server) as writer:
        writer.update(using(1))
        await settle()
        queues = server.api.registry.named("queues.scheduling.kai.io")
        delete(server.api, queues, "q")
        writer.update(Plan())
        await settle()
        create(server, "q")
        writer.update(using(1))
        await settle()
    assert writes(server) == 2
