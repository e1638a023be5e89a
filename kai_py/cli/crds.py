"""``kai-py crds``: the CRDs of this project, as YAML to apply."""

from pathlib import Path
from typing import Annotated

import typer

from kai_py.api.crd import crd_yaml, crds
from kai_py.cli.output import write_files


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
    else:
        write_files(output_dir, documents)
