"""``kai-py devices``: every device of the cluster, with its claim, pods, gang and queue.

Beside the current numbers of a pool stand those of the latest ResourcePoolStatusRequest (KEP-5677),
compared by what both have: devices, and results of claims.
"""

import asyncio
import enum
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import typer

from kai_py.api.records.resource_admin import ReportedPool, ResourcePoolStatusRequest
from kai_py.api.texts import count_of
from kai_py.cli import completion
from kai_py.cli.connection import ClusterOptions, cluster_client
from kai_py.cli.options import takes_groups
from kai_py.cli.output import (
    Output,
    OutputOptions,
    check_known,
    print_document,
    print_table,
)
from kai_py.cli.reading import plan_cluster
from kai_py.cli.scheduler_http import SchedulerOptions, ask_list, read_or_ask
from kai_py.dra.explain.device_list import DeviceEntry, DeviceStatus, Holder
from kai_py.observe.http_lists import DeviceList, entries_of
from kai_py.watch.errors import ApiError
from kai_py.watch.kinds import POOL_STATUS_REQUESTS

HEADINGS = ("NODE", "DEVICE", "STATUS", "PRODUCT", "CLAIM", "PODS", "GANG", "QUEUE")
WIDE_HEADINGS = (HEADINGS[0], "DRIVER", "POOL", "KIND", *HEADINGS[1:])
COUNT_HEADINGS = ("DEVICES", "FREE", "ALLOCATED", "EXHAUSTED", "OTHER")


class Grouping(enum.StrEnum):
    """Keys to count devices by."""

    NODE = "node"
    POOL = "pool"
    PRODUCT = "product"
    KIND = "kind"
    QUEUE = "queue"


@takes_groups
def command(
    *,
    cluster: ClusterOptions,
    node: Annotated[
        str, typer.Option(help="Only devices of this node.", autocompletion=completion.nodes)
    ] = "",
    queue: Annotated[
        str,
        typer.Option(
            help="Only devices allocated to this queue.", autocompletion=completion.queues
        ),
    ] = "",
    free: Annotated[bool, typer.Option("--free", help="Only free devices.")] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Partitions below their GPU.")] = False,
    by: Annotated[Grouping | None, typer.Option(help="Count instead of list.")] = None,
    scheduler: SchedulerOptions,
    output: OutputOptions,
) -> None:
    """List devices and the pods that use them.

    Without the right to read the cluster, the scheduler lists the devices of your claims and pods,
    and how many others there are.
    """
    configuration = cluster.configuration()
    reports: dict[str, PoolReport] = {}

    def read() -> list[DeviceEntry]:
        snapshot, plan = plan_cluster(cluster, configuration)
        check_known("--node", node, snapshot.nodes.names, hint="kubectl get nodes lists them")
        queues = (share.queue for share in plan.queues)
        check_known("--queue", queue, queues, hint="kai-py queues lists them")
        if by is Grouping.POOL:
            reports.update(read_pool_reports(cluster.kubeconfig, cluster.context))
        return entries_of(snapshot)

    address = scheduler.address(cluster)
    found = read_or_ask(
        address, read, lambda: ask_list(address, "list/devices", DeviceList).devices
    )
    entries = [
        entry
        for entry in found
        if node in ("", entry.node)
        and (not queue or any(holder.queue == queue for holder in entry.claims))
        and not (free and entry.status is not DeviceStatus.FREE)
    ]
    if not entries and not (node or queue or free):
        print("no devices: no ResourceSlice and no node has any", file=sys.stderr)
    if print_document(entries, output.form, names=_names(entries)):
        return
    if by is not None:
        _print_counts(entries, by, report_cells(reports, found))
        return
    rows = tree_rows(entries) if tree else ((entry, "") for entry in entries)
    if output.form is Output.WIDE:
        print_table(WIDE_HEADINGS, (_wide_cells(*row) for row in rows))
    else:
        print_table(HEADINGS, (_cells(*row) for row in rows))


def _names(entries: Iterable[DeviceEntry]) -> Iterable[str]:
    """DRIVER/POOL/DEVICE, of device plugins NODE/RESOURCE, each once; sums have no name."""
    named = (
        (each.driver, each.pool, each.device) if each.driver else (each.node, each.device)
        for each in entries
        if each.driver or each.node
    )
    return dict.fromkeys("/".join(parts) for parts in named)


def tree_rows(entries: Sequence[DeviceEntry]) -> Iterable[tuple[DeviceEntry, str]]:
    """Partitions right below the device they belong to, with their branch of the tree."""
    children: dict[tuple[str, str, str], list[DeviceEntry]] = {}
    listed = {(entry.driver, entry.pool, entry.device) for entry in entries}
    roots: list[DeviceEntry] = []
    for entry in entries:
        parent = (entry.driver, entry.pool, entry.parent)
        if entry.parent and parent in listed:
            children.setdefault(parent, []).append(entry)
        else:
            roots.append(entry)
    for entry in roots:
        yield entry, ""
        partitions = children.get((entry.driver, entry.pool, entry.device), [])
        for child in partitions:
            yield child, "└─ " if child is partitions[-1] else "├─ "


