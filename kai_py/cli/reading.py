"""Reads the cluster once and runs one cycle on it, for commands that show decisions.

A scheduler waits for a server that is away; a command fails at once. It sends the server one
request first, and gives up on a kind that has been refused for ``REFUSAL_SECONDS``.

Commands that only need the objects take them from a saved file, or read them now.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from kai_py.api.texts import first_of
from kai_py.cli.connection import ClusterOptions, cluster_client
from kai_py.cli.errors import CommandError, ExitCode, RightsMissingError
from kai_py.cli.output import say
from kai_py.config import Configuration
from kai_py.grouping.owner_chain import GroupKind
from kai_py.observe.health import unsynced_kinds
from kai_py.plan.plan import Plan
from kai_py.plan.state.queues import Quota
from kai_py.planner import Planner
from kai_py.simulate.files.objects import (
    Document,
    ObjectsError,
    load_objects,
    read_objects,
    read_service_accounts,
)
from kai_py.simulate.files.unusable_objects import wrong_types
from kai_py.simulate.stored_documents import add_uid
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.client import Client
from kai_py.watch.errors import Forbidden
from kai_py.watch.kinds import NODES, PODS
from kai_py.watch.mirror import KindStatus, Mirror
from kai_py.watch.owner_kinds import OwnerKindWatcher
from kai_py.watch.resource import Kind

READ_SECONDS = 60.0
WATCH_SECONDS = 2.0
REFUSAL_SECONDS = 3.0
POLL_SECONDS = 0.2
OWNER_KINDS_SECONDS = 10.0
MAX_KINDS_SHOWN = 3
MAX_OBJECTS_SHOWN = 3


def plan_cluster(cluster: ClusterOptions, configuration: Configuration) -> tuple[Snapshot, Plan]:
    """The present cluster and the plan of one cycle; nothing is written."""
    planner, snapshot = asyncio.run(_read_cluster(cluster, configuration))
    return snapshot, planner.decide(snapshot)


def divide_quota(cluster: ClusterOptions, configuration: Configuration) -> Quota:
    """The quota of the queues, as a cycle computes it."""
    planner, snapshot = asyncio.run(_read_cluster(cluster, configuration))
    planner.decide(snapshot)
    return planner.quota(snapshot)


async def _read_cluster(
    cluster: ClusterOptions, configuration: Configuration
) -> tuple[Planner, Snapshot]:
    """A planner that has read the cluster that the options name, and the snapshot."""
    async with (
        cluster_client(cluster.kubeconfig, cluster.context) as client,
        _following(client, configuration) as planner,
    ):
        pass
    return planner, planner.freeze(time.time())


def watch_cluster(
    cluster: ClusterOptions,
    configuration: Configuration,
    show: Callable[[Snapshot, Plan], None],
) -> None:
    """Call ``show`` with the cluster as it is and the plan of a cycle, every ``WATCH_SECONDS``.

    Ends with an interrupt.
    """

    async def watch() -> None:
        async with (
            cluster_client(cluster.kubeconfig, cluster.context) as client,
            _following(client, configuration) as planner,
        ):
            while True:
                snapshot = planner.freeze(time.time())
                show(snapshot, planner.decide(snapshot))
                await asyncio.sleep(WATCH_SECONDS)

    asyncio.run(watch())


async def check_rights(client: Client) -> None:
    """Raise RightsMissingError unless the pods and nodes of the cluster may be listed."""
    refused: dict[str, Forbidden] = {}
    for kind in (NODES, PODS):
        try:
            await client.check_list(kind.at())
        except Forbidden as error:
            refused[kind.name] = error
    if refused:
        first = next(iter(refused.values()))
        raise RightsMissingError(f"cannot read {', '.join(refused)}: {first}")


@asynccontextmanager
async def _following(client: Client, configuration: Configuration) -> AsyncIterator[Planner]:
    """A planner that has read the cluster and follows it until the block ends."""
    # What the watches would log is reported below, once.
    logging.getLogger("kai_py.watch").addHandler(logging.NullHandler())
    await client.read("/apis", kind="Discovery")
    await check_rights(client)

    def follow(kind: GroupKind) -> None:
        owner_kinds.want(kind)

    def on_refused(kind: Kind[Any], *, refused: bool) -> None:
        planner.builder.set_owner_kind(GroupKind(kind.group, kind.name), readable=not refused)

    planner = Planner(configuration, on_owner_kind=follow)
    mirror = Mirror(client, on_refused=on_refused)
    owner_kinds = OwnerKindWatcher(
        client, mirror, planner.owner_decoder, planner.builder.set_owner_kind
    )
    mirror.subscribe(lambda kind, old, new: planner.builder.apply(kind.collection_name, old, new))
    watching = asyncio.gather(mirror.run(), owner_kinds.run())
    try:
        await _wait_until_all_is_read(mirror, owner_kinds)
        yield planner
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _wait_until_all_is_read(mirror: Mirror, owner_kinds: OwnerKindWatcher) -> None:
    try:
        async with asyncio.timeout(READ_SECONDS):
            await wait_until_read(mirror)
        await owner_kinds.wait_settled(OWNER_KINDS_SECONDS)
    except TimeoutError:
        unread = "; ".join(unsynced_kinds(mirror.status()))
        raise CommandError(
            f"reading the cluster timed out after {READ_SECONDS:.0f} s: {unread}",
            exit_code=ExitCode.CLUSTER,
        ) from None


async def wait_until_read(mirror: Mirror) -> None:
    """Wait until all is read; raises CommandError if something cannot be."""
    refused_for = 0.0
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                return await mirror.wait_synced()
        refused = [kind for kind in mirror.status() if not kind.synced and kind.problem]
        # A server that has just started refuses everything for a moment.
        refused_for = refused_for + POLL_SECONDS if refused else 0.0
        if refused_for >= REFUSAL_SECONDS:
            raise RightsMissingError(_refusal_message(refused))


def _refusal_message(refused: Sequence[KindStatus]) -> str:
    names = first_of([kind.kind for kind in refused], MAX_KINDS_SHOWN)
    return f"cannot read {names}: {refused[0].problem}"


SavedCluster = Annotated[
    Path | None,
    typer.Option("--from", help="A file of `kai-py snapshot` instead of a cluster."),
]


def cluster_objects(saved: Path | None, cluster: ClusterOptions) -> Sequence[Document]:
    """The objects in the file, or of the cluster if none is given; raises CommandError."""
    if saved is None:
        return asyncio.run(read_now(cluster.kubeconfig, cluster.context))
    try:
        documents = load_objects(saved)
    except ObjectsError as error:
        raise CommandError(str(error)) from None
    if wrong := list(wrong_types(documents)):
        hint = "no API server serves this: correct the fields, or save the cluster again"
        raise CommandError(f"{saved}: {first_of(wrong, MAX_OBJECTS_SHOWN)}", hint=hint)
    for document in documents:
        add_uid(document)
    return documents


def known_names(saved: Path | None, names: Iterable[str], command: str) -> str:
    """Where a name can be looked up: what ``command`` lists, or what the file has."""
    if saved is None:
        return f"{command} lists them"
    return f"{saved} has {first_of(sorted(set(names)), MAX_OBJECTS_SHOWN) or 'none'}"


async def read_now(kubeconfig: str, context: str) -> list[Document]:
    """The present objects of a cluster, without those that may not be read.

    What is left out is reported on standard error. Raises CommandError.
    """
    async with cluster_client(kubeconfig, context) as client:
        await check_rights(client)
        documents = await read_objects(client, _report_refused)
        return documents + await read_service_accounts(client, documents)


def _report_refused(kind: Kind[Any]) -> None:
    text = f"{kind.permission} are ignored: the permission to list them is missing"
    say(f"kai-py: {text}", err=True)
