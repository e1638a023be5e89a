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
from typing import Annotated, NamedTuple
from urllib.parse import quote

import typer

from kai_py.cli import completion
from kai_py.cli.cluster_objects import SavedCluster, cluster_objects
from kai_py.cli.connection import (
    ConfigFile,
    Context,
    Kubeconfig,
    cluster_client,
    configuration_from,
)
from kai_py.cli.decisions import seconds_of
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.explanation_text import (
    UNFINISHED,
    ExplanationPrinter,
    _print_suggestions,
    print_explanations,
)
from kai_py.cli.gangs import print_gangs
from kai_py.cli.naming import NamespaceOption, context_namespace, parse_subject
from kai_py.cli.output import (
    JsonFlag,
    Output,
    OutputOption,
    check_known,
    print_document,
    progress,
    say,
)
from kai_py.cli.scheduler_http import (
    DEFAULT_SERVICE,
    SEARCH_SECONDS,
    Link,
    Query,
    SchedulerAddress,
    Service,
    TokenFile,
    ask_list,
    decoded,
    read_or_ask,
)
from kai_py.config import Configuration
from kai_py.observe.event_history import SchedulerEvent, read_scheduler_events
from kai_py.observe.explanation import DELETED, RUNNING, STARTING, Explanation
from kai_py.observe.gang_rows import gang_rows
from kai_py.observe.http_lists import QueuePage
from kai_py.observe.queue_explanation import explain_queue
from kai_py.observe.subject import Subject
from kai_py.simulate.advisor import explain_cluster
from kai_py.simulate.objects import Document
from kai_py.simulate.what_if import LoadedCluster


def command(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="gang, pod, job, claim or queue; or with its name: job/train.",
            show_default=False,
            autocompletion=completion.subjects,
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            help="NAME or NAMESPACE/NAME; of a gang as in `kai-py gangs`.",
            autocompletion=completion.subject_names,
        ),
    ] = "",
    namespace: NamespaceOption = "",
    saved: SavedCluster = None,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = None,
    url: Annotated[
        str, typer.Option(help="URL of a running scheduler; adds its past decisions.")
    ] = "",
    token_file: TokenFile = None,
    service: Service = DEFAULT_SERVICE,
    since: Annotated[
        str, typer.Option(help="Only decisions of this last period, such as 10m or 2h.")
    ] = "",
    suggestions: Annotated[bool, typer.Option(help="Search for changes that would help.")] = True,
    deadline: Annotated[
        str, typer.Option(help="End the search for such changes after this time.")
    ] = "30s",
    output: OutputOption = Output.TABLE,
    json: JsonFlag = False,
) -> None:
    """Tell why something waits and which small change would let it start."""
    configuration = configuration_from(config)
    own_namespace = namespace or ("default" if saved else context_namespace(kubeconfig, context))
    subject, name = parse_subject(kind, name, own_namespace)
    as_text = output in (Output.TABLE, Output.WIDE) and not json
    address = SchedulerAddress(url, token_file, service, kubeconfig, context)
    if subject is Subject.QUEUE:
        page = read_or_ask(
            address,
            lambda: _read_queue(cluster_objects(saved, kubeconfig, context), configuration, name),
            lambda: ask_list(address, f"queues/{quote(name, safe='')}", QueuePage),
        )
        _print_queue(page, output, json=json)
        return

    def ask() -> Sequence[Explanation]:
        query = (("seconds", str(seconds_of("--since", since))),) if since else ()
        path = f"/v1/explain/{subject.value}/{quote(name)}"
        question = _Question(address, path, query)
        return asyncio.run(_ask_scheduler(question, search=suggestions, as_text=as_text))

    def read() -> Sequence[Explanation]:
        documents, now = cluster_objects(saved, kubeconfig, context), time.time()
        end = time.monotonic() + seconds_of("--deadline", deadline)
        printer = ExplanationPrinter()
        # The bar would take the text that is printed meanwhile for its own.
        with nullcontext() if as_text else progress("simulating"):
            found = explain_cluster(
                documents,
                configuration,
                now=now,
                subject=subject,
                name=name,
                with_suggestions=suggestions,
                events=() if saved else _events(kubeconfig, context, configuration, subject, name),
                since=now - seconds_of("--since", since) if since else 0.0,
                has_time=lambda: time.monotonic() < end,
                report=printer.report if as_text else None,
            )
        if as_text and any(each.is_search_unfinished for each in found):
            typer.echo(UNFINISHED)
        return found

    answers = read_or_ask(address, read, ask)
    if not answers:
        raise CommandError(
            f"{subject.value} {name}: not part of any gang of this scheduler",
            hint="kai-py gangs lists them",
        )
    if not as_text:
        print_document(answers, output, json=json)
    if any(answer.state not in (RUNNING, STARTING, DELETED) for answer in answers):
        raise typer.Exit(ExitCode.FOUND)


