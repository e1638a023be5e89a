"""``kai-py plan``: what the scheduler decides about objects in files.

Nothing is read from or written to a cluster.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kai_py.api.records.unstructured import mapping_at, value_at
from kai_py.api.texts import count_of
from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.errors import ExitCode
from kai_py.cli.input_files import paths_of, read_objects
from kai_py.cli.options import LATEST_TIME, takes_groups
from kai_py.cli.other_schedulers import say_other_schedulers
from kai_py.cli.output import OutputOptions, print_document, print_table, progress, say
from kai_py.config import Configuration
from kai_py.simulate.files.manifest_pods import WORKLOADS
from kai_py.simulate.files.objects import Document
from kai_py.simulate.offline_plan import MAX_CYCLES, OfflinePlan, plan_objects


@takes_groups
def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Objects: kubectl's lists, YAML streams, directories, a file of `kai-py "
            "snapshot`; - is standard input.",
        ),
    ],
    *,
    cycles: Annotated[
        int, typer.Option(min=1, max=MAX_CYCLES, help="Number of cycles to run.")
    ] = 1,
    until_rest: Annotated[
        bool, typer.Option("--until-rest", help="Run cycles until one decides nothing.")
    ] = False,
    config: ConfigFile = None,
    now: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=LATEST_TIME,
            help="Time of the cycles, seconds since 1970; by default that of the files.",
        ),
    ] = None,
    output: OutputOptions,
) -> None:
    """Print what the scheduler decides, as if everything it decides happened at once."""
    configuration = configuration_from(config)
    with progress("reading"):
        given = read_objects(paths_of(files))
    with progress("planning") as report:
        found = plan_objects(
            given,
            configuration,
            cycles=cycles,
            until_rest=until_rest,
            now=now,
            on_cycle=report,
        )
    if not any(each.get("kind") == "Node" for each in given.documents):
        say("kai-py: no Node is among these objects, so no pod can be placed", err=True)
    _say_other_pools(given.documents, configuration)
    say_other_schedulers(given.documents, configuration)
    if not (found.placements or found.pending or found.evictions or found.rejected):
        name = configuration.scheduler_name
        say(f"kai-py: no pod among these objects waits for schedulerName {name}", err=True)
    if not print_document(found, output.form):
        _print_tables(found)
    if not given.documents:
        raise typer.Exit(ExitCode.USAGE)


def _say_other_pools(documents: Sequence[Document], configuration: Configuration) -> None:
    """Say what is left out because another scheduler owns its node pool."""
    key, own = configuration.node_pool.label, configuration.node_pool.name
    names = configuration.scheduler_name, *configuration.scheduler_aliases
    pool = f'pool "{own}"' if own else "the pool without that label"
    for kinds in ("Nodes", "Pods", "Workloads"):
        others = sum(
            mapping_at(labelled, "metadata.labels").get(key, "") != own
            for each in documents
            if (labelled := _labelled(kinds, each, names)) is not None
        )
        if others:
            text = f"{kinds} of other node pools (label {key}) are left out: {others}"
            say(f"kai-py: {text}; only {pool} is planned, see nodePool.name", err=True)


def _labelled(kinds: str, document: Document, schedulers: Sequence[str]) -> Any:
    """What of a document has the label of its pool; None if it is not of these kinds."""
    kind = (document["apiVersion"].rpartition("/")[0], document["kind"])
    if kinds == "Nodes":
        return document if kind == ("", "Node") else None
    if kinds == "Pods":
        labelled = document if kind == ("", "Pod") else None
    else:
        is_new = kind in WORKLOADS and not document["metadata"].get("uid")
        labelled = value_at(document, "spec.template") if is_new else None
    return labelled if value_at(labelled or {}, "spec.schedulerName") in schedulers else None


def _print_tables(found: OfflinePlan) -> None:
    sections = (
        (
            "Placed",
            ("POD", "CYCLE", "NODE"),
            [(each.pod, str(each.cycle), each.node) for each in found.placements],
        ),
        (
            "Evicted",
            ("POD", "CYCLE", "RULE", "FOR", "REASON"),
            [
                (each.pod, str(each.cycle), each.rule, each.preemptor, each.reason)
                for each in found.evictions
            ],
        ),
        (
            "Nominated",
            ("POD", "CYCLE", "NODE"),
            [(each.pod, str(each.cycle), each.node) for each in found.nominations],
        ),
        (
            "Pending",
            ("GANG", "PODS", "STAGE", "REASON"),
            [(each.gang, str(len(each.pods)), each.stage, each.message) for each in found.pending],
        ),
        (
            "Rejected",
            ("OBJECT", "PROBLEM"),
            [(each.object, each.problem) for each in found.rejected],
        ),
    )
    for title, headings, rows in sections:
        if rows:
            say(f"{title}:")
            print_table(headings, rows)
            typer.echo()
    state = "at rest" if found.rest else "not at rest"
    say(f"{state} after {count_of(found.cycles, 'cycle')}")
