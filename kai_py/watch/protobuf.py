"""Changes of single fields of an object in the API's protobuf form; everything else stays as it is.

JSON cannot carry an object unchanged: the server rewrites the raw bytes of a RawExtension (such as
the opaque parameters of a claim) whenever it encodes or patches JSON, without blanks and with
``&``, ``<`` and ``>`` escaped, and then takes the object for another. In protobuf they are plain
bytes.

An object is ``k8s\\0`` and a ``runtime.Unknown``, whose field 2 is the message. Only the structure
of messages is read here: numbers, wire types and lengths. Sources: Protocol Buffers, "Encoding";
API concepts, "Kubernetes Protobuf encoding".
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
_RAW = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}

Change = Callable[[bytes], bytes | None]
"""The new content of a field; None removes it."""


class ProtobufError(ValueError):
    """The bytes are no message."""


class _Field(Struct, frozen=True):
    """A field of a message: where it begins and ends, and where its content begins."""

    number: int
    wire_type: int
    begin: int
    content: int
    end: int


def change_object(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """An object with its message changed; raises ProtobufError."""
    if not body.startswith(MAGIC):
        raise ProtobufError("is not an object in Kubernetes' protobuf form")
    return MAGIC + change_field(body.removeprefix(MAGIC), _RAW, change)


def change_field(message: bytes, number: int, change: Change) -> bytes:
    """A message with every field ``number`` (text, bytes or message) changed."""
    parts = []
    for field in _fields(message):
        if field.number != number or field.wire_type != _BYTES:
            parts.append(message[field.begin : field.end])
            continue
        content = change(message[field.content : field.end])
        if content is not None:
            parts.append(encode_field(number, content))
    return b"".join(parts)


def values(message: bytes, number: int) -> list[bytes]:
    """The contents of all fields ``number`` that are text, bytes or messages."""
    return [
        message[field.content : field.end]
        for field in _fields(message)
        if field.number == number and field.wire_type == _BYTES
    ]


def encode_field(number: int, content: bytes) -> bytes:
    """A field of text, bytes or a message."""
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _fields(message: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(message):
        begin = at
        key, at = _read_varint(message, at)
        content, end = _extent(message, at, key & 7)
        if end > len(message):
            raise ProtobufError(f"a field at byte {begin} is cut off")
        yield _Field(key >> 3, key & 7, begin, content, end)
        at = end


def _extent(message: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Where the content of a field begins and ends, after its key."""
    if wire_type == _VARINT:
        return at, _read_varint(message, at)[1]
    if wire_type == _BYTES:
        length, at = _read_varint(message, at)
        return at, at + length
    if wire_type in _FIXED:
        return at, at + _FIXED[wire_type]
    raise ProtobufError(f"unknown wire type {wire_type} at byte {at}")


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    raise ProtobufError(f"a number at byte {at} is cut off")


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
