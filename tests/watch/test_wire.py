import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.watch.wire import LineSplitter, decode_envelope, decode_event, decode_page, flattened


@given(
    lines=st.lists(
        st.binary(min_size=1, max_size=8).filter(lambda x: x.strip() and b"\n" not in x)
    ),
    rest=st.binary(max_size=3).filter(lambda x: b"\n" not in x),
    cuts=st.lists(st.integers(0, 60)),
)
def test_lines_are_the_same_however_they_are_cut(lines, rest, cuts):
    stream = b"".join(line + b"\n" for line in lines) + rest
    marks = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    splitter = LineSplitter()
    found = []
    for start, end in itertools.pairwise(marks):
        found += splitter.feed(stream[start:end])
    assert found == lines


def test_one_line_in_many_chunks_takes_linear_time():
    splitter = LineSplitter()
    chunk = b"x" * 1000
    for _ in range(50_000):
        assert not splitter.feed(chunk)
    assert [len(line) for line in splitter.feed(b"\n")] == [50_000_000]


def test_empty_lines_are_left_out():
    assert LineSplitter().feed(b"\n\r\na\n\n") == [b"a"]


@pytest.mark.parametrize("depth", [100, 199, 250, 5000, 9990])
@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_deep_json_is_read_without_what_is_too_deep(depth, brackets):
    opening, closing = (brackets[:1], brackets[1:]) if brackets == "[]" else ('{"a":', "}")
    nested = opening * depth + "1" + closing * depth
    line = (
        f'{{"type":"ADDED","object":{{"metadata":{{"name":"x\\"[{{"}},"spec":{nested}}}}}'.encode()
    )
    event = decode_event(line)
    assert decode_envelope(event.object).metadata.name == 'x"[{'
    page = decode_page(b'{"metadata":{"resourceVersion":"7"},"items":[' + line + b"]}")
    assert page.metadata.resource_version == "7"
    assert len(page.items) == 1


@given(st.recursive(st.none() | st.text() | st.integers(), lambda e: st.lists(e, max_size=3)))
def test_shallow_json_is_not_changed(value):
    body = msgspec.json.encode(value)
    assert flattened(body) == body
