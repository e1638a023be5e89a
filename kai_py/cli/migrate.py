"""``kai-py migrate``: compatibility of KAI-Scheduler's objects with kai_py."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import typer

from kai_py.cli.cluster_objects import documents_in, name_of
from kai_py.cli.connection import Context, Kubeconfig, cluster_client
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.output import JsonFlag, Output, OutputOption, print_document, print_table, say
from kai_py.dialects.kai.migration import MigrationNote, migration_notes
from kai_py.dialects.kai.pod_features import Compatibility
from kai_py.simulate.objects import read_objects
from kai_py.watch.errors import Forbidden, NotFound

HEADINGS = ("VERDICT", "OBJECT", "FIELD", "WHAT")
SETTINGS = (
    ("SchedulingShard", "/apis/kai.scheduler/v1/schedulingshards"),
    ("Config", "/apis/kai.scheduler/v1/configs"),
)


def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Manifests; - reads standard input."),
    ] = None,
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: OutputOption = Output.TABLE,
    json: JsonFlag = False,
) -> None:
    """Tell what works as it is, what means something else, what has no counterpart.

    Reads the files, or the cluster where none is named. Exits with 1 when something has no
    counterpart here.
    """
    documents = _read_files(files) if files else asyncio.run(_served(kubeconfig, context))
    notes = list(migration_notes(documents))
    if not print_document(notes, output, json=json):
        print_table(HEADINGS, (_row(note) for note in notes))
        say(_summary(notes))
    if any(note.compatibility is Compatibility.MISSING for note in notes):
        raise typer.Exit(ExitCode.FOUND)


async def _served(kubeconfig: str, context: str) -> list[Any]:
    """The objects that the scheduler watches, and KAI's own settings where they are served."""
    async with cluster_client(kubeconfig, context) as client:
        documents = await read_objects(client)
        for kind, path in SETTINGS:
            with suppress(NotFound, Forbidden):
                items = msgspec.json.decode(await client.read(path, kind=kind))["items"]
                type_fields = {"apiVersion": "kai.scheduler/v1", "kind": kind}
                documents += [{**type_fields, **item} for item in items]
    return documents


def _read_files(files: list[str]) -> list[Any]:
    return [document for file in files for document in _read(file)]


def _read(file: str) -> Iterator[Any]:
    for document in documents_in(file):
        if not isinstance(document.value, dict):
            line = document.node.start_mark.line + 1
            raise CommandError(f"{name_of(file)}:{line}: is not a Kubernetes object")
        if document.value.get("kind") == "List":
            yield from document.value.get("items") or ()
        else:
            yield document.value


def _row(note: MigrationNote) -> tuple[str, ...]:
    return note.compatibility.value, note.subject, note.field or "-", note.text


def _summary(notes: list[MigrationNote]) -> str:
    counts = [(v, sum(note.compatibility is v for note in notes)) for v in Compatibility]
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts)
