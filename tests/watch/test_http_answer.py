"""Answers cut into pieces anywhere are the answers that were sent, and nothing else is one."""

import gzip
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.watch.http_answer import MAX_HEAD_BYTES, AnswerError, AnswerReader

LENGTH, CHUNKS, END = "length", "chunks", "end of the connection"


def chunked(body, sizes):
    """``body`` in chunks of these sizes, the rest in the last one."""
    chunks, at = [], 0
    for size in (*sizes, len(body)):
        part = body[at : at + size]
        at += len(part)
        chunks += [b"%x;name=value\r\n%s\r\n" % (len(part), part)] if part else []
    return b"".join(chunks) + b"0\r\n\r\n"


def sent(status, body, framing, sizes=()):
    head = b"HTTP/1.1 %d Some Reason\r\nContent-Type:  application/json \r\n" % status
    match framing:
        case "length":
            return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)
        case "chunks":
            return head + b"TRANSFER-ENCODING: chunked\r\n\r\n" + chunked(body, sizes)
    return head + b"\r\n" + body


def read(data, cuts=(), *, ends=False, max_bytes=math.inf):
    """What a reader makes of ``data`` that comes in pieces; None if it is not complete."""
    reader, answer = AnswerReader(max_bytes), None
    borders = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in pairwise(borders):
        answer = reader.feed(data[begin:end])
        assert answer is None or end == len(data)
    return reader.end() if ends else answer


@given(
    status=st.sampled_from([200, 201, 404, 409, 500]),
    body=st.binary(max_size=300),
    framing=st.sampled_from([LENGTH, CHUNKS, END]),
    sizes=st.lists(st.integers(1, 90), max_size=5),
    cuts=st.lists(st.integers(0, 1000), max_size=30),
    early=st.booleans(),
)
def test_an_answer_is_read_however_it_is_cut(status, body, framing, sizes, cuts, early):
    data = sent(status, body, framing, sizes)
    if early:
        data = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + data
    answer = read(data, cuts, ends=framing == END)
    assert answer is not None
    assert (answer.status, answer.body) == (status, body)
    assert answer.headers["content-type"] == "application/json"
    assert answer.keeps_connection == (framing != END)


@given(data=st.binary(max_size=60), body=st.binary(max_size=20), cuts=st.lists(st.integers(0, 99)))
def test_whatever_comes_is_an_answer_or_an_error(data, body, cuts):
    for beginning in (b"", b"HTTP/1.1 200 OK\r\n", sent(200, body, CHUNKS)[:-6]):
        try:
            read(beginning + data, cuts, ends=True)
        except (AnswerError, AssertionError):
            continue


@pytest.mark.parametrize("framing", [LENGTH, CHUNKS])
def test_half_an_answer_is_none(framing):
    data = sent(200, b"x" * 40, framing, [10])
    for end in range(len(data)):
        assert read(data[:end]) is None
        with pytest.raises(AnswerError, match="closed the connection"):
            read(data[:end], ends=True)


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/2 200 OK",
        "HTTP/1.1 2000 OK",
        "SSH-2.0-OpenSSH",
        "HTTP/1.1 200 OK\r\nContent-Length: -1",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        "HTTP/1.1 200 OK\r\nContent-Length : 5",
        "HTTP/1.1 200 OK\r\n folded",
        "HTTP/1.1 200 OK\r\nno colon",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c",
    ],
)
def test_what_leaves_doubt_about_the_length_is_an_error(head):
    with pytest.raises(AnswerError):
        read(head.encode() + b"\r\n\r\n12345")


@pytest.mark.parametrize("chunks", ["x\r\n", "-1\r\n", "\r\n", "2\r\nabcd\r\n"])
def test_chunks_that_are_none_are_an_error(chunks):
    with pytest.raises(AnswerError):
        read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks.encode())


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\n", sent(200, b"", CHUNKS)[:-5]])
def test_headers_without_end_are_an_error(beginning):
    with pytest.raises(AnswerError):
        read(beginning + b"x" * (MAX_HEAD_BYTES + 1))


def test_a_connection_is_not_used_again_after_its_last_answer():
    closing = b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n"
    old = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"
    for data in (closing, old, sent(200, b"{}", LENGTH) + b"HTTP/1.1 200 OK"):
        assert not read(data).keeps_connection


def test_answers_without_content_are_complete_with_their_headers():
    assert read(b"HTTP/1.1 204 No Content\r\n\r\n").keeps_connection


def test_a_compressed_body_is_decompressed():
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: "
    body = gzip.compress(b"items" * 100)
    assert read(b"%s%d\r\n\r\n%s" % (head, len(body), body)).body == b"items" * 100
    with pytest.raises(AnswerError, match="decompressed"):
        read(head + b"3\r\n\r\nabc")


@pytest.mark.parametrize("framing", [LENGTH, CHUNKS, END])
def test_a_body_that_is_too_long_is_not_read_to_its_end(framing):
    body, ends = b"x" * 3 * 2**20, framing == END
    data = sent(200, body, framing, [1000] * 1000)
    assert read(data, ends=ends, max_bytes=len(body)).body == body
    with pytest.raises(AnswerError, match="longer than 2 MiB"):
        read(data[: 2**21 + 100_000], max_bytes=2**21)


def test_a_body_that_is_too_long_once_decompressed_is_an_error():
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: "
    body = gzip.compress(b"x" * 2**20)
    data = b"%s%d\r\n\r\n%s" % (head, len(body), body)
    assert len(read(data, max_bytes=2**20).body) == 2**20
    for broken, most, reason in ((data, 2**19, "longer"), (data[:-9] + b"x" * 9, 2**21, "decomp")):
        with pytest.raises(AnswerError, match=reason):
            read(broken, max_bytes=most)
    cut = b"%s%d\r\n\r\n%s" % (head, len(body) - 9, body[:-9])
    with pytest.raises(AnswerError, match="decompressed: it is not complete"):
        read(cut, max_bytes=2**21)
