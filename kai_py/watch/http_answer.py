"""An HTTP/1.1 answer, read from the bytes of a connection as they arrive.

``httptools`` (the parser of Node.js) reads them. It accepts some answers whose end is in doubt;
these are errors here, as such a connection must not be used again.

Source: RFC 9112, sections 2 to 7.
"""

import math
import zlib
from collections.abc import Mapping

import httptools
from msgspec import Struct

MAX_HEAD_BYTES = 256 * 1024
"""The longest status line with headers, size of a chunk, or trailer after the last chunk."""
CLOSED = "the server closed the connection"


class AnswerError(ConnectionError):
    """The bytes received are no HTTP answer, or only a part of one."""


class Answer(Struct, frozen=True):
    """A whole answer; names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps_connection: bool
    """Whether another request may be sent on the connection."""


class AnswerReader:
    """Reads one answer; ``feed`` returns it with the bytes that complete it."""

    def __init__(self, max_bytes: float = math.inf) -> None:
        """``max_bytes``: the longest body, also once it is decompressed."""
        self._max_bytes = max_bytes
        self._length = 0
        self.has_begun = False
        """Whether the server has answered at all."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._status = 0
        self._since_body = 0
        self._doubt = ""
        self._is_complete = self._keeps_connection = False

    def feed(self, data: bytes) -> Answer | None:
        """Take the next bytes; raises AnswerError."""
        self.has_begun = True
        self._since_body += len(data)
        try:
            self._parser.feed_data(data)
        # The parser accepts a change of protocol (101), but no request asks for one.
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._is_complete:
                line, _, _ = data.partition(b"\r\n")
                raise AnswerError(f"no HTTP answer: {line[:80]!r}") from error
            # Bytes after the answer belong to no request.
            self._keeps_connection = False
        if self._doubt:
            raise AnswerError(self._doubt)
        if self._is_complete:
            # The parser refers to this object: a cycle would have to wait for garbage collection.
            del self._parser
            return self._answer()
        if self._since_body > MAX_HEAD_BYTES:
            raise AnswerError("the headers of the answer are too long")
        return None

    def end(self) -> Answer:
        """The answer that ends with the connection; raises AnswerError."""
        if self._status and not {"transfer-encoding", "content-length"} & self._headers.keys():
            return self._answer()
        raise AnswerError(CLOSED)

    def _answer(self) -> Answer:
        body, headers = b"".join(self._parts), self._headers
        if headers.get("content-encoding", "identity").lower() == "gzip":
            body = _unzipped(body, self._max_bytes)
        return Answer(self._status, headers, body, self._keeps_connection)

    def on_message_begin(self) -> None:
        """Called by the parser where an answer begins."""
        if self._is_complete:
            self._keeps_connection = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser with a header, also with one that follows the last chunk."""
        if self._is_complete or self._status:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        # Joined like a list of values: any other header, such as a length, may come only once.
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """Called by the parser after the headers."""
        if self._is_complete:
            return
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        encoding = self._headers.get("transfer-encoding", "chunked")
        if version not in ("1.0", "1.1"):
            self._doubt = f"an answer in HTTP/{version}"
        elif encoding.lower() != "chunked":
            self._doubt = f"an answer of Transfer-Encoding {encoding}"
        elif status >= 200:
            self._status, self._since_body = status, 0
            self._keeps_connection = version == "1.1" and self._parser.should_keep_alive()
        else:
            # Something like 103 Early Hints: the answer is still to come.
            self._headers = {}

    def on_body(self, data: bytes) -> None:
        """Called by the parser with a part of the body."""
        self._since_body = 0
        if not self._is_complete:
            self._length += len(data)
            self._parts.append(data)
            if self._length > self._max_bytes:
                self._doubt = _too_long(self._max_bytes)

    def on_message_complete(self) -> None:
        """Called by the parser at the end of an answer."""
        if self._status:
            self._is_complete = True


def _too_long(most: float) -> str:
    return f"the answer is longer than {most / 2**20:.0f} MiB"


def _unzipped(body: bytes, most: float) -> bytes:
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        # 0 means no limit.
        unzipped = reader.decompress(body, 0 if math.isinf(most) else int(most) + 1)
    except zlib.error as error:
        raise AnswerError(f"an answer that can't be decompressed: {error}") from error
    if len(unzipped) > most:
        raise AnswerError(_too_long(most))
    if not reader.eof:
        raise AnswerError("an answer that can't be decompressed: it is not complete")
    return unzipped
