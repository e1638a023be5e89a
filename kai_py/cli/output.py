"""Output formats of commands, as in kubectl's ``-o``; ``--json`` is short for JSON."""

import enum
from typing import Annotated

import msgspec
import typer


class Output(enum.StrEnum):
    """The form of an answer."""

    TABLE = "table"
    WIDE = "wide"
    """A table with more columns, if there are any."""
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Same as -o json.")]


def print_document(answer: object, output: Output, *, json: bool) -> bool:
    """Print ``answer`` as JSON or YAML if one of them is requested; returns whether it was."""
    if json or output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
    elif output is Output.YAML:
        typer.echo(msgspec.yaml.encode(answer), nl=False)
    else:
        return False
    return True
