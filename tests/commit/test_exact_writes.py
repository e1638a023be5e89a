"""Claims whose opaque parameters no patch can carry are written exactly; others by patches."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import pytest

from kai_py.api.records.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.records.resource_versions import encode_allocation
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess, CallLimit
from kai_py.commit.claims.exact_writes import (
    adding_consumers,
    adding_finalizer,
    annotating,
    reencoding_hint,
    removing_consumers,
    removing_finalizer,
    send_patch,
)
from kai_py.commit.claims.reconcile import DesiredClaim, next_patch, release_patch
from kai_py.commit.retry import RetryPolicy
from kai_py.watch import kinds
from kai_py.watch.client import Client, PatchType
from kai_py.watch.errors import Cause, Invalid
from kai_py.watch.protobuf import MAGIC, PROTOBUF, encode_field, values
from tests.support.protobuf import message_of
from tests.support.records import from_json

ODD = b'{"a": "<b>&c", "n": 1.00, "large": 123456789012345678901234567890, "none": null}'
FINALIZER = b"resource.kubernetes.io/delete-protection"
NOW = datetime(2026, 11, 22, 11, 0, 0, 500_000, tzinfo=UTC)
POD = PodRef("team-a", "worker", "uid-worker")


def consumer(uid):
    return encode_field(3, b"pods") + encode_field(4, uid) + encode_field(5, uid)


METADATA = encode_field(1, b"c") + encode_field(5, b"uid-c") + encode_field(6, b"7")
STATUS = encode_field(2, consumer(b"stays")) + encode_field(2, consumer(b"leaves"))
MESSAGE = encode_field(1, METADATA) + encode_field(2, ODD) + encode_field(3, STATUS)


def claim(**status):
    document = {
        "metadata": {"name": "c", "namespace": "team-a", "uid": "uid-c", "resourceVersion": "7"},
        "status": status,
    }
    return from_json(ResourceClaim, document)


def metadata_of(message):
    (metadata,) = values(message, 1)
    return metadata


def users(message):
    (status,) = values(message, 3)
    return [values(each, 5)[0] for each in values(status, 2)]


def test_a_finalizer_comes_and_goes_and_the_rest_stays():
    changed = adding_finalizer(claim())(MESSAGE)
    assert values(metadata_of(changed), 14) == [FINALIZER]
    assert (values(changed, 2), values(changed, 3)) == ([ODD], [STATUS])
    assert removing_finalizer(claim())(changed) == MESSAGE


def test_consumers_come_and_go_and_the_rest_stays():
    added = ResourceClaimConsumerReference(resource="pods", name="new", uid="new")
    changed = adding_consumers(claim(), [added])(MESSAGE)
    assert users(changed) == [b"stays", b"leaves", b"new"]
    assert values(changed, 2) == [ODD]
    changed = removing_consumers(claim(), {"leaves"})(changed)
    assert users(changed) == [b"stays", b"new"]


def test_an_annotation_replaces_the_one_of_its_key_and_no_other():
    def annotations(**given):
        pairs = [(key.encode(), value.encode()) for key, value in given.items()]
        return [encode_field(1, key) + encode_field(2, value) for key, value in pairs]

    before = METADATA + b"".join(encode_field(12, each) for each in annotations(a="1", b="2"))
    changed = annotating(claim(), "a", "3")(encode_field(1, before))
    assert values(metadata_of(changed), 12) == annotations(b="2", a="3")


@pytest.mark.parametrize("change", [adding_finalizer, removing_finalizer])
def test_a_claim_that_has_changed_is_refused_by_its_version(change):
    newer = MESSAGE.replace(encode_field(6, b"7"), encode_field(6, b"8"))
    metadata = metadata_of(change(claim())(newer))
    assert (values(metadata, 5), values(metadata, 6)) == ([b"uid-c"], [b"7"])


def test_consumers_leave_whatever_version_but_one_uid():
    another = MESSAGE.replace(encode_field(5, b"uid-c"), encode_field(5, b"uid-x"))
    metadata = metadata_of(removing_consumers(claim(), {"leaves"})(another))
    assert (values(metadata, 5), values(metadata, 6)) == ([b"uid-c"], [b"7"])


@dataclass
class Server:
    """A server that refuses to patch a claim, with the field at fault."""

    fault: str = "spec"
    body: bytes = MAGIC + encode_field(1, b"kind") + encode_field(2, MESSAGE)
    calls: list = field(default_factory=list)

    async def send(self, call, *, timeout_seconds=None):
        self.calls.append(call)
        if call.verb == "patch":
            raise Invalid("is invalid", code=422, causes=(Cause(field=self.fault),))
        if call.verb == "get":
            assert call.accept == PROTOBUF
            return self.body
        return b'{"metadata": {"name": "c", "resourceVersion": "8"}}'

    def access(self):
        return ApiAccess(
            client=Client(self),
            pods=kinds.PODS.at(),
            served_claims=kinds.RESOURCE_CLAIMS.at,
            limiter=CallLimit(1),
            retry=RetryPolicy(attempts=1),
            settle_pause=RetryPolicy(attempts=1),
        )


REF = ClaimRef("team-a", "c", "uid-c")


def desired(allocation=None):
    user = ResourceClaimConsumerReference(resource="pods", name=POD.name, uid=POD.uid)
    return DesiredClaim(REF, (POD,), (user,), ("node-a",), allocation)


ALLOCATION = from_json(
    AllocationResult,
    {
        "devices": {
            "results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}],
        }
    },
)
CONFIGURED = msgspec.json.decode(
    b'{"devices": {"results": [], "config": [{"source": "FromClaim", "opaque": {"driver": "d", '
    b'"parameters": ' + ODD + b"}}]}}",
    type=AllocationResult,
)


async def test_a_refused_finalizer_is_written_exactly():
    server = Server("spec")
    await send_patch(server.access(), REF, next_patch(desired(ALLOCATION), claim(), NOW))
    put = server.calls[-1]
    assert (put.verb, put.content_type, put.path[-2:]) == ("update", PROTOBUF, "/c")
    message = message_of(put.body)
    assert values(metadata_of(message), 14) == [FINALIZER]
    assert values(message, 2) == [ODD]


async def test_a_refused_reservation_is_written_exactly():
    server = Server("status.allocation")
    allocated = claim(allocation=json.loads(msgspec.json.encode(ALLOCATION)))
    await send_patch(server.access(), REF, next_patch(desired(), allocated, NOW))
    assert server.calls[-1].path.endswith("/c/status")
    assert users(message_of(server.calls[-1].body)) == [b"stays", b"leaves", b"uid-worker"]


async def test_a_refused_removal_of_a_consumer_is_written_exactly():
    server = Server("status.allocation")
    held = [{"resource": "pods", "name": uid, "uid": uid} for uid in ("stays", "leaves")]
    patch = release_patch(claim(reservedFor=held), frozenset({"leaves"}))
    await send_patch(server.access(), REF, patch)
    assert users(message_of(server.calls[-1].body)) == [b"stays"]


@pytest.mark.parametrize(
    "server", [Server("metadata.uid"), Server("spec", body=b'{"kind": "ResourceClaim"}')]
)
async def test_another_refusal_stays_one(server):
    with pytest.raises(Invalid) as refusal:
        await send_patch(server.access(), REF, next_patch(desired(ALLOCATION), claim(), NOW))
    assert not any(call.verb == "update" for call in server.calls)
    assert bool(reencoding_hint(refusal.value)) is (server.fault == "spec")


def with_finalizer():
    known = claim()
    finalizers = (FINALIZER.decode(),)
    metadata = msgspec.structs.replace(known.metadata, finalizers=finalizers)
    return msgspec.structs.replace(known, metadata=metadata)


def test_every_allocation_carries_its_time():
    patch = next_patch(desired(ALLOCATION), with_finalizer(), NOW)
    written = json.loads(msgspec.json.encode(patch.body))
    assert written["status"]["allocation"]["allocationTimestamp"] == "2026-11-22T11:00:00Z"


def test_parameters_are_written_as_they_were_read():
    patch = next_patch(desired(CONFIGURED), with_finalizer(), NOW)
    assert patch.patch_type is PatchType.JSON, "a merge patch drops nulls"
    assert ODD in msgspec.json.encode(patch.body)
    assert ODD in msgspec.json.encode(encode_allocation(CONFIGURED))
    assert [each["path"] for each in patch.body] == [
        "/metadata/uid",
        "/metadata/resourceVersion",
        "/status",
    ]


def test_parameters_keep_no_message_alive():
    message = b'{"driver": "d", "parameters": {}, "more": "' + b"x" * 100_000 + b'"}'
    decoded = msgspec.json.decode(message, type=type(CONFIGURED.devices.config[0].opaque))
    assert len(bytes(decoded.parameters)) == 2
    assert len(memoryview(decoded.parameters).obj) == 2
