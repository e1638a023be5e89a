"""Objects in the query of a request: what a what-if question adds to the simulated cluster.

Compressed JSON in base64, since a query is short. What is sent is bounded before it is looked at,
and so are the pods that it stands for: they are simulated beside the scheduler.
"""

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

MAX_TEXT = 6_000
MAX_BYTES = 1 << 18
MAX_PODS = 4_096
COUNTS = {
    "Pod": (),
    "Job": ("parallelism", "completions"),
    "Deployment": ("replicas",),
    "ReplicaSet": ("replicas",),
    "StatefulSet": ("replicas",),
    "ResourceClaim": (),
    "ResourceClaimTemplate": (),
}
"""The kinds that may be sent, and the fields that say how many pods they have."""


def encode_objects(documents: Sequence[dict[str, Any]]) -> str:
    """The text for the query; raises ValueError where it is too long for one."""
    text = base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(documents), 9)).decode()
    if len(text) > MAX_TEXT:
        raise ValueError("the objects are too large to be sent in a request")
    _check(documents)
    return text


def decode_objects(text: str) -> list[dict[str, Any]]:
    """The objects of a query; raises ValueError for anything else than bounded objects."""
    try:
        packed = base64.urlsafe_b64decode(text[: MAX_TEXT + 1])
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(packed, MAX_BYTES)
        documents = msgspec.json.decode(body, type=list[dict[str, Any]])
    except (binascii.Error, zlib.error, msgspec.DecodeError, RecursionError):
        raise ValueError("they are not compressed JSON objects in base64") from None
    if len(text) > MAX_TEXT or unpacking.unconsumed_tail:
        raise ValueError("they are too large")
    _check(documents)
    return documents


def _check(documents: Sequence[dict[str, Any]]) -> None:
    pods = 0
    for each in documents:
        kind, meta, spec = each.get("kind"), each.get("metadata"), each.get("spec")
        if not isinstance(kind, str) or kind not in COUNTS:
            raise ValueError(f"only these kinds can be sent: {', '.join(COUNTS)}")
        is_named = isinstance(meta, dict) and all(
            isinstance(meta.get(field), str) and meta[field] for field in ("name", "namespace")
        )
        if (
            not is_named
            or not isinstance(spec, dict)
            or not isinstance(each.get("apiVersion"), str)
        ):
            raise ValueError(
                f"{kind}: apiVersion, metadata.name, metadata.namespace or spec is missing"
            )
        counts = [spec.get(field, 1) for field in COUNTS[kind]] or [1]
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError(f"{kind}: {', '.join(COUNTS[kind])} must be whole numbers")
        pods += max(counts)
    if pods > MAX_PODS:
        raise ValueError(f"they have {pods} pods, more than {MAX_PODS}")
