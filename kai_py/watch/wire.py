"""Wire format of lists and watches.

Objects stay raw bytes here, so that one object which cannot be decoded does not spoil the page or
the stream it came in. A watch stream is one JSON event a line; a line can be megabytes long, so
lines are cut out of the chunks as they arrive, in linear time. A line without its newline is the
remainder of a broken connection and is dropped.

Source: metav1.ListMeta, metav1.WatchEvent; "Efficient detection of changes" in the API concepts.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from kai_py.api.records.unstructured import MAX_NESTING
from kai_py.watch.errors import Malformed

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Decoded = TypeVar("Decoded")


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.ListMeta; ``continue_token`` is empty on the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


class RawWatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class ObjectIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that can be read of objects whose other fields are broken."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Envelope(msgspec.Struct, frozen=True):
    """Any object, reduced to its identity."""

    metadata: ObjectIdentity = ObjectIdentity()


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_page = msgspec.json.Decoder(ListPage).decode
_decode_event = msgspec.json.Decoder(RawWatchEvent).decode
_decode_envelope = msgspec.json.Decoder(Envelope).decode


def decode_nested(
    decode: Callable[[bytes | msgspec.Raw], Decoded], body: bytes | msgspec.Raw
) -> Decoded:
    """What ``decode`` makes of JSON of any depth; raises ValueError.

    How deep a decoder can go depends on the calls around it, so every decoding of what a tenant may
    have written needs this one, also of what was decoded before as a part of something else.
    """
    try:
        return decode(body)
    except RecursionError:
        return decode(flattened(bytes(body)))


def decode_page(body: bytes, call: object) -> ListPage:
    """A page of a list, the answer to ``call``; raises Malformed."""
    try:
        page = decode_nested(_decode_page, body)
    except ValueError as error:
        raise Malformed(f"{call}: {error}") from error
    # Any JSON object would pass for an empty list, which would prove that no object exists.
    if not page.metadata.resource_version:
        raise Malformed(f"{call}: a list without a resourceVersion")
    return page


def decode_kind(body: bytes | msgspec.Raw) -> str:
    """The kind of an answer, "" if it names none; raises ValueError."""
    return decode_nested(_decode_kind, body).kind


def decode_event(line: bytes) -> RawWatchEvent:
    """An event of a watch; raises ValueError."""
    return decode_nested(_decode_event, line)


def decode_envelope(body: bytes | msgspec.Raw) -> Envelope:
    """The identity of any object; raises ValueError."""
    return decode_nested(_decode_envelope, body)


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def flattened(body: bytes) -> bytes:
    """JSON with null in place of what is nested more than ``MAX_NESTING`` deep. Linear."""
    kept: list[bytes] = []
    depth, start = 0, 0
    for token in _TOKENS.finditer(body):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == MAX_NESTING + 1:
                    kept.append(body[start : token.start()])
            case b"]" | b"}":
                depth -= 1
                if depth == MAX_NESTING:
                    kept.append(b"null")
                    start = token.end()
    kept.append(body[start:])
    return b"".join(kept)


def without_nulls(value: Any, *, raw_field: str | None = None) -> Any:
    """JSON without null fields and items, which mean the same as absent ones.

    ``raw_field``: the name of fields whose content is of no type, and kept as it is.
    """
    if isinstance(value, dict):
        return {
            key: each if key == raw_field else without_nulls(each, raw_field=raw_field)
            for key, each in value.items()
            if each is not None
        }
    if isinstance(value, list):
        return [without_nulls(each, raw_field=raw_field) for each in value if each is not None]
    return value


MAX_OBJECT_BYTES = 64 * 2**20
"""The largest answer or event with one object: many times what etcd stores of an object."""


class LineSplitter:
    """Splits a stream of chunks into lines, without their newlines; empty lines are dropped."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next chunk and return the lines that it completes.

        Raises ValueError for a line without end.
        """
        end = chunk.rfind(b"\n")
        if end < 0:
            self._pending.append(chunk)
            self._length += len(chunk)
            if self._length > MAX_OBJECT_BYTES:
                raise ValueError(f"a line is longer than {MAX_OBJECT_BYTES >> 20} MiB")
            return []
        complete = b"".join((*self._pending, chunk[:end]))
        self._pending, self._length = [chunk[end + 1 :]], len(chunk) - end - 1
        return [line for line in complete.split(b"\n") if line.strip()]
