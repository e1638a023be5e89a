"""Completion of names on the command line: gangs, queues, nodes, namespaces, subjects of explain.

Names are read from the API server, gangs from the scheduler if it answers, else the Jobs stand for
them. A shell waits for the answer, so it takes ``SECONDS`` at most; whatever fails offers nothing.
"""

import asyncio
import contextlib
import io
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec
import typer

from kai_py.api.choices import Subject
from kai_py.cli.connection import cluster_client
from kai_py.cli.naming import SHORT_NAMES, context_namespace, workload_kinds
from kai_py.cli.scheduler_http import DEFAULT_SERVICE, SchedulerAddress
from kai_py.observe.http_lists import GangList
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError

SECONDS = 5.0
ASK_SECONDS = 1.5
MAX_OFFERED = 200
MAX_READ = 2000
QUEUES = ("/apis/scheduling.kai.io/v1alpha1/queues", "/apis/scheduling.run.ai/v2/queues")
NODES, NAMESPACES, JOBS = "/api/v1/nodes", "/api/v1/namespaces", "/apis/batch/v1/jobs"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Objects(msgspec.Struct):
    items: list[_Object] = []


Names = Callable[[typer.Context], Awaitable[Iterable[str]]]


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queues."""
    return _offered(_queues(ctx), incomplete)


def queue_fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """``QUEUE.maxGPUs=`` for every queue."""
    return [f"{name}.maxGPUs=" for name in _offered(_queues(ctx), incomplete.partition(".")[0])]


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of nodes."""
    return _offered(_listed(ctx, NODES), incomplete)


def added_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """``NODE=`` for every node, before a number."""
    return [f"{name}=" for name in _offered(_listed(ctx, NODES), incomplete)]


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of namespaces."""
    return _offered(_listed(ctx, NAMESPACES), incomplete)


def gangs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Keys of gangs, NAMESPACE/KIND/NAME."""
    return _offered(_gangs(ctx), incomplete)


def subjects(ctx: typer.Context, incomplete: str) -> list[str]:
    """Kinds of subjects; with a slash KIND/NAME."""
    kind, slash, name = incomplete.partition("/")
    if not slash:
        known = {*Subject, *workload_kinds()} - {Subject.WORKLOAD}
        return sorted(each for each in known if each.startswith(incomplete))
    return [f"{kind}/{each}" for each in _offered(_of_kind(ctx, kind), name)]


def subject_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the subjects whose kind is on the line already."""
    return _offered(_of_kind(ctx, str(ctx.params.get("kind") or "")), incomplete)


def _offered(names: Awaitable[Iterable[str]], incomplete: str) -> list[str]:
    """The names that begin so; none where they can't be read in time."""

    async def read() -> Iterable[str]:
        async with asyncio.timeout(SECONDS):
            return await names

    # Whatever is logged, printed or raised would end up in the line that is being typed.
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
            found = sorted({name for name in asyncio.run(read()) if name.startswith(incomplete)})
            return found[:MAX_OFFERED]
    finally:
        logging.disable(logging.NOTSET)
    return []


@asynccontextmanager
async def _client(ctx: typer.Context) -> AsyncIterator[Client]:
    async with cluster_client(_option(ctx, "kubeconfig"), _option(ctx, "context")) as client:
        yield client


def _option(ctx: typer.Context, name: str) -> str:
    return str(ctx.params.get(name) or "")


async def _names(client: Client, path: str) -> list[_Metadata]:
    body = await client.read(f"{path}?limit={MAX_READ}", kind="Names", accept=METADATA)
    return [each.metadata for each in msgspec.json.decode(body, type=_Objects).items]


async def _listed(ctx: typer.Context, *paths: str) -> list[str]:
    found: list[str] = []
    async with _client(ctx) as client:
        for path in paths:
            with contextlib.suppress(ApiError):
                found += (each.name for each in await _names(client, path))
    return found


async def _queues(ctx: typer.Context) -> list[str]:
    return await _listed(ctx, *QUEUES)


async def _gangs(ctx: typer.Context) -> list[str]:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(ASK_SECONDS):
            return await _gangs_of_scheduler(ctx)
    async with _client(ctx) as client:
        return [f"{each.namespace}/Job/{each.name}" for each in await _jobs(ctx, client)]


async def _gangs_of_scheduler(ctx: typer.Context) -> list[str]:
    address = SchedulerAddress(
        url=_option(ctx, "url"),
        service=_option(ctx, "service") or DEFAULT_SERVICE,
        kubeconfig=_option(ctx, "kubeconfig"),
        context=_option(ctx, "context"),
    )
    async with address.connect(ASK_SECONDS) as link:
        body = await link.get("/v1/list/gangs", (("namespace", _namespace(ctx)),))
    return [row.gang for row in msgspec.json.decode(body, type=GangList).gangs]


def _namespace(ctx: typer.Context) -> str:
    named = _option(ctx, "namespace")
    return named or context_namespace(_option(ctx, "kubeconfig"), _option(ctx, "context"))


async def _jobs(ctx: typer.Context, client: Client) -> list[_Metadata]:
    """All Jobs, or those of the namespace where the others may not be listed."""
    with contextlib.suppress(ApiError):
        return await _names(client, JOBS)
    return await _names(client, f"/apis/batch/v1/namespaces/{_namespace(ctx)}/jobs")


async def _of_kind(ctx: typer.Context, kind: str) -> list[str]:
    try:
        subject = SHORT_NAMES.get(kind) or Subject(kind)
    except ValueError:
        return []
    if subject is Subject.QUEUE:
        return await _queues(ctx)
    if subject is Subject.GANG:
        return await _gangs(ctx)
    namespace = _namespace(ctx)
    path = {
        Subject.POD: f"/api/v1/namespaces/{namespace}/pods",
        Subject.JOB: f"/apis/batch/v1/namespaces/{namespace}/jobs",
        Subject.CLAIM: f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    }[subject]
    return await _listed(ctx, path)
