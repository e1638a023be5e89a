"""How does a test run the scheduler in its own process, and what must never happen meanwhile?

`scheduling` runs the real scheduler against a cluster whose Queue definition is in place. A cycle
that failed, or anything logged as an error, fails the test when the block is left.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

from prometheus_client import CollectorRegistry

from kai_py.cli.connection import cluster_client
from kai_py.config import CommitConfig, Configuration, LeaderElectionConfig
from kai_py.observe.metrics import Metrics
from kai_py.scheduler import Scheduler
from tests.support import yaml_text
from tests.support.cluster.api import Api, ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.view import condition
from tests.support.patience import patience
from tests.support.repository import CRDS

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EAGER = Configuration(
    cycle_period=0.02,
    leader_election=LeaderElectionConfig(enabled=False),
    commit=CommitConfig(queue_status_interval=0.2),
)
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Running:
    """A scheduler at work."""

    scheduler: Scheduler
    metrics: Metrics
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """End it before its block does; it writes nothing once this returns."""
        self.scheduler.stop()
        async with asyncio.timeout(patience(STOP_SECONDS)):
            await self.task

    def count(self, name: str, **labels: str) -> float:
        """Return the present value of one of its metrics, 0 when it was never counted."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def install_definitions(api: Api) -> None:
    """Apply what `crds/` holds and wait until it is served."""
    for definition in _shipped():
        await install(api, definition)


@cache
def _shipped() -> tuple[Document, ...]:
    return tuple(yaml_text.read(path.read_text()) for path in sorted(CRDS.glob("*.yaml")))


async def install(api: Api, definition: Document) -> None:
    """Define a kind, unless it is there to stay, and wait until it is served."""
    name = definition["metadata"]["name"]

    async def there() -> bool:
        try:
            await api.post(DEFINITIONS, definition)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return name in await defined_to_stay(api)
        return True

    await eventually(there, what=f"{name} defined")
    await eventually(lambda: is_served(api, definition), what=f"{name} served")


async def define(api: Api, definition: Document) -> None:
    """Define a kind, after the one of an earlier test has gone, and wait until it is served."""
    name = definition["metadata"]["name"]

    async def created() -> bool:
        try:
            await api.post(DEFINITIONS, definition)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        return True

    await eventually(created, what=f"{name} defined")
    await eventually(lambda: is_served(api, definition), what=f"{name} served")


async def defined_to_stay(api: Api) -> set[str]:
    """Names of the definitions that have not been deleted."""
    found = await api.items(DEFINITIONS)
    return {each["metadata"]["name"] for each in found if not _is_going(each)}


def _is_going(definition: Document) -> bool:
    return "deletionTimestamp" in definition["metadata"]


async def is_served(api: Api, definition: Document) -> bool:
    """Whether the objects of a definition can be listed, and clients are told of their kind."""
    spec = definition["spec"]
    version = f"{spec['group']}/{spec['versions'][0]['name']}"
    stored = await api.get(f"{DEFINITIONS}/{definition['metadata']['name']}")
    if condition(stored, "Established").get("status") != "True":
        return False
    try:
        await api.get(f"/apis/{version}/{spec['names']['plural']}")
    except ApiError as error:
        if error.code not in {404, 429, 503}:  # its storage is being made
            raise
        return False
    return spec["names"]["kind"] in await api.types(version)  # discovery comes last


@asynccontextmanager
async def scheduling(
    cluster: Cluster, configuration: Configuration = EAGER, *, identity: str = "test"
) -> AsyncIterator[Running]:
    """Run a scheduler for the duration of the block; it has read the cluster when this begins."""
    metrics = Metrics(CollectorRegistry())
    errors = _Errors()
    logger = logging.getLogger("kai_py")
    logger.addHandler(errors)
    try:
        async with cluster_client(
            str(cluster.scheduler_kubeconfig), "", on_call=metrics.count_call
        ) as client:
            scheduler = Scheduler(client, configuration, metrics, identity=identity)
            task = asyncio.create_task(scheduler.run())
            running = Running(scheduler, metrics, task)
            try:
                await eventually(lambda: _ready(scheduler, task), what="a scheduler that is ready")
                yield running
            finally:
                await running.stop()
    finally:
        logger.removeHandler(errors)
    assert errors.messages == []
    assert metrics.registry.get_sample_value("kai_py_cycle_failures_total") == 0


async def _ready(scheduler: Scheduler, task: asyncio.Task[None]) -> bool:
    if task.done():
        task.result()
    return not scheduler.unready()


class _Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.messages: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))
