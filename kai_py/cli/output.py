"""In which form does a command answer? As kubectl's ``-o`` has it; ``--json`` is short for JSON."""

import enum
from typing import Annotated

import msgspec
import typer


class Output(enum.StrEnum):
    """The form of an answer."""

    TABLE = "table"
    WIDE = "wide"
    """A table with more columns, where there are more."""
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


def print_document(answer: object, output: Output, *, json: bool) -> bool:
    """Print ``answer`` as JSON or YAML where one of them is wanted; whether it was."""
    if json or output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
    elif output is Output.YAML:
        typer.echo(msgspec.yaml.encode(answer), nl=False)
    else:
        return False
    return True
