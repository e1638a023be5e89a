"""Connections for calls against a server that says when it answers and when it hangs up."""

import asyncio
import ssl
import subprocess
from contextlib import asynccontextmanager, suppress

import pytest

from kai_py.watch import connections
from kai_py.watch.connections import (
    CannotConnectError,
    ConnectionClosedError,
    Connections,
    Endpoint,
    connect_failure,
)
from kai_py.watch.credentials import Anonymous, ServerAccess
from kai_py.watch.errors import CredentialsError, InvalidName, TimedOut, Unreachable
from kai_py.watch.http_answer import AnswerError
from kai_py.watch.http_transport import connect
from kai_py.watch.transport import ApiCall
from tests.support.patience import patience
from tests.support.records import replace

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Server:
    """Answers requests with what ``answer`` makes of their number; hangs up where that is None."""

    def __init__(self, answer):
        self.answer = answer
        self.hangs_up = False
        self.connections = 0
        self.requests = []
        self.ended = asyncio.Event()

    async def serve(self, reader, writer):
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                answer = self.answer(len(self.requests))
                answer = await answer if asyncio.iscoroutine(answer) else answer
                if answer is None:
                    break
                writer.write(answer)
                if self.hangs_up:
                    break
        self.ended.set()
        writer.close()


@asynccontextmanager
async def serving(answer, *, tls=None):
    scripted = Server(answer)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0, ssl=tls)
    scripted.port = server.sockets[0].getsockname()[1]
    scripted.endpoint = Endpoint("127.0.0.1", scripted.port)
    scripted.calls = Connections(4)
    try:
        yield scripted
    finally:
        await scripted.calls.close()
        server.close()


def numbered(number):
    return OK + b"%02d" % number


async def exchange(server, *, repeatable=True, endpoint=None):
    to = endpoint or server.endpoint
    return (await server.calls.exchange(to, REQUEST, repeatable=repeatable)).body


async def test_a_connection_is_used_again():
    async with serving(numbered) as server:
        assert [await exchange(server) for _ in range(3)] == [b"01", b"02", b"03"]
        assert server.connections == 1


async def test_so_many_connections_are_open_at_once_as_are_allowed():
    async def slowly(number):
        await asyncio.sleep(0.02)
        return numbered(number)

    async with serving(slowly) as server:
        bodies = await asyncio.gather(*(exchange(server) for _ in range(20)))
        assert sorted(bodies) == [b"%02d" % number for number in range(1, 21)]
        assert server.connections == 4


async def test_a_read_is_sent_again_where_the_server_had_hung_up():
    async with serving(lambda number: None if number == 2 else numbered(number)) as server:
        assert [await exchange(server) for _ in range(2)] == [b"01", b"03"]
        assert server.connections == 2


async def test_a_write_is_not_sent_again():
    async with serving(lambda number: None if number == 2 else numbered(number)) as server:
        await exchange(server)
        with pytest.raises(ConnectionClosedError, match="closed the connection"):
            await exchange(server, repeatable=False)
        assert len(server.requests) == 2
        assert await exchange(server, repeatable=False) == b"03"


async def test_a_read_is_sent_only_once_on_a_new_connection():
    async with serving(lambda _: None) as server:
        with pytest.raises(ConnectionClosedError):
            await exchange(server)
        assert len(server.requests) == 1


async def test_the_answer_to_a_call_that_was_given_up_reaches_no_other():
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def late(number):
        asked.set()
        if number == 1:
            await given_up.wait()
        return numbered(number)

    async with serving(late) as server:
        call = asyncio.create_task(exchange(server))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await exchange(server) == b"02"
        given_up.set()
        await asyncio.wait_for(server.ended.wait(), patience(5))
        assert await exchange(server) == b"03"
        assert server.connections == 2


async def test_an_answer_without_a_request_ends_the_connection():
    async with serving(lambda number: numbered(number) * 2) as server:
        assert [await exchange(server) for _ in range(2)] == [b"01", b"02"]
        assert server.connections == 2


async def test_an_answer_that_is_cut_off_is_none():
    async with serving(lambda _: OK + b"0") as server:
        server.hangs_up = True
        with pytest.raises(AnswerError, match="closed the connection"):
            await exchange(server)
        assert len(server.requests) == 1


async def test_an_answer_without_end_takes_no_memory_without_end():
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2**20

    call = ApiCall("get", "X", "/x", max_bytes=2.0**19)
    async with serving(lambda _: endless) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with connect(Anonymous(url)) as client:
            with pytest.raises(Unreachable, match="the answer is longer than"):
                await client.transport.send(call)
            server.hangs_up = True
            whole = await client.transport.send(replace(call, verb="list"))
            assert len(whole) == 2**20


async def test_an_answer_that_cannot_be_read_ends_only_its_call(monkeypatch):
    def fail(reader, _data):
        reader.has_begun = True
        raise MemoryError("an answer without end")

    async with serving(numbered) as server:
        with monkeypatch.context() as broken:
            broken.setattr(connections.AnswerReader, "feed", fail)
            with pytest.raises(AnswerError, match="an answer without end"):
                await exchange(server)
        assert await exchange(server) == b"02"


async def test_an_idle_connection_is_dropped_after_a_while(monkeypatch):
    async with serving(numbered) as server:
        await exchange(server)
        monkeypatch.setattr(connections, "IDLE_SECONDS", 0.0)
        await exchange(server)
        assert server.connections == 2


async def test_a_connection_serves_its_endpoint_only():
    async with serving(numbered) as server:
        await exchange(server)
        await exchange(server, endpoint=Endpoint("localhost", server.port))
        assert server.connections == 2


