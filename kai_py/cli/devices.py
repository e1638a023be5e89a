"""``kai-py devices``: every device of the cluster and who holds it: claim, pod, gang, queue."""

import asyncio
import enum
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from kai_py.cli.configuration import configuration_from
from kai_py.cli.connection import Context, Kubeconfig, cluster_client
from kai_py.cli.reading import read_and_plan
from kai_py.cli.tables import print_table
from kai_py.config import Configuration
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.listing import DeviceEntry, DeviceStatus, Holder, list_devices
from kai_py.snapshot.snapshot import Snapshot

HEADINGS = ("NODE", "DEVICE", "PRODUCT", "KIND", "STATUS", "CLAIM", "PODS", "GANG", "QUEUE")
COUNT_HEADINGS = ("DEVICES", "FREE", "HELD", "BLOCKED", "OTHER")


class Output(enum.StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


class Grouping(enum.StrEnum):
    """What to count devices by."""

    NODE = "node"
    POOL = "pool"
    PRODUCT = "product"
    KIND = "kind"
    QUEUE = "queue"


def command(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: Annotated[Path | None, typer.Option(help="The scheduler's configuration.")] = None,
    node: Annotated[str, typer.Option(help="Only devices of this node.")] = "",
    queue: Annotated[str, typer.Option(help="Only devices held by this queue.")] = "",
    free: Annotated[bool, typer.Option("--free", help="Only devices nobody holds.")] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Partitions below their GPU.")] = False,
    by: Annotated[Grouping | None, typer.Option(help="Count instead of list.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Table or JSON.")] = Output.TABLE,
) -> None:
    """List devices and who holds them."""
    snapshot = asyncio.run(_read(kubeconfig, context, configuration_from(config)))
    entries = [
        entry
        for entry in entries_of(snapshot)
        if node in ("", entry.node)
        and (not queue or any(holder.queue == queue for holder in entry.holders))
        and not (free and entry.status is not DeviceStatus.FREE)
    ]
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(entries), indent=2))
    elif by is not None:
        print_table((by.value.upper(), *COUNT_HEADINGS), count_rows(entries, by))
    else:
        print_table(HEADINGS, tree_rows(entries) if tree else map(_cells, entries))


async def _read(kubeconfig: str, context: str, configuration: Configuration) -> Snapshot:
    async with cluster_client(kubeconfig, context) as client:
        snapshot, _ = await read_and_plan(client, configuration)
        return snapshot


def entries_of(snapshot: Snapshot) -> list[DeviceEntry]:
    """The devices of a snapshot."""
    devices = ClusterDevices()
    devices.sync(snapshot.devices)
    return list_devices(
        devices.inventory,
        devices.state,
        snapshot.nodes.records,
        snapshot.devices.claims.values(),
        snapshot.gangs,
    )


def tree_rows(entries: Sequence[DeviceEntry]) -> Iterable[tuple[str, ...]]:
    """Partitions right below the device they are cut from, indented."""
    children: dict[tuple[str, str, str], list[DeviceEntry]] = {}
    listed = {(entry.driver, entry.pool, entry.device) for entry in entries}
    tops: list[DeviceEntry] = []
    for entry in entries:
        parent = (entry.driver, entry.pool, entry.parent)
        if entry.parent and parent in listed:
            children.setdefault(parent, []).append(entry)
        else:
            tops.append(entry)
    for entry in tops:
        yield _cells(entry)
        below = children.get((entry.driver, entry.pool, entry.device), [])
        for child in below:
            yield _cells(child, "└─ " if child is below[-1] else "├─ ")


def count_rows(entries: Sequence[DeviceEntry], by: Grouping) -> Iterable[tuple[str, ...]]:
    """Per group how many devices there are, and how many in which status."""
    groups: dict[str, list[DeviceEntry]] = {}
    for entry in entries:
        for key in _keys(entry, by):
            groups.setdefault(key, []).append(entry)
    for key, members in sorted(groups.items()):
        statuses = [entry.status for entry in members]
        free = statuses.count(DeviceStatus.FREE)
        held = statuses.count(DeviceStatus.HELD) + statuses.count(DeviceStatus.SHARED)
        blocked = statuses.count(DeviceStatus.BLOCKED)
        counts = (len(members), free, held, blocked, len(members) - free - held - blocked)
        yield (key or "-", *map(str, counts))


def _keys(entry: DeviceEntry, by: Grouping) -> Iterable[str]:
    match by:
        case Grouping.NODE:
            return (entry.node,)
        case Grouping.POOL:
            return (f"{entry.driver}/{entry.pool}",)
        case Grouping.PRODUCT:
            return (entry.product,)
        case Grouping.KIND:
            return (entry.kind,)
        case Grouping.QUEUE:
            return dict.fromkeys(holder.queue for holder in entry.holders) or ("",)


def _cells(entry: DeviceEntry, prefix: str = "") -> tuple[str, ...]:
    status = entry.status.value + (f" ({entry.detail})" if entry.detail else "")
    return (
        entry.node or "-",
        f"{prefix}{entry.device}",
        entry.product or "-",
        entry.kind or "-",
        status,
        _joined(_claim(holder) for holder in entry.holders),
        _joined(pod for holder in entry.holders for pod in holder.pods),
        _joined(holder.gang for holder in entry.holders),
        _joined(holder.queue for holder in entry.holders),
    )


def _claim(holder: Holder) -> str:
    consumed = ", ".join(f"{key} {amount}" for key, amount in holder.consumed.items())
    notes = [note for note in ("admin" if holder.admin else "", consumed) if note]
    return holder.claim + (f" ({', '.join(notes)})" if notes else "")


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(part for part in parts if part)) or "-"
