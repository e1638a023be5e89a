"""Patches of claims, and the same change written exactly where a patch cannot carry the claim.

To patch an object the API server turns it into JSON and back, and so rewrites the raw bytes of
opaque parameters: without blanks, with ``&``, ``<`` and ``>`` escaped. A spec, and an allocation,
is immutable, so a claim whose parameters were sent by anything but a Go program (or allocated by a
scheduler that speaks protobuf) then refuses every patch. Such a claim is read in protobuf, which
has the bytes as they are, changed in the one field that is ours, and replaced; the server compares
uid and resourceVersion as for the patch.

Source of the numbers of fields: k8s.io/api/resource/v1 and k8s.io/apimachinery,
``generated.proto``.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from msgspec import Struct

from kai_py.api.records.resource import (
    DELETE_PROTECTION_FINALIZER,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.references import ClaimRef
from kai_py.commit.api_access import ApiAccess
from kai_py.watch.client import PatchType
from kai_py.watch.errors import ApiError, Invalid
from kai_py.watch.protobuf import (
    PROTOBUF,
    ProtobufError,
    change_field,
    change_object,
    encode_field,
    values,
)

METADATA, STATUS = 1, 3
UID, RESOURCE_VERSION, ANNOTATIONS, FINALIZERS = 5, 6, 12, 14
KEY, VALUE = 1, 2
RESERVED_FOR = 2
API_GROUP, RESOURCE, NAME, CONSUMER_UID = 1, 3, 4, 5

IMMUTABLE_FIELDS = frozenset({"spec", "status.allocation"})

Change = Callable[[bytes], bytes]
"""A claim's message before and after a change."""


class ClaimPatch(Struct, frozen=True):
    """One request that changes a claim; an empty ``subresource`` means the object itself.

    ``change``: the same in protobuf, of a claim that may have immutable raw bytes.
    """

    body: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    subresource: str = "status"
    patch_type: PatchType = PatchType.MERGE
    change: Change | None = None


def adding_finalizer(claim: ResourceClaim) -> Change:
    """The claim with our finalizer, if it is as we know it."""
    finalizer = encode_field(FINALIZERS, DELETE_PROTECTION_FINALIZER.encode())
    return _changing_metadata(claim, lambda metadata: metadata + finalizer)


def removing_finalizer(claim: ResourceClaim) -> Change:
    """The claim without our finalizer, if it is as we know it."""
    ours = DELETE_PROTECTION_FINALIZER.encode()

    def drop(finalizer: bytes) -> bytes | None:
        return None if finalizer == ours else finalizer

    return _changing_metadata(claim, lambda metadata: change_field(metadata, FINALIZERS, drop))


def adding_consumers(
    claim: ResourceClaim, added: Sequence[ResourceClaimConsumerReference]
) -> Change:
    """The claim with more consumers, if it is as we know it."""
    entries = b"".join(encode_field(RESERVED_FOR, _encoded(each)) for each in added)
    known = _changing_metadata(claim, lambda metadata: metadata)
    return lambda message: change_field(known(message), STATUS, lambda status: status + entries)


def removing_consumers(claim: ResourceClaim, uids: Set[str]) -> Change:
    """The claim without the consumers with these uids, if it is as we know it."""
    leaving = {uid.encode() for uid in uids}

    def drop(consumer: bytes) -> bytes | None:
        return None if leaving.intersection(values(consumer, CONSUMER_UID)) else consumer

    known = _changing_metadata(claim, lambda metadata: metadata)
    return lambda message: change_field(
        known(message), STATUS, lambda status: change_field(status, RESERVED_FOR, drop)
    )


def annotating(claim: ResourceClaim, key: str, value: str) -> Change:
    """The claim with an annotation, if it is as we know it."""
    entry = encode_field(KEY, key.encode()) + encode_field(VALUE, value.encode())

    def drop(annotation: bytes) -> bytes | None:
        return None if key.encode() in values(annotation, KEY) else annotation

    def annotate(metadata: bytes) -> bytes:
        return change_field(metadata, ANNOTATIONS, drop) + encode_field(ANNOTATIONS, entry)

    return _changing_metadata(claim, annotate)


async def send_patch(access: ApiAccess, claim: ClaimRef, patch: ClaimPatch) -> ResourceClaim:
    """Patch the claim, exactly where that is needed; raises ApiError."""
    try:
        return await access.call(
            lambda: access.client.patch(
                access.claims,
                claim.name,
                patch.body,
                namespace=claim.namespace,
                subresource=patch.subresource,
                patch_type=patch.patch_type,
            )
        )
    except Invalid as error:
        if patch.change is None or not _is_reencoded(error):
            raise
        return await _write_exactly(access, claim, patch.subresource, patch.change, error)


def reencoding_hint(error: ApiError) -> str:
    """What to do where a claim can't be patched because of its parameters, else ""."""
    if not _is_reencoded(error):
        return ""
    return (
        "; the server rewrites opaque parameters that are not written as Go writes them: make the "
        "claim, or its template, from JSON without blanks and with & < > as \\u0026 \\u003c \\u003e"
    )


async def _write_exactly(
    access: ApiAccess, claim: ClaimRef, subresource: str, change: Change, refusal: Invalid
) -> ResourceClaim:
    path = access.claims.object(claim.name, claim.namespace)
    body = await access.call(
        lambda: access.client.read(path, kind=access.claims.kind.name, accept=PROTOBUF)
    )
    try:
        changed = change_object(body, change)
    except ProtobufError:
        # The server, or a proxy in front of it, speaks only JSON.
        raise refusal from None
    return await access.call(
        lambda: access.client.replace(
            access.claims,
            claim.name,
            changed,
            namespace=claim.namespace,
            subresource=subresource,
            content_type=PROTOBUF,
        )
    )


def _is_reencoded(error: ApiError) -> bool:
    """Whether a patch was refused because of a field that it leaves alone."""
    return isinstance(error, Invalid) and any(
        cause.field in IMMUTABLE_FIELDS for cause in error.causes
    )


def _changing_metadata(claim: ResourceClaim, change: Change) -> Change:
    """A change of the metadata that the server refuses unless the claim is as we know it."""
    uid, version = claim.metadata.uid.encode(), claim.metadata.resource_version.encode()

    def change_metadata(metadata: bytes) -> bytes:
        pinned = change_field(metadata, UID, lambda _: uid)
        return change(change_field(pinned, RESOURCE_VERSION, lambda _: version))

    return lambda message: change_field(message, METADATA, change_metadata)


def _encoded(consumer: ResourceClaimConsumerReference) -> bytes:
    fields = (
        (API_GROUP, consumer.api_group),
        (RESOURCE, consumer.resource),
        (NAME, consumer.name),
        (CONSUMER_UID, consumer.uid),
    )
    return b"".join(encode_field(number, text.encode()) for number, text in fields)
