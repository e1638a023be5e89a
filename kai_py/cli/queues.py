"""``kai-py queues``: what ``kubectl get queues`` cannot show: fair share, use and who waits.

The cluster is read once and one cycle is run on it, so the shares are those the scheduler works
with now.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.connection import Context, Kubeconfig
from kai_py.cli.output import JsonFlag, Output, OutputOption, print_document
from kai_py.cli.reading import look_and_plan
from kai_py.cli.tables import print_table
from kai_py.observe.queue_rows import QueueRow, in_tree_order, queue_rows
from kai_py.snapshot.accounting import GPU

HEADINGS = (
    "QUEUE", "DESERVED", "MAX", "FAIR SHARE", "ALLOCATED", "REQUESTED", "PENDING", "PROBLEM",
)  # fmt: skip
WIDE_HEADINGS = (HEADINGS[0], "RESOURCE", *HEADINGS[1:])


def command(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = None,
    resource: Annotated[str, typer.Option(help="Resource to show: gpu, cpu, memory, …")] = GPU,
    output: OutputOption = Output.TABLE,
    json: JsonFlag = False,
) -> None:
    """List queues with fair share, use and pending gangs."""
    _, plan = look_and_plan(kubeconfig, context, configuration_from(config))
    rows = list(queue_rows(plan))
    if print_document(rows, output, json=json):
        return
    if output is Output.WIDE:
        print_table(WIDE_HEADINGS, _wide_rows(rows))
    else:
        print_table(HEADINGS, (_cells(row, depth, resource) for depth, row in in_tree_order(rows)))


def _wide_rows(rows: Iterable[QueueRow]) -> Iterator[tuple[str, ...]]:
    """A line per queue and resource of which it has, wants or is owed any."""
    for depth, row in in_tree_order(rows):
        views = (row.fair_share, row.allocated, row.requested)
        used = sorted({name for view in views for name, amount in view.items() if amount})
        for resource in used or [GPU]:
            queue, *others = _cells(row, depth, resource)
            yield (queue, resource, *others)


def _cells(row: QueueRow, depth: int, resource: str) -> tuple[str, ...]:
    stages = ", ".join(f"{count} {stage}" for stage, count in sorted(row.pending_by_stage.items()))
    views = (row.deserved, row.max, row.fair_share, row.allocated, row.requested)
    return (
        "  " * depth + row.queue,
        *(_amount(view.get(resource, 0.0)) for view in views),
        stages or "-",
        "; ".join(row.problems),
    )


def _amount(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.10g}" if amount >= 1e6 else f"{amount:.6g}"
