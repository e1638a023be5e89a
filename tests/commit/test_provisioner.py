"""Requests for nodes and their templates are made once, and removed when no gang needs them."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kai_py.api.records.unstructured import Unstructured, unstructured
from kai_py.api.references import PodRef
from kai_py.commit.provisioner import Provisioner
from kai_py.commit.provisioning_request import (
    GANG_KEY,
    MANAGED_BY,
    DesiredRequest,
    PodSet,
    failed_at,
)
from kai_py.commit.settings import CommitSettings
from kai_py.grouping.gang import Owner
from kai_py.watch.errors import from_response
from kai_py.watch.kinds import PROVISIONING_REQUESTS
from tests.commit.test_provisioning import TRAIN, stands, train, wish_of
from tests.dialects.feeding import Cluster, node
from tests.dialects.test_native_groups import QUEUE

OWNED, FOREIGN = ({"uid": uid} for uid in ("u", "of an earlier request"))


@pytest.mark.parametrize(("owner", "tried"), [(None, 1), (OWNED, 1), (FOREIGN, 2)])
async def test_templates_are_made_once_and_again_while_those_of_an_earlier_request_remain(
    owner, tried
):
    created = []

    async def create(_kind, body, namespace):
        created.append((namespace, body["metadata"]["name"]))
        if owner is not None:
            raise from_response("create", 409, b'{"reason": "AlreadyExists", "code": 409}', {})

    async def get(kind, name, namespace):
        metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner or {}]}
        found = {"metadata": metadata, "spec": {"containers": []}}
        return unstructured(found, ("spec",) if kind.kind.name == "Pod" else ())

    wish = wish_of(Cluster(QUEUE, node("n", 2), train(4)))[2][TRAIN]
    mirror = SimpleNamespace(objects=lambda _kind: {})
    client = SimpleNamespace(create=create, get=get)
    provisioner = Provisioner(client, mirror, CommitSettings())
    for _ in range(2):
        await provisioner._ensure_templates(PROVISIONING_REQUESTS.at(), wish, stands())
    assert created == [("default", f"{wish.name}-0")] * tried


WANTED, WAITS, OTHER, BLOCKED = "wanted", "waits", "has another", "blocked"


@pytest.mark.parametrize(
    ("gang", "condition", "ago", "kept"),
    [
        (WANTED, "Accepted", 900, True),
        (WANTED, "Failed", 299, True),
        (WANTED, "Failed", 301, False),
        (WAITS, "Accepted", 900, True),
        (WAITS, "Failed", 301, False),
        (OTHER, "Accepted", 0, False),
        (BLOCKED, "Accepted", 0, False),
    ],
)
async def test_a_request_is_removed_when_its_gang_does_not_need_it_or_it_failed(
    monkeypatch, gang, condition, ago, kept
):
    removed = []
    monkeypatch.setattr(Provisioner, "_ensure_templates", lambda *_each: asyncio.sleep(0))
    monkeypatch.setattr(Provisioner, "_create_request", lambda *_each: asyncio.sleep(0))

    async def remove(_provisioner, _served, request):
        removed.append(request.metadata.name)

    monkeypatch.setattr(Provisioner, "_remove", remove)
    labels = {MANAGED_BY: CommitSettings().scheduler_name}
    request = stands(condition)
    meta = replace(request.metadata, labels=labels, annotations={GANG_KEY: TRAIN})
    known = {("default", "r"): Unstructured(metadata=meta, content=request.content)}
    now = failed_at(stands("Failed")) + ago
    mirror = SimpleNamespace(
        served=lambda _kind: PROVISIONING_REQUESTS.at(), objects=lambda _: known
    )
    client = SimpleNamespace(machine=SimpleNamespace(now=lambda: now))
    provisioner = Provisioner(client, mirror, CommitSettings())
    pods = (PodSet((PodRef("default", "train-0", "p"),)),)
    owner = Owner("batch/v1", "Job", "default", "train", "t")
    name = "r" if gang == WANTED else "another"
    provisioner._desired = {}
    if gang in (WANTED, OTHER):
        provisioner._desired = {TRAIN: DesiredRequest(TRAIN, owner, name, "atomic", pods)}
    provisioner._waiting = frozenset() if gang == BLOCKED else frozenset({TRAIN})
    await provisioner._reconcile()
    assert removed == ([] if kept else ["r"])