async def test_a_server_that_is_not_there_is_named():
    calls = Connections(1)
    with pytest.raises(CannotConnectError, match=r"^cannot connect to 127.0.0.1:1: Connection ref"):
        await calls.exchange(Endpoint("127.0.0.1", 1), REQUEST, repeatable=True)
    with pytest.raises(CannotConnectError, match=r"^cannot connect to nowhere.invalid:1: "):
        await calls.exchange(Endpoint("nowhere.invalid", 1), REQUEST, repeatable=True)


async def test_an_address_of_ipv6_is_written_in_brackets():
    with pytest.raises(CannotConnectError, match=r"^cannot connect to \[::1\]:1: "):
        await Connections(1).exchange(Endpoint("::1", 1), REQUEST, repeatable=True)


@pytest.mark.parametrize(
    "server",
    [
        "https://a:99999",
        "http://a:b",
        "http://a..b",
        f"http://{'a' * 64}",
        "https:///x",
        "http://[z]",
        "ftp://a:1",
    ],
)
async def test_what_is_no_address_is_told(server):
    async with connect(Anonymous(server)) as client:
        with pytest.raises(CredentialsError, match="is not the address of a server: "):
            await client.read("/version", kind="Version")


def untrusted(message=""):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = message
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (untrusted("it has expired"), "cannot trust the certificate of api: it has expired"),
        (untrusted(), f"cannot trust the certificate of api: {untrusted()}"),
        (ConnectionRefusedError(111, "Connect call failed"), "cannot connect to api: Connection"),
        (OSError(-2, "Name or service not known"), "cannot connect to api: Name or service"),
        (OSError("odd"), "cannot connect to api: odd"),
        (ValueError("no port"), "cannot connect to api: no port"),
    ],
)
def test_why_there_is_no_connection_is_told_in_the_systems_words(error, text):
    assert connect_failure("api", error).startswith(text)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The files of a certificate for the name ``api`` and its key."""
    directory = tmp_path_factory.mktemp("certificate")
    files = directory / "tls.crt", directory / "tls.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=api", "-addext", "subjectAltName=DNS:api"]
    output = ["-out", files[0], "-keyout", files[1]]
    subprocess.run([*command.split(), *names, *output], check=True, capture_output=True)
    return files


async def test_the_certificate_must_have_the_name(certificate):
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(*certificate)
    trust = ssl.create_default_context(cafile=certificate[0])
    async with serving(numbered, tls=own) as server:
        named = Endpoint("127.0.0.1", server.port, trust, "api")
        assert [await exchange(server, endpoint=named) for _ in range(2)] == [b"01", b"02"]
        assert server.connections == 1
        for endpoint in (named._replace(server_name=""), named._replace(tls=True)):
            with pytest.raises(CannotConnectError, match=r"cannot trust the certificate of 127"):
                await exchange(server, endpoint=endpoint)


async def test_errors_are_those_of_the_client():
    async with serving(lambda _: None) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with connect(Anonymous(url)) as client:
            with pytest.raises(Unreachable, match="GET /version: the server closed the connection"):
                await client.read("/version", kind="Version")
    async with serving(lambda _: b"no HTTP\r\n\r\n") as server:
        url = f"http://127.0.0.1:{server.port}"
        async with connect(Anonymous(url)) as client:
            with pytest.raises(Unreachable, match="GET /version: no HTTP answer: b'no HTTP'"):
                await client.read("/version", kind="Version")
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with serving(lambda _: upgrade) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with connect(Anonymous(url)) as client:
            with pytest.raises(Unreachable, match=r"GET /version: no HTTP answer: b'HTTP/1\.1 101"):
                await client.read("/version", kind="Version")
    async with serving(lambda _: asyncio.sleep(3)) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with connect(Anonymous(url), timeout_seconds=0.05) as client:
            with pytest.raises(TimedOut):
                await client.read("/version", kind="Version")


class Fixed:
    """Credentials that never change."""

    def __init__(self, access):
        self.access = access

    def load(self):
        return self.access

    renew = load


async def test_a_server_behind_a_path_and_with_a_token():
    async with serving(numbered) as server:
        url = f"http://127.0.0.1:{server.port}/clusters/one"
        async with connect(Fixed(ServerAccess(url, "Bearer me"))) as client:
            await client.read("/version", kind="Version")
        first, *headers = server.requests[0].decode().split("\r\n")
        assert first == "GET /clusters/one/version HTTP/1.1"
        assert {f"Host: 127.0.0.1:{server.port}", "Authorization: Bearer me"} <= set(headers)


@pytest.mark.parametrize("text", ["a b", "a\r\nHost: b", "a\n", "ä"])
async def test_nothing_can_be_written_into_a_request(text):
    async with serving(numbered) as server:
        url = f"http://127.0.0.1:{server.port}"
        for access, call in (
            (ServerAccess(url), ApiCall("get", "X", f"/{text}")),
            (ServerAccess(url, f"Bearer ä{text}\r\n"), ApiCall("get", "X", "/")),
            (ServerAccess(url), ApiCall("get", "X", "/", accept=f"ä{text}\r\n")),
        ):
            async with connect(Fixed(access)) as client:
                with pytest.raises(InvalidName):
                    await client.transport.send(call)
        parameters = ApiCall("get", "X", "/", {"q": text})
        async with connect(Anonymous(url)) as client:
            await client.transport.send(parameters)
        assert len(server.requests) == 1


async def test_calls_go_through_a_proxy():
    async with serving(numbered) as server:
        access = ServerAccess("http://api.invalid", proxy=f"http://127.0.0.1:{server.port}")
        async with connect(Fixed(access)) as client:
            assert await client.read("/version", kind="Version") == b"01"
        assert server.requests[0].startswith(b"GET http://api.invalid/version HTTP/1.1\r\n")
