"""Single fields of protobuf messages are changed; every other byte stays."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.watch.protobuf import (
    MAGIC,
    ProtobufError,
    change_field,
    change_object,
    encode_field,
    values,
)

VARINT, FIXED64, FIXED32 = b"\x08\xff\xff\x03", b"\x11" + bytes(8), b"\x1d" + bytes(4)
"""Fields 1, 2 and 3 of the wire types whose content is never changed."""

contents = st.binary(max_size=300)
numbers = st.integers(4, 5000)
fields = st.one_of(
    st.sampled_from([VARINT, FIXED64, FIXED32]), st.builds(encode_field, numbers, contents)
)
messages = st.lists(fields, max_size=8).map(b"".join)


@given(messages, numbers)
def test_a_message_that_is_not_changed_keeps_its_bytes(message, number):
    assert change_field(message, number, lambda content: content) == message


@given(messages, messages, numbers, contents, contents)
def test_only_the_field_changes(before, after, number, old, new):
    others = (
        change_field(before, number, lambda _: None),
        change_field(after, number, lambda _: None),
    )
    message = others[0] + encode_field(number, old) + others[1]
    assert values(message, number) == [old]
    changed = change_field(message, number, lambda content: new if content == old else content)
    assert changed == others[0] + encode_field(number, new) + others[1]


@pytest.mark.parametrize("power", [7, 14])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_number_has_one_byte_per_seven_bits(power, more):
    content = bytes(2**power + more)
    field = encode_field(5, content)
    assert len(field) == 1 + (power // 7 + (more >= 0)) + len(content)
    assert values(field, 5) == [content]


@given(messages, numbers, contents)
def test_a_field_that_is_removed_is_gone(message, number, content):
    longer = message + encode_field(number, content)
    assert values(change_field(longer, number, lambda _: None), number) == []


@given(messages)
def test_the_message_of_an_object_changes_and_its_type_does_not(message):
    kind = encode_field(1, b"v1 Pod")
    body = MAGIC + kind + encode_field(2, message)
    changed = change_object(body, lambda known: known + VARINT)
    assert changed == MAGIC + kind + encode_field(2, message + VARINT)


@pytest.mark.parametrize(
    "body", [b'{"kind":"Pod"}', b"", MAGIC + b"\x12\x7f", MAGIC + b"\xff" * 20]
)
def test_what_is_no_object_is_refused(body):
    with pytest.raises(ProtobufError):
        change_object(body, lambda message: message)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_to_their_end_or_refused(junk):
    with contextlib.suppress(ProtobufError):
        assert change_field(junk, 1, lambda content: content) is not None
