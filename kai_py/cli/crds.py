"""``kai-py crds``: the CRDs of this project, as YAML to apply."""

from pathlib import Path
from typing import Annotated

import typer

from kai_py.api.crd import crd_yaml, crds
from kai_py.cli.errors import CommandError


def command(
    output_dir: Annotated[
        Path | None,
        typer.Option(help="Write one file per CRD into this directory instead of printing."),
    ] = None,
) -> None:
    """Print the CRDs: ``kai-py crds | kubectl apply -f -``."""
    documents = {name: crd_yaml(crd) for name, crd in crds().items()}
    if output_dir is None:
        typer.echo("---\n".join(documents.values()), nl=False)
        return
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        for name, text in documents.items():
            (output_dir / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {output_dir}: {error.strerror}") from error
