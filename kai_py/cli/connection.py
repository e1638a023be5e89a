"""Options for connections: the cluster to read, and the address to listen on.

Addresses are HOST:PORT, or :PORT for every address.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer
from msgspec import Struct

from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.config import Configuration
from kai_py.watch.client import Client
from kai_py.watch.credentials import find_credentials
from kai_py.watch.errors import ApiError, CredentialsError
from kai_py.watch.http_transport import connect
from kai_py.watch.transport import CallObserver

Kubeconfig = Annotated[
    str, typer.Option(help="Kubeconfig file; otherwise $KUBECONFIG, the pod's account, ~/.kube.")
]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]


class ClusterOptions(Struct, frozen=True):
    """Which cluster is read, and with which configuration of the scheduler."""

    kubeconfig: Kubeconfig = ""
    context: Context = ""
    config: ConfigFile = None

    def configuration(self) -> Configuration:
        """The configuration; raises CommandError."""
        return configuration_from(self.config)


@asynccontextmanager
async def cluster_client(
    kubeconfig: str, context: str, *, on_call: CallObserver | None = None, connections: int = 32
) -> AsyncIterator[Client]:
    """Open a client; raises CommandError if the cluster cannot be reached."""
    try:
        credentials = find_credentials(kubeconfig, context)
        async with connect(credentials, on_call=on_call, connections=connections) as client:
            yield client
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        raise CommandError(str(error), exit_code=ExitCode.CLUSTER) from error


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``--http``; raises CommandError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise CommandError(f'--http must be HOST:PORT or :PORT, is "{text}"')
    return host.strip("[]") or "0.0.0.0", int(port)
