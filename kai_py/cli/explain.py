"""``kai-py explain``: why does it wait, and which small change would let it start?

The cluster is read once and one cycle is run on a copy of it. Every suggestion was simulated: with
it the gang starts. Nothing is written to any cluster. Exit codes: 0 it runs or starts, 1 it waits.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from kai_py.cli.cluster_objects import Saved, cluster_objects
from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.connection import Context, Kubeconfig
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.output import JsonFlag, Output, OutputOption, print_document
from kai_py.cli.tables import print_table
from kai_py.config import Configuration
from kai_py.observe.explanation import (
    RUNNING,
    STARTING,
    Explanation,
    Subject,
    explain,
    gang_keys,
)
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.objects import Document
from kai_py.simulate.suggestions import Suggestion, suggest
from kai_py.simulate.what_if import settle_changed


@dataclass(frozen=True, slots=True)
class Answer:
    """An explanation with what would help."""

    explanation: Explanation
    suggestions: tuple[Suggestion, ...]


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
    answers = _answers(documents, configuration, now, subject, name, wants_suggestions=suggestions)
    if not print_document(answers, output, json=json):
        for answer in answers:
            _print(answer)
    if any(answer.explanation.state not in (RUNNING, STARTING) for answer in answers):
        raise typer.Exit(ExitCode.FOUND)


def _answers(
    documents: Sequence[Document],
    configuration: Configuration,
    now: float,
    subject: Subject,
    name: str,
    *,
    wants_suggestions: bool,
) -> list[Answer]:
    cluster = SimulatedCluster(configuration, start=now, seed=1)
    cluster.load(documents)
    snapshot = cluster.snapshot()
    plan = cluster.planner.decide(snapshot)
    keys = list(gang_keys(snapshot, subject, name))
    explanations = [found for key in keys if (found := explain(snapshot, plan, key)) is not None]
    if not explanations:
        raise CommandError(
            f"{subject.value} {name}: no gang of this scheduler has it",
            hint="kai-py gangs lists them",
        )
    if not wants_suggestions:
        return [Answer(each, ()) for each in explanations]
    without = settle_changed(documents, (), configuration, now)
    return [
        Answer(
            each,
            suggest(
                documents,
                configuration,
                now=now,
                snapshot=snapshot,
                without=without,
                gang=each.gang,
            ),
        )
        for each in explanations
    ]


def _print(answer: Answer) -> None:
    it = answer.explanation
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
    if answer.suggestions:
        typer.echo("\nIt would start, as simulated, with any of these:")
        for suggestion in answer.suggestions:
            typer.echo(f"  - {_sentence(suggestion)}")


def _sentence(suggestion: Suggestion) -> str:
    cost = f"; {', '.join(suggestion.evicts)} would lose pods" if suggestion.evicts else ""
    see = f" (kai-py what-if {suggestion.command})" if suggestion.command else ""
    return f"{suggestion.text}{cost}{see}"