def count_rows(entries: Sequence[DeviceEntry], by: Grouping) -> Iterable[tuple[str, ...]]:
    """Number of devices per group, in total and by status."""
    groups: dict[str, list[DeviceEntry]] = {}
    for entry in entries:
        for key in _keys(entry, by):
            groups.setdefault(key, []).append(entry)
    for key, members in sorted(groups.items()):
        statuses = [entry.status for entry in members for _ in range(entry.count)]
        free = statuses.count(DeviceStatus.FREE)
        allocated = statuses.count(DeviceStatus.ALLOCATED) + statuses.count(DeviceStatus.SHARED)
        blocked = statuses.count(DeviceStatus.COUNTERS_EXHAUSTED)
        total = len(statuses)
        counts = (total, free, allocated, blocked, total - free - allocated - blocked)
        yield (key or "-", *map(str, counts))


def _print_counts(
    entries: Sequence[DeviceEntry], by: Grouping, reported: Mapping[str, str]
) -> None:
    headings, rows = (by.value.upper(), *COUNT_HEADINGS), count_rows(entries, by)
    if not reported:
        print_table(headings, rows)
        return
    print_table((*headings, "REPORTED"), ((*row, reported.get(row[0], "-")) for row in rows))


def _keys(entry: DeviceEntry, by: Grouping) -> Iterable[str]:
    match by:
        case Grouping.NODE:
            return (entry.node,)
        case Grouping.POOL:
            return (f"{entry.driver}/{entry.pool}",)
        case Grouping.PRODUCT:
            return (entry.product or entry.device,)
        case Grouping.KIND:
            return (entry.kind,)
        case Grouping.QUEUE:
            return dict.fromkeys(holder.queue for holder in entry.claims) or ("",)


def _wide_cells(entry: DeviceEntry, prefix: str) -> tuple[str, ...]:
    node, *others = _cells(entry, prefix)
    return (node, entry.driver, entry.pool, entry.kind or "-", *others)


def _cells(entry: DeviceEntry, prefix: str) -> tuple[str, ...]:
    status = entry.status.value + (f" ({entry.detail})" if entry.detail else "")
    return (
        entry.node or "-",
        f"{prefix}{entry.device}" + (f" x{entry.count}" if entry.count > 1 else ""),
        status,
        entry.product or "-",
        _joined(_claim(holder) for holder in entry.claims),
        _joined(pod for holder in entry.claims for pod in holder.pods),
        _joined(holder.gang for holder in entry.claims),
        _joined(holder.queue for holder in entry.claims),
    )


def _claim(holder: Holder) -> str:
    consumed = ", ".join(f"{key} {amount}" for key, amount in holder.consumed.items())
    notes = [note for note in ("admin" if holder.admin_access else "", consumed) if note]
    return holder.claim + (f" ({', '.join(notes)})" if notes else "")


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(part for part in parts if part)) or "-"


COMPLETE = "Complete"


class PoolReport(NamedTuple):
    """A pool as reported at a time."""

    at: datetime
    pool: ReportedPool


def read_pool_reports(kubeconfig: str, context: str) -> dict[str, PoolReport]:
    """The latest reports by DRIVER/POOL; none where the server has none, or refuses them."""

    async def read() -> list[ResourcePoolStatusRequest]:
        async with cluster_client(kubeconfig, context) as client:
            try:
                return list((await client.list(POOL_STATUS_REQUESTS.at())).items)
            except ApiError:
                return []

    return latest_reports(asyncio.run(read()))


def latest_reports(requests: Iterable[ResourcePoolStatusRequest]) -> dict[str, PoolReport]:
    """The latest report of each pool by DRIVER/POOL."""
    found: dict[str, PoolReport] = {}
    for request in requests:
        for condition in request.status.conditions:
            at = condition.last_transition_time
            if condition.type != COMPLETE or condition.status != "True" or at is None:
                continue
            for pool in request.status.pools:
                key = f"{pool.driver}/{pool.pool_name}"
                if key not in found or found[key].at < at:
                    found[key] = PoolReport(at, pool)
    return found


def report_cells(
    reports: Mapping[str, PoolReport], entries: Iterable[DeviceEntry]
) -> dict[str, str]:
    """What is reported of each pool, and where ``entries`` say otherwise now."""
    devices, results = dict.fromkeys(reports, 0), dict.fromkeys(reports, 0)
    for entry in entries:
        key = f"{entry.driver}/{entry.pool}"
        if key in reports:
            devices[key] += entry.count if entry.status is not DeviceStatus.REMOVED else 0
            results[key] += len(entry.claims)
    return {
        key: _cell(report, devices[key], results[key]) for key, report in sorted(reports.items())
    }


def _cell(report: PoolReport, devices: int, results: int) -> str:
    when = report.at.astimezone(UTC).strftime("at %Y-%m-%d %H:%M:%S UTC")
    pool = report.pool
    if pool.total_devices is None or pool.allocated_devices is None:
        return f"{pool.validation_error or 'no counts'} {when}"
    before, now = (pool.total_devices, pool.allocated_devices), (devices, results)
    text = f"{_counts(*before)} {when}"
    return text if before == now else f"{text}; now {_counts(*now)}"


def _counts(devices: int, results: int) -> str:
    return f"{count_of(devices, 'device')}, {count_of(results, 'result')}"
