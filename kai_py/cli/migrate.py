"""``kai-py migrate``: whether KAI-Scheduler's objects work unchanged, and what a switch would do.

Each object and setting of KAI that matters is reported with a verdict. With ``--plan``, the cluster
is read once, one cycle is planned for it, and the outcome for each gang is printed. Nothing is
written to the cluster.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml
from msgspec import Struct

from kai_py.api.choices import Profile
from kai_py.cli.connection import ClusterOptions, cluster_client
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.input_files import paths_of
from kai_py.cli.input_files import read_objects as read_files
from kai_py.cli.options import takes_groups
from kai_py.cli.output import Output, OutputOptions, print_document, print_table, say, write_files
from kai_py.cli.reading import plan_cluster
from kai_py.config import Configuration, ConfigurationError, parse_configuration
from kai_py.dialects.kai.configurations import configurations_of, kind_defaults
from kai_py.dialects.kai.migration import MigrationNote, migration_notes
from kai_py.dialects.kai.pod_features import Compatibility
from kai_py.plan.plan import Eviction, Plan
from kai_py.simulate.files.objects import read_objects
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.errors import Forbidden, NotFound

HEADINGS = ("VERDICT", "OBJECT", "FIELD", "WHAT")
PLAN_HEADINGS = ("GANG", "QUEUE", "NOW", "OUTCOME", "REASON")
SETTINGS = (
    ("SchedulingShard", "/apis/kai.scheduler/v1/schedulingshards"),
    ("Config", "/apis/kai.scheduler/v1/configs"),
)
CONFIG_MAPS = "/api/v1/namespaces/kai-scheduler/configmaps"
"""Where KAI keeps the defaults for each kind."""


@takes_groups
def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Manifests or directories; - reads standard input."),
    ] = None,
    *,
    cluster: ClusterOptions,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Print what would start, wait and be evicted if kai_py took over the cluster now.",
        ),
    ] = False,
    write_config: Annotated[
        Path | None,
        typer.Option(
            help="Write KAI's settings as configurations into this directory, one per shard."
        ),
    ] = None,
    output: OutputOptions,
) -> None:
    """Report what works unchanged, what has another meaning, and what has no counterpart.

    Reads the files, or the cluster where none is named. Exits with 1 when something has no
    counterpart here.
    """
    if plan:
        if files or write_config is not None:
            raise CommandError("--plan cannot be combined with FILE or --write-config")
        _show_plan(cluster, output.form)
        return
    documents = (
        _read_files(files) if files else asyncio.run(_served(cluster.kubeconfig, cluster.context))
    )
    if write_config is not None:
        _write(write_config, configurations_of(documents))
    notes = list(migration_notes(documents))
    if not print_document(notes, output.form):
        print_table(HEADINGS, (_row(note) for note in notes))
        say(_summary(notes))
    if any(note.compatibility is Compatibility.MISSING for note in notes):
        raise typer.Exit(ExitCode.FOUND)


def _show_plan(cluster: ClusterOptions, form: Output) -> None:
    """Print the outcome for each gang, by KAI's rules unless a configuration is named."""
    named = cluster.config is not None
    configuration = cluster.configuration() if named else Configuration(rules=Profile.KAI)
    outcomes = list(gang_outcomes(*plan_cluster(cluster, configuration)))
    names = (each.gang for each in outcomes)
    if not print_document(outcomes, form, names=names):
        print_outcomes(outcomes)


def _write(directory: Path, configurations: Mapping[str, Any]) -> None:
    """Write a file per configuration; raises CommandError for one that is not valid."""
    for name, document in configurations.items():
        if not name or "/" in name:
            raise CommandError(f"SchedulingShard {name}: is not a name")
        path = directory / f"{name}.yaml"
        text = yaml.safe_dump(document, sort_keys=False)
        try:
            parse_configuration(text, name=str(path))
        except ConfigurationError as error:
            raise CommandError(f"SchedulingShard {name} has an invalid value: {error}") from None
        write_files(directory, {path.name: text})
        say(f"wrote {path}", err=True)


