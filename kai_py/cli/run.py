"""``kai-py run``: the scheduler, against any API server.

Exit codes: 0 after SIGTERM or SIGINT, 1 when the lease was lost (a standby goes on), else as every
command.
"""

import asyncio
import logging
import os
import signal
import socket
import time
import uuid
from typing import Annotated

import msgspec
import typer
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from kai_py.api.settings import LogFormat
from kai_py.api.texts import printable_json
from kai_py.cli.configuration import with_options
from kai_py.cli.connection import ClusterOptions, address_of, cluster_client
from kai_py.cli.errors import OTHER_ADDRESS, CommandError
from kai_py.cli.options import takes_groups
from kai_py.config import Configuration
from kai_py.observe.http import CannotServeError, serve
from kai_py.observe.http_access import HttpAccess, reader_finder
from kai_py.observe.http_forward import own_address
from kai_py.observe.log import Outages, configure_logging
from kai_py.observe.metrics import Metrics
from kai_py.observe.plan_text import describe_plan
from kai_py.observe.token_review import TokenReviews
from kai_py.plan.plan import Plan
from kai_py.scheduler import Scheduler
from kai_py.simulate.advisor import with_advisor
from kai_py.watch.client import Client
from kai_py.watch.http_transport import HttpTransport

log = logging.getLogger(__name__)
CONNECTIONS_BESIDE_WRITES = 16


@takes_groups
def command(
    *,
    cluster: ClusterOptions,
    scheduler_name: Annotated[
        str | None, typer.Option(help="Schedule pods with this spec.schedulerName.")
    ] = None,
    node_pool: Annotated[
        str | None,
        typer.Option(help="Schedule the nodes and pods of this node pool."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of dashboard, metrics and probes; port 0 takes a free one."),
    ] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Log format.")] = None,
    leader_elect: Annotated[
        bool | None,
        typer.Option("--leader-elect/--no-leader-elect", help="Take a Lease before scheduling."),
    ] = None,
    closed_queues: Annotated[
        bool,
        typer.Option(
            "--closed-queues",
            help="Close queues without spec.namespaces to namespaces that do not name them, unless "
            "the configuration sets openQueues.",
        ),
    ] = False,
    reservation_image: Annotated[
        str | None,
        typer.Option(
            "--reservation-image",
            help="Image of reservation pods of shared GPUs, unless the configuration names one.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print plans, write nothing to the cluster.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: a JSON object per plan and line.")
    ] = False,
) -> None:
    """Run the scheduler until SIGTERM."""
    if json and not dry_run:
        raise CommandError("--json: only plans of --dry-run are printed as JSON")
    options = {
        "schedulerName": scheduler_name,
        "log": {"format": log_format},
        "leaderElection": {"enabled": leader_elect},
        "http": _address(http),
        "nodePool": {"name": node_pool},
    }
    configuration = with_options(cluster.configuration(), options)
    if closed_queues and configuration.open_queues is None:
        configuration = with_options(configuration, {"openQueues": False})
    if reservation_image and not configuration.gpu_sharing.image:
        configuration = with_options(configuration, {"gpuSharing": {"image": reservation_image}})
    level = getattr(logging, configuration.log.level.value.upper())
    configure_logging(configuration.log.format, level=level)
    show = PlanPrinter(json=json) if dry_run else None
    asyncio.run(_run(cluster, configuration, show))


class PlanPrinter:
    """Prints every plan that differs from the one before."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._last = b""

    def __call__(self, plan: Plan) -> None:
        """Print the plan, if it differs from the last one."""
        encoded = msgspec.json.encode(plan)
        if encoded == self._last:
            return
        self._last = encoded
        text = printable_json(encoded.decode()) if self._json else describe_plan(plan)
        print(text, flush=True)


async def _run(
    cluster: ClusterOptions, configuration: Configuration, print_plan: PlanPrinter | None
) -> None:
    log.info("reading the cluster; schedulerName is %s", configuration.scheduler_name)
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    metrics = Metrics(registry)
    connections = configuration.commit.concurrency + CONNECTIONS_BESIDE_WRITES
    outages = Outages(time.monotonic)

    def on_call(verb: str, kind: str, code: int, seconds: float, failure: str) -> None:
        metrics.count_call(verb, kind, code, seconds)
        outages.observe(verb, kind, code, seconds, failure)

    async with cluster_client(
        cluster.kubeconfig, cluster.context, on_call=on_call, connections=connections
    ) as client:
        scheduler = Scheduler(
            client,
            configuration,
            metrics,
            identity=f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}",
            dry_run=print_plan is not None,
            on_plan=print_plan or (lambda _plan: None),
        )
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, scheduler.stop)
        try:
            http = configuration.http
            review = TokenReviews(client) if http.review_tokens else None
            finder = reader_finder(review) if review is not None else None
            access = HttpAccess(http.host, http.token_file, review, finder)
            with with_advisor(scheduler.probes(), client, configuration) as probes:
                async with serve(probes, access, http.port) as port:
                    scheduler.address = await _address_of(client, http.host, port)
                    log.info("dashboard, metrics and probes are served on port %d", port)
                    await scheduler.run()
        except CannotServeError as error:
            raise CommandError(str(error), hint=OTHER_ADDRESS) from error


async def _address_of(client: Client, host: str, port: int) -> str:
    """Where other replicas reach this one."""
    transport = client.transport
    server = await transport.server() if isinstance(transport, HttpTransport) else ""
    return await asyncio.to_thread(own_address, host, port, server)


def _address(text: str | None) -> dict[str, object]:
    if text is None:
        return {}
    host, port = address_of(text)
    return {"host": host, "port": port}
