"""``kai-py webhook``: the admission webhooks, a process beside the scheduler."""

import asyncio
import logging
from typing import Annotated

import typer

from kai_py.admission.certificate import CertificateError
from kai_py.admission.server import serve
from kai_py.api.settings import LogFormat
from kai_py.cli.configuration import with_options
from kai_py.cli.connection import ClusterOptions, address_of, cluster_client
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.options import takes_groups
from kai_py.config import Configuration
from kai_py.observe.log import configure_logging
from kai_py.watch.credentials import find_credentials


@takes_groups
def command(
    *,
    cluster: ClusterOptions,
    http: Annotated[str | None, typer.Option(help="HOST:PORT to serve the webhooks on.")] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Log format.")] = None,
) -> None:
    """Serve the admission webhooks until SIGTERM."""
    host, port = address_of(http) if http else (None, None)
    options = {"log": {"format": log_format}, "webhook": {"host": host, "port": port}}
    configuration = with_options(cluster.configuration(), options)
    level = getattr(logging, configuration.log.level.value.upper())
    configure_logging(configuration.log.format, level=level)
    try:
        asyncio.run(_run(cluster, configuration))
    except CertificateError as error:
        raise CommandError(str(error), exit_code=ExitCode.CLUSTER) from error


async def _run(cluster: ClusterOptions, configuration: Configuration) -> None:
    kubeconfig, context = cluster.kubeconfig, cluster.context
    async with cluster_client(kubeconfig, context) as client:
        await serve(client, find_credentials(kubeconfig, context), configuration)
