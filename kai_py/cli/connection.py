"""Options that commands share: the cluster, the configuration, addresses to listen on.

The configuration is the file or the defaults, with options on top of it. Errors are reported in
lines that name the key.

Addresses are HOST:PORT, or :PORT for every address.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from kai_py.api.problems import field_problems
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.config import Configuration, ConfigurationError, read_configuration
from kai_py.watch.client import Client, connect
from kai_py.watch.credentials import find_credentials
from kai_py.watch.errors import ApiError, CredentialsError
from kai_py.watch.transport import CallObserver

ConfigFile = Annotated[Path | None, typer.Option(help="The scheduler's configuration (YAML).")]


def configuration_from(path: Path | None) -> Configuration:
    """Read the configuration file, or use the defaults without one; raises CommandError."""
    try:
        return read_configuration(path) if path is not None else Configuration()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error


def with_options(configuration: Configuration, options: Mapping[str, Any]) -> Configuration:
    """The configuration with some keys replaced, nested as in the file; None keeps a key."""
    document = _merged(configuration.model_dump(mode="json", by_alias=True), options)
    try:
        return Configuration.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = field_problems(error, Configuration)
        raise CommandError("; ".join(map(str, problems))) from error


def _merged(document: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(document)
    for key, value in options.items():
        if isinstance(value, Mapping):
            merged[key] = _merged(merged[key], value)
        elif value is not None:
            merged[key] = value
    return merged


Kubeconfig = Annotated[
    str, typer.Option(help="Kubeconfig file; otherwise $KUBECONFIG, the pod's account, ~/.kube.")
]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]


@dataclass(frozen=True)
class ClusterOptions:
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
