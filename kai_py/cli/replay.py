"""``kai-py replay``: the plan we would make for a snapshot that KAI-Scheduler took."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.errors import CommandError
from kai_py.cli.kai_archive import ArchiveError, read_archive
from kai_py.observe.plan_text import describe_plan
from kai_py.planner import Planner


def command(
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", help="The zip that GET /get-snapshot gave.")
    ],
    *,
    config: ConfigFile = None,
    now: Annotated[
        float | None,
        typer.Option(help="Time of the cycle, seconds since 1970; by default that of the file."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
) -> None:
    """Print the plan of one cycle on a snapshot; nothing is read from or written to a cluster."""
    configuration = configuration_from(config)
    try:
        found = read_archive(archive)
    except ArchiveError as error:
        raise CommandError(str(error)) from error
    for fault in found.faults:
        typer.echo(f"kai-py: {fault}", err=True)
    if config is None and found.scheduler_name:
        configuration = configuration.model_copy(update={"scheduler_name": found.scheduler_name})
    planner = Planner(configuration)
    found.feed(planner.builder)
    plan = planner.decide(planner.freeze(found.taken if now is None else now))
    typer.echo(msgspec.json.encode(plan).decode() if json else describe_plan(plan))