async def _served(kubeconfig: str, context: str) -> list[Any]:
    """The objects that the scheduler watches, and KAI's own settings where they are served."""
    async with cluster_client(kubeconfig, context) as client:
        documents = await read_objects(client)
        for kind, path in SETTINGS:
            with suppress(NotFound, Forbidden):
                items = msgspec.json.decode(await client.read(path, kind=kind))["items"]
                type_fields = {"apiVersion": "kai.scheduler/v1", "kind": kind}
                documents += [{**type_fields, **item} for item in items]
        with suppress(NotFound, Forbidden):
            items = msgspec.json.decode(await client.read(CONFIG_MAPS, kind="ConfigMap"))["items"]
            found = ({"apiVersion": "v1", "kind": "ConfigMap", **item} for item in items)
            documents += [each for each in found if any(kind_defaults(each))]
    return documents


def _read_files(files: list[str]) -> list[Any]:
    """The objects of the files; raises CommandError if something in them is none."""
    found = read_files(paths_of(files))
    for each in found.rejected:
        raise CommandError(f"{each.object}: {each.problem}")
    return found.documents


def _row(note: MigrationNote) -> tuple[str, ...]:
    return note.compatibility.value, note.subject, note.field or "-", note.text


def _summary(notes: list[MigrationNote]) -> str:
    counts = [(v, sum(note.compatibility is v for note in notes)) for v in Compatibility]
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts)


class SwitchEffect(StrEnum):
    """The outcome for a gang."""

    RUNS = "runs"
    STARTS = "starts"
    WAITS = "waits"
    EVICTED = "evicted"


class SwitchOutcome(Struct, frozen=True):
    """The outcome for a gang; ``bound`` of its ``pods`` are bound now."""

    gang: str
    queue: str
    bound: int
    pods: int
    outcome: SwitchEffect
    why: str


def gang_outcomes(snapshot: Snapshot, plan: Plan) -> Iterator[SwitchOutcome]:
    """One outcome per gang, by key. A gang counts as evicted if any of its pods is."""
    evicted: dict[str, Eviction] = {}
    for eviction in plan.evictions:
        evicted.setdefault(eviction.gang, eviction)
    waiting = {each.gang: each.message for each in plan.unplaced}
    placed = {each.gang for each in plan.placements}
    nominated = {each.gang for each in plan.nominations}
    for key, gang in sorted(snapshot.gangs.items()):
        if key in evicted:
            yield _outcome(gang, SwitchEffect.EVICTED, evicted[key].reason)
        elif key in placed:
            yield _outcome(gang, SwitchEffect.STARTS, "")
        elif key in nominated:
            yield _outcome(gang, SwitchEffect.STARTS, "once its victims have ended")
        elif key in waiting:
            yield _outcome(gang, SwitchEffect.WAITS, waiting[key])
        else:
            yield _outcome(gang, SwitchEffect.RUNS, "")


def _outcome(gang: Gang, outcome: SwitchEffect, why: str) -> SwitchOutcome:
    return SwitchOutcome(gang.key, gang.queue, len(gang.bound), len(gang.members), outcome, why)


def print_outcomes(outcomes: Sequence[SwitchOutcome]) -> None:
    """Print the gangs that do not just keep running, and how often each outcome occurs."""
    rows = [
        (
            each.gang,
            each.queue or "-",
            f"{each.bound}/{each.pods} bound",
            each.outcome.value,
            each.why,
        )
        for each in outcomes
        if each.outcome is not SwitchEffect.RUNS
    ]
    if rows:
        print_table(PLAN_HEADINGS, rows)
    counts = [(sum(each.outcome is known for each in outcomes), known) for known in SwitchEffect]
    say(", ".join(f"{known.value}: {count}" for count, known in counts))
