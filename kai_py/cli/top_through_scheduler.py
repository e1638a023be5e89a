"""Data of ``kai-py top`` from the scheduler, for users who may not read the cluster themselves."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote

from rich.text import Text

from kai_py.api.texts import count_of
from kai_py.cli.errors import CommandError
from kai_py.cli.naming import context_namespace
from kai_py.cli.scheduler_http import Link, Query, SchedulerAddress, decoded
from kai_py.dra.explain.device_list import DeviceEntry, DeviceStatus
from kai_py.observe.cluster_state import in_tree_order
from kai_py.observe.explanation import Explanation
from kai_py.observe.gang_rows import NOT_PENDING, STARTING, GangRow
from kai_py.observe.http_lists import DeviceList, GangList, QueueList
from kai_py.observe.live.cluster import (
    MAX_SLOTS,
    GpuSlot,
    GpuState,
    LiveCluster,
    LiveGang,
    LiveNode,
    LiveQueue,
)
from kai_py.observe.live.feed import Feed
from kai_py.snapshot.accounting import GPU

POLL_SECONDS = 2.0
OTHERS = "(others)"
MAX_OTHERS = 1_000_000
"""Most GPUs of others that are counted."""


class SchedulerView:
    """The cluster as the scheduler last described it to this user."""

    def __init__(self, link: Link, namespace: str) -> None:
        self.feed = Feed()
        self._link = link
        self._query: Query = (("namespace", namespace),)
        self._gangs, self._queues = GangList(0, []), QueueList(0, [])
        self._devices = DeviceList(0, [])
        self._problem = ""

    async def read(self) -> None:
        """Query gangs, queues and devices once; raises CommandError."""
        gangs, queues, devices = [
            await self._link.get(f"/v1/list/{kind}", self._query)
            for kind in ("gangs", "queues", "devices")
        ]
        self._gangs = decoded(gangs, GangList)
        self._queues = decoded(queues, QueueList)
        self._devices = decoded(devices, DeviceList)

    async def poll(self) -> None:
        """Query every ``POLL_SECONDS``; a failure is shown until a query succeeds."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.read()
                self._problem = ""
            except CommandError as error:
                self._problem = str(error)

    def live_cluster(self) -> LiveCluster:
        """The cluster for the panels."""
        return LiveCluster(
            nodes=tuple(live_nodes(self._devices.devices)),
            queues=tuple(
                LiveQueue(
                    name=row.queue,
                    deserved=_gpus(row.deserved),
                    fair_share=_gpus(row.fair_share),
                    allocated=row.allocated.get(GPU, 0.0),
                    maximum=row.max.get(GPU),
                    depth=depth,
                )
                for depth, row in in_tree_order(self._queues.queues)
            ),
            gangs=tuple(map(_gang, self._gangs.gangs)),
        )

    def headline(self) -> Sequence[Text]:
        """The line above all panels."""
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(" kai-py top ", style="bold reverse")
        others = self._gangs.others
        if others is not None:
            line.append(f"  others: {count_of(others.running, 'gang')} running, ", style="bold")
            line.append(f"{others.pending} pending", style="bold")
        line.append(f"  {self._problem}", style="bold red")
        return (line,)

    async def explain(self, gang: str) -> Explanation | None:
        """What the scheduler knows of a gang; raises CommandError."""
        query = (*self._query, ("suggestions", "false"))
        body = await self._link.get(f"/v1/explain/gang/{quote(gang)}", query)
        return next(iter(decoded(body, list[Explanation])), None)


@asynccontextmanager
async def watching_scheduler(address: SchedulerAddress) -> AsyncIterator[SchedulerView]:
    """Keep the answers up to date during the block; raises CommandError."""
    namespace = context_namespace(address.kubeconfig, address.context)
    async with address.connect() as link:
        view = SchedulerView(link, namespace)
        await view.read()
        polling = asyncio.create_task(view.poll())
        try:
            yield view
        finally:
            polling.cancel()


def _gpus(amounts: Mapping[str, float | None]) -> float:
    """The GPUs of an answer, in which None is unlimited."""
    gpus = amounts.get(GPU, 0.0)
    return math.inf if gpus is None else gpus


def _gang(row: GangRow) -> LiveGang:
    reason = "" if row.state in NOT_PENDING else row.state
    running = 0 if row.state == STARTING else row.bound - row.starting
    return LiveGang(
        key=row.gang,
        queue=row.queue,
        pods=row.pods,
        bound=row.bound,
        running=running,
        terminating=0,
        finished=0,
        pending_reason=reason,
    )


def live_nodes(devices: Sequence[DeviceEntry]) -> list[LiveNode]:
    """The nodes of devices with a slot for each, those without a node as one; of its gang."""
    slots: dict[str, list[GpuSlot]] = {}
    for entry in devices:
        free = entry.status is DeviceStatus.FREE
        state = GpuState.FREE if free else GpuState.RUNNING
        drawn = slots.setdefault(entry.node or OTHERS, [])
        for gang, count in _gangs_of(entry):
            most = MAX_SLOTS if entry.node else MAX_OTHERS
            drawn += [GpuSlot(state, gang)] * min(count, most - len(drawn))
    return [
        LiveNode(name, "", tuple(found), is_sum=name == OTHERS) for name, found in slots.items()
    ]


def _gangs_of(entry: DeviceEntry) -> Iterator[tuple[str, int]]:
    """How many of the devices that an entry stands for each gang has, the rest last, as ""."""
    if not any(each.units for each in entry.claims):
        yield entry.claims[0].gang if entry.claims else "", entry.count
        return
    left = entry.count
    for holder in entry.claims:
        taken = min(left, holder.units)
        yield holder.gang, taken
        left -= taken
    yield "", left
