"""``kai-py explain``: why a gang is pending, and which small change would let it start.

The cluster is read once and one cycle is run on a copy of it. Every suggestion was simulated: with
it the gang starts. Earlier decisions are read from the scheduler's events, or requested from the
scheduler itself. Nothing is written to any cluster. Exit codes: 0 it runs or starts, 1 it is
pending.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import quote

import typer
from msgspec import Struct

from kai_py.api.choices import Subject
from kai_py.cli import completion
from kai_py.cli.connection import ClusterOptions, cluster_client
from kai_py.cli.decisions import seconds_of
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.explanation_text import UNFINISHED, ExplanationPrinter
from kai_py.cli.gangs import print_gangs
from kai_py.cli.naming import NamespaceOption, context_namespace, parse_subject
from kai_py.cli.options import takes_groups
from kai_py.cli.output import Output, OutputOptions, not_found, print_document, progress, say
from kai_py.cli.reading import SavedCluster, cluster_objects, known_names
from kai_py.cli.scheduler_http import (
    READ_SECONDS,
    SchedulerAddress,
    SchedulerOptions,
    ask_list,
    decoded,
    read_or_ask,
)
from kai_py.cli.sentences import say_sentence
from kai_py.config import Configuration
from kai_py.observe.event_history import ClusterEvent, read_refused_creations, read_scheduler_events
from kai_py.observe.explanation import DELETED, Explanation, ExplanationLine
from kai_py.observe.gang_rows import NOT_PENDING, gang_rows
from kai_py.observe.http_lists import QueuePage
from kai_py.observe.queue_explanation import explain_queue
from kai_py.observe.subject import named
from kai_py.simulate.explained_cluster import SearchReport, explain_cluster
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.absent_gangs import why_outside, workload_named
from kai_py.simulate.what_if import LoadedCluster


class SubjectOptions(Struct, frozen=True):
    """The arguments that name what is explained."""

    kind: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="gang, pod, claim, queue or a kind of workload (job, deployment, rayjob, …), "
            "or with the name: job/train.",
            show_default=False,
            autocompletion=completion.subjects,
        ),
    ]
    name: Annotated[
        str,
        typer.Argument(
            help="NAME or NAMESPACE/NAME; a gang is named as in `kai-py gangs`.",
            autocompletion=completion.subject_names,
        ),
    ] = ""
    namespace: NamespaceOption = ""


class SearchOptions(Struct, frozen=True):
    """The options that say how much is looked for."""

    since: Annotated[
        str, typer.Option(help="Only decisions of the last 10m, 2h or any other period.")
    ] = ""
    suggestions: Annotated[bool, typer.Option(help="Search for changes that would help.")] = True
    deadline: Annotated[
        str, typer.Option(help="End the search for such changes after this time.")
    ] = "30s"


@takes_groups
def command(
    *,
    about: SubjectOptions,
    saved: SavedCluster = None,
    cluster: ClusterOptions,
    scheduler: SchedulerOptions,
    search: SearchOptions,
    output: OutputOptions,
) -> None:
    """Tell why something waits and which small change would let it start."""
    configuration = cluster.configuration()
    own_namespace = about.namespace or (
        "default" if saved else context_namespace(cluster.kubeconfig, cluster.context)
    )
    subject, name = parse_subject(about.kind, about.name, own_namespace)
    seconds_of("--deadline", search.deadline)
    if search.since:
        seconds_of("--since", search.since)
    address = scheduler.address(cluster)
    if subject is Subject.QUEUE:
        page = read_or_ask(
            address,
            lambda: _read_queue(saved, cluster, configuration, name),
            lambda: ask_list(address, f"queues/{quote(name, safe='')}", QueuePage),
        )
        _print_queue(page, output.form)
        return
    question = _Question(subject, name, search, as_text=output.is_text)
    answers = read_or_ask(
        address,
        lambda: _explain_here(question, saved, cluster, configuration),
        lambda: asyncio.run(_ask_scheduler(question, address)),
    )
    if not answers:
        raise _not_in_a_gang(question)
    if not output.is_text:
        print_document(answers, output.form)
    if any(answer.state not in (*NOT_PENDING, DELETED) for answer in answers):
        raise typer.Exit(ExitCode.FOUND)


class _Question(NamedTuple):
    """What is to be explained; with ``as_text``, answers are printed as they come."""

    subject: Subject
    name: str
    search: SearchOptions
    as_text: bool


def _explain_here(
    question: _Question, saved: Path | None, cluster: ClusterOptions, configuration: Configuration
) -> Sequence[Explanation]:
    """The answers by a cycle run on the cluster or on what was saved of one."""
    documents, now = cluster_objects(saved, cluster), time.time()
    search, as_text = question.search, question.as_text
    end = time.monotonic() + seconds_of("--deadline", search.deadline)
    printer = ExplanationPrinter()
    # The bar would take the text that is printed meanwhile for its own.
    with nullcontext() if as_text else progress("simulating"):
        found = explain_cluster(
            documents,
            configuration,
            now=now,
            subject=question.subject,
            name=question.name,
            with_suggestions=search.suggestions,
            events=() if saved else _events(question, cluster, configuration),
            since=now - seconds_of("--since", search.since) if search.since else 0.0,
            has_time=lambda: time.monotonic() < end,
            report=printer.report if as_text else None,
        )
    if as_text and any(each.is_search_unfinished for each in found):
        typer.echo(UNFINISHED)
    if not found:
        _check_name(question, documents, configuration, saved)
        raise _not_in_a_gang(
            question, why_outside(documents, configuration, question.subject, question.name)
        )
    return found


def _not_in_a_gang(question: _Question, why: str = "") -> CommandError:
    text = f"{named(question.subject, question.name)}: not part of any gang of this scheduler"
    return CommandError(f"{text}: {why}" if why else text, hint="kai-py gangs lists all gangs")


def _check_name(
    question: _Question,
    documents: Sequence[Document],
    configuration: Configuration,
    saved: Path | None,
) -> None:
    """Raise CommandError unless there is such an object, or a gang as `kai-py gangs` lists it."""
    if workload_named(documents, question.subject, question.name) is not None:
        return
    namespace, *kinds, own_name = question.name.split("/")
    kind = (*kinds, "")[0] if question.subject is Subject.WORKLOAD else _KINDS.get(question.subject)
    metadata = [each["metadata"] for each in documents if each.get("kind", "").lower() == kind]
    known = (
        [f"{each.get('namespace', 'default')}/{each['name']}" for each in metadata]
        if kind is not None
        else list(LoadedCluster(documents, configuration, time.time()).snapshot.gangs)
    )
    name = question.name if kind is None else f"{namespace}/{own_name}"
    if name not in known:
        what = named(question.subject, question.name)
        hint = known_names(saved, known, _listing(kind, namespace))
        raise not_found(what, name, known, hint=hint)


_KINDS = {Subject.POD: "pod", Subject.JOB: "job", Subject.CLAIM: "resourceclaim"}


def _listing(kind: str | None, namespace: str) -> str:
    """What lists the objects of a kind in ``namespace``; None: gangs."""
    if kind in (None, _KINDS[Subject.JOB]):
        return "kai-py gangs"
    return f"kubectl get {kind}s -n {namespace}"


def _read_queue(
    saved: Path | None, options: ClusterOptions, configuration: Configuration, name: str
) -> QueuePage:
    """What is known of a queue and its gangs; raises CommandError if there is none."""
    cluster = LoadedCluster(cluster_objects(saved, options), configuration, time.time())
    plan = cluster.plan(last=True)
    found = explain_queue(cluster.snapshot, plan, name)
    if found is None:
        names = sorted(share.queue for share in plan.queues)
        hint = known_names(saved, names, "kai-py queues")
        raise not_found(f"queue {name}", name, names, hint=hint)
    rows = [row for row in gang_rows(cluster.snapshot, plan) if row.queue == name]
    return QueuePage(found, rows)


def _print_queue(page: QueuePage, form: Output) -> None:
    """Print a queue and its gangs; the exit code is 1 where any is pending."""
    found = page.explanation
    if not print_document(found, form):
        say(f"Queue {found.queue}:")
        for sentence in found.sentences:
            say_sentence(f"  {sentence}")
        if page.gangs:
            typer.echo()
            print_gangs(page.gangs, form)
    if found.pending:
        raise typer.Exit(ExitCode.FOUND)


def _events(
    question: _Question, cluster: ClusterOptions, configuration: Configuration
) -> list[ClusterEvent]:
    """The events of the scheduler and of controllers that can't create pods, of the namespace.

    None if they can't be read.
    """
    namespace = question.name.partition("/")[0] if "/" in question.name else "default"

    async def read() -> list[ClusterEvent]:
        async with cluster_client(cluster.kubeconfig, cluster.context) as client:
            name = configuration.scheduler_name
            decisions = await read_scheduler_events(client, name, [namespace])
            return [*decisions, *await read_refused_creations(client, namespace)]

    try:
        return asyncio.run(read())
    except CommandError as error:
        say(f"kai-py: past decisions are unavailable: {error}", err=True)
        return []


async def _ask_scheduler(question: _Question, address: SchedulerAddress) -> Sequence[Explanation]:
    """Ask why, and what would help: the search takes long, and the reason must not wait for it."""
    report = ExplanationPrinter().report if question.as_text else SearchReport()
    search, path = question.search, f"/v1/explain/{question.subject.value}/{quote(question.name)}"
    query = (
        *((("seconds", str(seconds_of("--since", search.since))),) if search.since else ()),
        ("suggestions", "true" if search.suggestions else "false"),
        ("stream", "true"),
    )
    answers: Sequence[Explanation] = ()
    async with address.connect(READ_SECONDS) as link:
        try:
            # The bar would take the text that is printed meanwhile for its own.
            with progress("simulating") if not question.as_text else nullcontext():
                async for line in link.lines(path, query):
                    news = decoded(line, ExplanationLine)
                    answers = news.finished or news.explained or answers
                    if news.explained is not None:
                        report.on_explained(news.explained)
                    if news.suggestion is not None:
                        report.on_found(news.gang, news.suggestion)
        except CommandError as error:
            if not answers:
                raise
            say(f"kai-py: no more suggestions: {error}", err=True)
    if question.as_text and any(each.is_search_unfinished for each in answers):
        typer.echo(UNFINISHED)
    return answers
