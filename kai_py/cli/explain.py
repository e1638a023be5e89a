"""``kai-py explain``: why does it wait, and which small change would let it start?

The cluster is read once and one cycle is run on a copy of it. Every suggestion was simulated: with
it the gang starts. Nothing is written to any cluster. Exit codes: 0 it runs or starts, 1 it waits.
"""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from kai_py.cli.cluster_objects import Saved, cluster_objects
from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.connection import Context, Kubeconfig
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.output import JsonFlag, Output, OutputOption, print_document
from kai_py.cli.progress import progress
from kai_py.cli.tables import print_table
from kai_py.observe.explanation import RUNNING, STARTING, Explanation, Subject
from kai_py.observe.suggestion import Suggestion, Verb
from kai_py.simulate.advice import advise


def command(
    *,
    subject: Annotated[Subject, typer.Argument(help="What NAME is.")],
    name: Annotated[str, typer.Argument(help="NAMESPACE/NAME; of a gang as in `kai-py gangs`.")],
    saved: Saved = None,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = None,
    suggestions: Annotated[bool, typer.Option(help="Look for changes that would help.")] = True,
    output: OutputOption = Output.TABLE,
    json: JsonFlag = False,
) -> None:
    """Tell why something waits and which small change would let it start."""
    configuration = configuration_from(config)
    documents, now = cluster_objects(saved, kubeconfig, context), time.time()
    with progress("simulating"):
        answers = advise(
            documents,
            configuration,
            now=now,
            subject=subject,
            name=name,
            wants_suggestions=suggestions,
        )
    if not answers:
        raise CommandError(
            f"{subject.value} {name}: no gang of this scheduler has it",
            hint="kai-py gangs lists them",
        )
    if not print_document(answers, output, json=json):
        for answer in answers:
            _print(answer)
    if any(answer.state not in (RUNNING, STARTING) for answer in answers):
        raise typer.Exit(ExitCode.FOUND)


def _print(it: Explanation) -> None:
    typer.echo(f"{it.gang} is {it.state}: {it.bound} of {it.pods} pods run, {it.floor} are needed.")
    if it.message:
        typer.echo(f"  {it.message}")
    if it.nodes:
        typer.echo(f"  It runs on {', '.join(it.nodes)}.")
    if it.position:
        typer.echo(
            f"  It is number {it.position} of {it.waiting} that wait in queue {it.queue} "
            f"(priority {it.priority})."
        )
    if it.queues:
        typer.echo()
        print_table(
            ("QUEUE", "DESERVED", "MAX", "FAIR SHARE", "ALLOCATED", "REQUESTED"),
            (
                (
                    level.queue,
                    f"{level.deserved:g}",
                    "-" if level.maximum is None else f"{level.maximum:g}",
                    f"{level.fair_share:g}",
                    f"{level.allocated:g}",
                    f"{level.requested:g}",
                )
                for level in it.queues
            ),
        )
    if it.suggestions:
        typer.echo("\nIt would start, as simulated, with any of these:")
        for suggestion in it.suggestions:
            cost = f"; {', '.join(suggestion.evicts)} would lose pods" if suggestion.evicts else ""
            typer.echo(f"  - {suggestion.text}{cost}")
            for command in _commands(suggestion):
                typer.echo(f"      {command}")


def _commands(suggestion: Suggestion) -> Iterator[str]:
    """What to type for it, as far as that can be told in a line."""
    for step in suggestion.steps:
        if step.command:
            yield step.command
        elif step.verb is not Verb.ADD_NODES:
            yield f"{step.verb} {step.kind} {step.name} (-o json has its manifest)"
