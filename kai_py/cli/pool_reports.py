"""Reports of ResourcePoolStatusRequests on pools, next to the current numbers (KEP-5677).

A report is as old as its request: the latest of each pool counts, and says its time. It is compared
by the numbers that both have: devices, and results of claims.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from kai_py.api.records.pool_status import ReportedPool, ResourcePoolStatusRequest
from kai_py.cli.connection import cluster_client
from kai_py.cli.output import count_of
from kai_py.dra.explain.device_list import DeviceEntry, DeviceStatus
from kai_py.watch.errors import ApiError
from kai_py.watch.kinds import POOL_STATUS_REQUESTS

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
