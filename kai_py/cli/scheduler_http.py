"""Requests to a running scheduler over HTTP: at a URL, or through the API server.

The API server's proxy for Services reaches the scheduler wherever kubectl reaches the cluster. That
proxy removes the header Authorization, so the token of the kubeconfig is sent in a header of the
scheduler's as well, which asks the API server whose it is. The Service is never searched for: a
token must not go to whatever carries a label, only to the namespace that was installed or named.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Protocol, TypeVar
from urllib.parse import quote

import msgspec
import typer
from msgspec import Struct

from kai_py.cli.connection import ClusterOptions, cluster_client
from kai_py.cli.errors import (
    CommandError,
    ExitCode,
    RightsMissingError,
    UnreachableError,
    exit_code_of,
)
from kai_py.cli.input_files import text_of
from kai_py.cli.naming import context_namespace
from kai_py.observe.token_review import OWN_HEADER, TOKEN_VARIABLE
from kai_py.watch.errors import ApiError, NotFound, StatusError
from kai_py.watch.http_transport import HttpTransport
from kai_py.watch.transport import ApiCall
from kai_py.watch.wire import LineSplitter

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_SERVICE = "kai-py/kai-py"
SERVICE_VARIABLE = "KAI_PY_SERVICE"
PORT = "http"
NOT_INSTALLED = f"is the scheduler installed there? ${SERVICE_VARIABLE} or --service names it"
TOKEN_HINT = f"--token-file or ${TOKEN_VARIABLE} give one: kubectl create token NAME"
LOCAL_HINT = f"{TOKEN_HINT}; kai-py run --http 127.0.0.1:8080 asks for none"
READ_SECONDS = 60.0
"""For streams too: the server sends something every 15 seconds."""
SEARCH_SECONDS = 300.0
"""The scheduler answers one such question at a time, each in two minutes at most."""
T = TypeVar("T")

TokenFile = Annotated[
    Path | None, typer.Option(help=f"File with the bearer token; otherwise ${TOKEN_VARIABLE}.")
]
Service = Annotated[
    str,
    typer.Option(
        envvar=SERVICE_VARIABLE,
        help="NAMESPACE/NAME of the scheduler's Service, used without rights to read the cluster.",
    ),
]
Query = tuple[tuple[str, str], ...]


class Link(Protocol):
    """A connection to a running scheduler."""

    async def get(self, path: str, query: Query = ()) -> bytes:
        """The body of one answer; raises CommandError."""

    def lines(self, path: str, query: Query = ()) -> AsyncIterator[bytes]:
        """The lines of an answer as they come; raises CommandError."""


class SchedulerAddress(Struct, frozen=True):
    """Where the scheduler is: at ``url`` if that is given, else a Service of the cluster."""

    url: str = ""
    token_file: Path | None = None
    service: str = DEFAULT_SERVICE
    kubeconfig: str = ""
    context: str = ""

    @asynccontextmanager
    async def connect(self, read_seconds: float = READ_SECONDS) -> AsyncIterator[Link]:
        """Open a link; ``read_seconds``: the longest silence. Raises CommandError."""
        if self.url:
            from kai_py.cli.scheduler_url import url_link  # noqa: PLC0415 - takes long to import

            authorization = _given_authorization(self.token_file)
            headers = {"Authorization": authorization} if authorization else {}
            async with url_link(self.url, headers, read_seconds, LOCAL_HINT) as link:
                yield link
            return
        path = _proxy_path(self.service)
        async with cluster_client(self.kubeconfig, self.context) as client:
            transport = client.transport
            assert isinstance(transport, HttpTransport)
            authorization = _given_authorization(self.token_file) or await transport.authorization()
            if not authorization:
                raise CommandError(
                    "the kubeconfig has no token by which the scheduler could identify you",
                    hint=TOKEN_HINT,
                )
            yield _ProxyLink(transport, path, authorization, read_seconds)


class SchedulerOptions(Struct, frozen=True):
    """The options that name a running scheduler."""

    url: Annotated[
        str, typer.Option(help="URL of a running scheduler to query instead of the cluster.")
    ] = ""
    token_file: TokenFile = None
    service: Service = DEFAULT_SERVICE

    def address(self, cluster: ClusterOptions) -> SchedulerAddress:
        """Where the scheduler of the cluster is."""
        return SchedulerAddress(
            self.url, self.token_file, self.service, cluster.kubeconfig, cluster.context
        )


class SchedulerAnswerError(CommandError):
    """The scheduler was reached, and its answer is that it cannot, or may not, answer."""


def read_or_ask(address: SchedulerAddress, read: Callable[[], T], ask: Callable[[], T]) -> T:
    """Read the cluster, or ask the scheduler if it is named or rights to read are missing."""
    if address.url:
        return ask()
    try:
        return read()
    except RightsMissingError as missing:
        try:
            return ask()
        except SchedulerAnswerError:
            raise
        except CommandError as error:
            raise with_both_reasons(missing, error) from None


def with_both_reasons(missing: RightsMissingError, error: CommandError) -> CommandError:
    """Why the cluster could not be read, nor the scheduler be asked."""
    text = f"{missing}; the scheduler was asked instead: {error}"
    return CommandError(text, exit_code=ExitCode.CLUSTER)


def ask_list(address: SchedulerAddress, kind: str, form: type[T], namespace: str = "") -> T:
    """The list ``kind`` of the scheduler, for a namespace or that of the context first.

    Raises CommandError.
    """
    wanted = namespace or context_namespace(address.kubeconfig, address.context)

    async def ask() -> T:
        async with address.connect() as link:
            return decoded(await link.get(f"/v1/{kind}", (("namespace", wanted),)), form)

    return asyncio.run(ask())


def decoded(body: bytes, form: type[T]) -> T:
    """An answer of the scheduler; raises CommandError."""
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as error:
        raise CommandError(f"the scheduler is of another version: {error}") from None


class _ProxyLink(Struct, frozen=True):
    transport: HttpTransport
    service: str
    authorization: str
    seconds: float

    async def get(self, path: str, query: Query = ()) -> bytes:
        call = self._call(path, query)
        try:
            return await self.transport.send(call, timeout_seconds=self.seconds)
        except ApiError as error:
            raise _refused(call, error) from None

    async def lines(self, path: str, query: Query = ()) -> AsyncIterator[bytes]:
        call, splitter = self._call(path, query), LineSplitter()
        try:
            async with self.transport.stream(call, idle=self.seconds) as chunks:
                async for chunk in chunks:
                    for line in splitter.feed(chunk):
                        yield line
        except ApiError as error:
            raise _refused(call, error) from None

    def _call(self, path: str, query: Query) -> ApiCall:
        text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query)
        return ApiCall(
            "get",
            "Service/proxy",
            f"{self.service}{path}{'?' if text else ''}{text}",
            headers={OWN_HEADER: self.authorization},
            max_bytes=math.inf,
        )


def _refused(call: ApiCall, error: ApiError) -> CommandError:
    # Unlike the Status of an API server, an answer of the scheduler has no reason.
    if isinstance(error, StatusError) and not error.reason:
        text = str(error).removeprefix(f"{call}: {error.code} : ")
        return SchedulerAnswerError(text, exit_code=exit_code_of(error.code))
    kind = CommandError if isinstance(error, StatusError) else UnreachableError
    return kind(
        str(error),
        hint=NOT_INSTALLED if isinstance(error, NotFound) else "",
        exit_code=ExitCode.CLUSTER,
    )


def _proxy_path(service: str) -> str:
    namespace, _, name = service.partition("/")
    if not namespace or not name or "/" in name:
        raise CommandError(f"--service {service}: is not of the form NAMESPACE/NAME")
    return f"/api/v1/namespaces/{quote(namespace)}/services/{quote(name)}:{PORT}/proxy"


def _given_authorization(token_file: Path | None) -> str:
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token_file is not None:
        token = text_of(str(token_file)).strip()
    return f"Bearer {token}" if token else ""
