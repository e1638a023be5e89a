"""The objects of a cluster for commands: from a saved file, or read now."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kai_py.cli.connection import ClusterOptions, cluster_client
from kai_py.cli.errors import CommandError
from kai_py.cli.output import say
from kai_py.cli.reading import check_rights
from kai_py.simulate.objects import (
    Document,
    ObjectsError,
    load_objects,
    read_objects,
    read_service_accounts,
)
from kai_py.watch.resource import Kind

SavedCluster = Annotated[
    Path | None,
    typer.Option("--from", help="A file of `kai-py snapshot` instead of a cluster."),
]


def cluster_objects(saved: Path | None, cluster: ClusterOptions) -> Sequence[Document]:
    """The objects in the file, or of the cluster if none is given; raises CommandError."""
    if saved is None:
        return asyncio.run(read_now(cluster.kubeconfig, cluster.context))
    try:
        return load_objects(saved)
    except ObjectsError as error:
        raise CommandError(str(error)) from None


async def read_now(kubeconfig: str, context: str) -> list[Document]:
    """The present objects of a cluster, without those that may not be read.

    What is left out is reported on standard error. Raises CommandError.
    """
    async with cluster_client(kubeconfig, context) as client:
        await check_rights(client)
        documents = await read_objects(client, _report_refused)
        return documents + await read_service_accounts(client, documents)


def _report_refused(kind: Kind[Any]) -> None:
    text = f"{kind.permission} are ignored: the permission to list them is missing"
    say(f"kai-py: {text}", err=True)
