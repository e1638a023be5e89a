"""``kai-py snapshot``: save what the scheduler reads, for what-if questions elsewhere."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kai_py.api.texts import count_of
from kai_py.cli.connection import Context, Kubeconfig
from kai_py.cli.errors import CommandError
from kai_py.cli.output import progress, say
from kai_py.cli.reading import read_now
from kai_py.simulate.files.objects import object_list, write_objects
from kai_py.simulate.files.redaction import redact

STANDARD_OUTPUT = "-"


def command(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File to write; compressed when it ends in .gz. - is standard output.",
        ),
    ],
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    hide_names: Annotated[
        bool, typer.Option("--redact", help="Remove names, labels, images, texts and addresses.")
    ] = False,
) -> None:
    """Save the objects that the scheduler watches to a file."""
    documents = asyncio.run(read_now(kubeconfig, context))
    if hide_names:
        with progress("redacting"):
            documents = redact(documents)
    if str(file) == STANDARD_OUTPUT:
        typer.echo(object_list(documents))
        return
    try:
        write_objects(file, documents)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    say(f"saved {count_of(len(documents), 'object')} to {file}")