def _read_queue(
    documents: Sequence[Document], configuration: Configuration, name: str
) -> QueuePage:
    """What is known of a queue and its gangs; raises CommandError if there is none."""
    cluster = LoadedCluster(documents, configuration, time.time())
    plan = cluster.plan()
    names = [share.queue for share in plan.queues]
    check_known("queue", name, names, hint="kai-py queues lists them")
    found = explain_queue(plan, name)
    if found is None:
        raise CommandError(f"queue {name}: not found", hint="kai-py queues lists them")
    rows = [row for row in gang_rows(cluster.snapshot, plan) if row.queue == name]
    return QueuePage(found, rows)


def _print_queue(page: QueuePage, output: Output, *, json: bool) -> None:
    """Print a queue and its gangs; the exit code is 1 where any is pending."""
    found = page.explanation
    if not print_document(found, output, json=json):
        say(f"Queue {found.queue}:")
        for sentence in found.sentences:
            say(f"  {sentence}")
        if page.gangs:
            typer.echo()
            print_gangs(page.gangs, output)
    if found.pending:
        raise typer.Exit(ExitCode.FOUND)


def _events(
    kubeconfig: str, context: str, configuration: Configuration, subject: Subject, name: str
) -> list[SchedulerEvent]:
    """The scheduler's events in the subject's namespace; none if they can't be read."""
    subject_namespace = name.partition("/")[0] if "/" in name else "default"
    namespace = "" if subject is Subject.QUEUE else subject_namespace

    async def read() -> list[SchedulerEvent]:
        async with cluster_client(kubeconfig, context) as client:
            return await read_scheduler_events(client, configuration.scheduler_name, [namespace])

    try:
        return asyncio.run(read())
    except CommandError as error:
        say(f"kai-py: past decisions are unavailable: {error}", err=True)
        return []


class _Question(NamedTuple):
    """What is asked of a running scheduler."""

    address: SchedulerAddress
    path: str
    query: Query


async def _ask_scheduler(
    question: _Question, *, search: bool, as_text: bool
) -> Sequence[Explanation]:
    """Ask why, then what would help: the second takes long, and the first must not wait for it.

    ``as_text``: answers are printed as they come.
    """
    async with question.address.connect(SEARCH_SECONDS) as link:
        answers = await _explanations(link, question, search=False)
        if as_text:
            print_explanations(answers)
        if not search or not any(answer.message for answer in answers):
            return answers
        try:
            with progress("simulating"):
                found = await _explanations(link, question, search=True)
        except CommandError as error:
            say(f"kai-py: no suggestions: {error}", err=True)
            return answers
    if as_text:
        for answer in found:
            _print_suggestions(answer)
    return found


async def _explanations(link: Link, question: _Question, *, search: bool) -> list[Explanation]:
    query = (*question.query, ("suggestions", "true" if search else "false"))
    return decoded(await link.get(question.path, query), list[Explanation])
