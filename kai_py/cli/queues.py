"""``kai-py queues``: fair shares, usage and pending gangs of queues.

The cluster is read once and one cycle is run on it, so the shares are those the scheduler works
with now.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated
from urllib.parse import quote

import typer

from kai_py.cli import completion
from kai_py.cli.connection import ClusterOptions
from kai_py.cli.options import takes_groups
from kai_py.cli.output import Output, OutputOptions, check_known, print_document, print_table, say
from kai_py.cli.reading import divide_quota, plan_cluster
from kai_py.cli.scheduler_http import SchedulerOptions, ask_list, read_or_ask
from kai_py.cli.sentences import say_sentence
from kai_py.config import Configuration
from kai_py.observe.cluster_state import QueueRow, in_tree_order, queue_rows
from kai_py.observe.http_lists import QueueList, QueuePage
from kai_py.observe.queue_explanation import QueueExplanation
from kai_py.observe.share_steps import (
    NO_LIMIT,
    ShareStep,
    SiblingShare,
    format_amount,
    share_sentences,
    share_steps,
    unit_text,
)
from kai_py.snapshot.accounting import GPU

ExplainedShare = Sequence[ShareStep] | QueueExplanation
"""The steps of the division, or without rights what the scheduler reports of the queue."""
HEADINGS = (
    "QUEUE", "DESERVED", "MAX", "FAIR SHARE", "ALLOCATED", "REQUESTED", "PENDING", "PROBLEM",
)  # fmt: skip
WIDE_HEADINGS = (HEADINGS[0], "RESOURCE", *HEADINGS[1:])
NO_QUEUES = (
    "no queues: no object of kind Queue exists "
    "(kubectl explain queues.scheduling.kai.io; kai-py crds | kubectl apply -f - installs it)"
)
LISTED = "kai-py queues lists them"
SHARE_HEADINGS = (
    "QUEUE", "PRIORITY", "WEIGHT", "PAST USAGE", "REQUESTED", "MAX", "DESERVED", "GUARANTEED",
    "WEIGHT SHARE", "FROM REMAINDER", "FAIR SHARE",
)  # fmt: skip


@takes_groups
def command(
    *,
    name: Annotated[
        str, typer.Argument(help="Only this queue.", autocompletion=completion.queues)
    ] = "",
    cluster: ClusterOptions,
    resource: Annotated[str, typer.Option(help="Resource to show: gpu, cpu, memory, …")] = GPU,
    explain: Annotated[
        str,
        typer.Option(
            metavar="QUEUE",
            help="Explain the fair share of QUEUE.",
            autocompletion=completion.queues,
        ),
    ] = "",
    scheduler: SchedulerOptions,
    output: OutputOptions,
) -> None:
    """List queues with fair share, allocation and pending gangs.

    Without the right to read the cluster, the scheduler lists the queues that you may get and
    those of your namespaces.
    """
    configuration = cluster.configuration()
    address = scheduler.address(cluster)
    if explain:

        def read() -> ExplainedShare:
            return _steps(cluster, configuration, explain, resource)

        def ask() -> ExplainedShare:
            return ask_list(address, f"queues/{quote(explain, safe='')}", QueuePage).explanation

        answer = read_or_ask(address, read, ask)
        if not print_document(answer, output.form):
            _print_explanation(answer)
        return
    listing = read_or_ask(
        address,
        lambda: _read(cluster, configuration),
        lambda: ask_list(address, "list/queues", QueueList),
    )
    check_known("queue", name, (row.queue for row in listing.queues), hint=LISTED)
    rows = [row for row in listing.queues if name in ("", row.queue)]
    resources = {GPU}.union(*(row.deserved for row in listing.queues))
    check_known("--resource", resource, resources, hint="-o wide lists them")
    if print_document(rows, output.form, names=(row.queue for row in rows)):
        return
    if not rows:
        typer.echo(NO_QUEUES, err=True)
    elif output.form is Output.WIDE:
        print_table(WIDE_HEADINGS, _wide_rows(rows))
    else:
        print_table(HEADINGS, (_cells(row, depth, resource) for depth, row in in_tree_order(rows)))
    if listing.others is not None and not name:
        amount = _amount(listing.others.get(resource, 0.0))
        say(f"Other queues have {amount} {unit_text(resource)} allocated.", err=True)


def _read(cluster: ClusterOptions, configuration: Configuration) -> QueueList:
    return QueueList(0, list(queue_rows(*plan_cluster(cluster, configuration))))


def _steps(
    cluster: ClusterOptions, configuration: Configuration, queue: str, resource: str
) -> Sequence[ShareStep]:
    quota = divide_quota(cluster, configuration)
    check_known("queue", queue, quota.queues.names, hint=LISTED)
    check_known("--resource", resource, quota.resources, hint="-o wide lists them")
    return share_steps(quota, queue, resource)


def _print_explanation(answer: ExplainedShare) -> None:
    """Print the steps of the division, or what the scheduler reports of the queue."""
    if isinstance(answer, QueueExplanation):
        for sentence in answer.sentences:
            say(sentence)
        return
    steps = answer
    for sentence in share_sentences(steps):
        say_sentence(sentence)
    for step in steps:
        say("")
        say(f"{unit_text(step.resource)} of {step.parent or 'the cluster'}:")
        print_table(SHARE_HEADINGS, (_share_cells(each) for each in step.siblings))


def _share_cells(share: SiblingShare) -> tuple[str, ...]:
    bounds = (share.requested, share.maximum, share.deserved, share.guaranteed)
    return (
        share.queue,
        str(share.priority),
        _amount(share.weight),
        "-" if share.past_usage is None else f"{share.past_usage:.1%}",
        *(_amount(None if math.isinf(amount) else amount) for amount in bounds),
        f"{share.weight_share:.1%}",
        _amount(share.from_remainder),
        _amount(share.fair_share),
    )


def _wide_rows(rows: Iterable[QueueRow]) -> Iterator[tuple[str, ...]]:
    """A line per queue and resource of which any is allocated, requested or in its fair share."""
    for depth, row in in_tree_order(rows):
        views = (*row.fair_share.items(), *row.allocated.items(), *row.requested.items())
        used = sorted({name for name, amount in views if amount or amount is None})
        for resource in used or [GPU]:
            queue, *others = _cells(row, depth, resource)
            yield (queue, resource, *others)


def _cells(row: QueueRow, depth: int, resource: str) -> tuple[str, ...]:
    stages = ", ".join(f"{count} {stage}" for stage, count in sorted(row.pending_by_stage.items()))
    entitled = (row.deserved.get(resource, 0.0), row.fair_share.get(resource, 0.0))
    deserved, fair_share = (NO_LIMIT if each is None else format_amount(each) for each in entitled)
    return (
        "  " * depth + row.queue,
        deserved,
        _amount(row.max.get(resource, 0.0)),
        fair_share,
        *(format_amount(view.get(resource, 0.0)) for view in (row.allocated, row.requested)),
        stages or "-",
        "; ".join(row.problems),
    )


def _amount(amount: float | None) -> str:
    return "-" if amount is None else format_amount(amount)
