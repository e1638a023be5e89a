"""Connection of commands to the cluster: common options, failures in one line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from kai_py.cli.errors import CommandError, ExitCode
from kai_py.watch.client import Client, connect
from kai_py.watch.credentials import find_credentials
from kai_py.watch.errors import ApiError, CredentialsError
from kai_py.watch.transport import CallObserver

Kubeconfig = Annotated[
    str, typer.Option(help="Kubeconfig file; otherwise $KUBECONFIG, the pod's account, ~/.kube.")
]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]


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
