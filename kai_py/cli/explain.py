"""``kai-py explain``: why does it wait, and which small change would let it start?

The cluster is read once and one cycle is run on a copy of it. Every suggestion was simulated: with
it the gang starts. Nothing is written to any cluster. Exit codes: 0 it runs or starts, 1 it waits.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer

from kai_py.cli.claim_funnel import print_claim
from kai_py.cli.cluster_objects import Saved, cluster_objects
from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.connection import Context, Kubeconfig
from kai_py.cli.decisions import seconds_of
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.output import JsonFlag, Output, OutputOption, print_document
from kai_py.cli.progress import progress
from kai_py.cli.scheduler_http import TokenFile, read, session
from kai_py.cli.tables import print_table
from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.observe.explanation import GONE, RUNNING, STARTING, Explanation, Subject
from kai_py.observe.suggestion import Suggestion, Verb
from kai_py.simulate.advice import advise

MOST_NODES_TOLD = 4


def command(
    *,
    subject: Annotated[Subject, typer.Argument(help="What NAME is.")],
    name: Annotated[str, typer.Argument(help="NAMESPACE/NAME; of a gang as in `kai-py gangs`.")],
    saved: Saved = None,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = None,
    url: Annotated[
        str, typer.Option(help="Ask a running scheduler, which also knows what it decided.")
    ] = "",
    token_file: TokenFile = None,
    since: Annotated[
        str, typer.Option(help="With --url: only decisions of this time, like 10m or 2h.")
    ] = "",
    suggestions: Annotated[bool, typer.Option(help="Look for changes that would help.")] = True,
    output: OutputOption = Output.TABLE,
    json: JsonFlag = False,
) -> None:
    """Tell why something waits and which small change would let it start."""
    configuration = configuration_from(config)
    with progress("simulating"):
        if url:
            query = {"suggestions": "true" if suggestions else "false"}
            query |= {"seconds": str(seconds_of("--since", since))} if since else {}
            path = f"/v1/explain/{subject.value}/{quote(name)}"
            answers = asyncio.run(_asked(url, path, query, token_file))
        else:
            answers = advise(
                cluster_objects(saved, kubeconfig, context),
                configuration,
                now=time.time(),
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
    if any(answer.state not in (RUNNING, STARTING, GONE) for answer in answers):
        raise typer.Exit(ExitCode.FOUND)


async def _asked(
    url: str, path: str, query: dict[str, str], token_file: Path | None
) -> list[Explanation]:
    async with session(token_file) as asking:
        body = await read(asking, url, path, query)
    return msgspec.json.decode(body, type=list[Explanation])


def _print(it: Explanation) -> None:
    runs = f": {it.bound} of {it.pods} pods run, {it.floor} are needed" if it.pods else ""
    typer.echo(f"{it.gang} is {it.state}{runs}.")
    if it.message:
        typer.echo(f"  {it.message}")
    if it.nodes:
        typer.echo(f"  It runs on {', '.join(it.nodes)}.")
    if it.position:
        gained = f", and {it.gained} for waiting" if it.gained else ""
        typer.echo(
            f"  It is number {it.position} of {it.waiting} that wait in queue {it.queue} "
            f"(priority {it.priority}{gained})."
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
    if it.claim is not None:
        print_claim(it.claim)
    if it.history:
        typer.echo("\nWhat was decided:")
        for decision in it.history:
            typer.echo(f"  {_happened(it, decision)}")
    if it.suggestions:
        typer.echo("\nIt would start, as simulated, with any of these:")
        for suggestion in it.suggestions:
            cost = f"; {', '.join(suggestion.evicts)} would lose pods" if suggestion.evicts else ""
            typer.echo(f"  - {suggestion.text}{cost}")
            for command in _commands(suggestion):
                typer.echo(f"      {command}")


def _happened(it: Explanation, decision: Decision) -> str:
    """A decision about the gang, or about another one in its favour, in a line."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(decision.time))
    pods = f"{len(decision.pods)} pods on {', '.join(decision.nodes[:MOST_NODES_TOLD])}"
    match decision.kind:
        case DecisionKind.PLACED:
            what = f"placed by {decision.action}, {pods}: {decision.message}"
        case DecisionKind.EVICTED if decision.gang == it.gang:
            what = (
                f"evicted by {decision.action} for {decision.beneficiary} "
                f"({decision.beneficiary_queue}), {pods}: {decision.message}"
            )
        case DecisionKind.EVICTED:
            what = f"{decision.gang} had to leave for it, {pods}: {decision.message}"
        case DecisionKind.NOMINATED:
            what = f"promised room, {pods}"
        case DecisionKind.WAITING:
            what = f"waits, {decision.stage}: {decision.message}"
        case DecisionKind.GONE:
            what = "was taken away while it waited"
    return f"{at}  {what}"


def _commands(suggestion: Suggestion) -> Iterator[str]:
    """What to type for it, as far as that can be told in a line."""
    for step in suggestion.steps:
        if step.command:
            yield step.command
        elif step.verb is not Verb.ADD_NODES:
            yield f"{step.verb} {step.kind} {step.name} (-o json has its manifest)"
