"""``kai-py simulate``: hours of a cluster in seconds, and a report."""

import enum
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from kai_py.api.choices import Profile
from kai_py.api.texts import count_of
from kai_py.cli.configuration import ConfigFile, configuration_from
from kai_py.cli.errors import CommandError
from kai_py.cli.input_files import text_of
from kai_py.cli.options import takes_groups
from kai_py.cli.output import (
    OutputOptions,
    ReportFile,
    print_document,
    print_table,
    progress,
    say,
    write_report,
)
from kai_py.cli.sentences import say_sentence
from kai_py.config import Configuration
from kai_py.policy.fairness_rules import PROFILES
from kai_py.simulate.scenarios.fifo import simulate_fifo
from kai_py.simulate.scenarios.goodput import PolicyFigures
from kai_py.simulate.scenarios.measurements import SimulationResult
from kai_py.simulate.scenarios.report import (
    OUR_POLICY,
    SimulationReport,
    duration,
    never_started_rows,
    queue_rows,
    size_rows,
    summarise,
)
from kai_py.simulate.scenarios.scenario import (
    Scenario,
    ScenarioError,
    ScenarioQueue,
    parse_scenario,
)
from kai_py.simulate.scenarios.simulation import simulate
from kai_py.simulate.scenarios.traces import (
    SATURATION_HOURS,
    is_trace,
    parse_jobs,
    parse_nodes,
    saturating_jobs,
    scenario_of,
)


class ComparedPolicy(enum.StrEnum):
    """A policy to compare with."""

    FIFO = "fifo"
    """First in, first out, with aggressive backfill and best fit; no evictions."""
    KAI = "kai"
    """The rules of KAI-Scheduler."""


WAITING = ("GANGS", "NEVER STARTED", "MEDIAN WAIT", "P95 WAIT", "LONGEST")


class TraceOptions(Struct, frozen=True):
    """The options that make a scenario of a list of jobs, and the seed of either."""

    nodes: Annotated[
        Path | None,
        typer.Option(
            help="For a list of jobs: a list of nodes (CSV), or a scenario whose nodes and "
            "queues are used."
        ),
    ] = None
    saturate: Annotated[
        bool,
        typer.Option(
            "--saturate", help="For a list of jobs: fill the nodes in random order; no job ends."
        ),
    ] = False
    hours: Annotated[
        float | None, typer.Option(min=0.01, help="For a list of jobs: end after this many hours.")
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of random arrivals, or of the order of --saturate.")
    ] = None


@takes_groups
def command(
    *,
    file: Annotated[
        Path, typer.Argument(help="The scenario (YAML), or a recorded list of jobs (CSV).")
    ],
    config: ConfigFile = None,
    trace: TraceOptions,
    against: Annotated[
        list[ComparedPolicy] | None,
        typer.Option(help="Also simulate another policy and print both side by side."),
    ] = None,
    cycle_seconds: Annotated[
        float, typer.Option(min=0.1, help="Minimum simulated time between two cycles, in seconds.")
    ] = 1.0,
    report_file: ReportFile = None,
    output: OutputOptions,
) -> None:
    """Play a scenario in simulated time; report use, waiting, fairness, evictions, costs."""
    try:
        scenario = _scenario(file, trace)
    except ScenarioError as error:
        raise CommandError(str(error)) from None
    configuration = configuration_from(config)
    result = _simulate(scenario, configuration, cycle_seconds)
    others = {
        policy.value: _simulate_other(policy, scenario, configuration, cycle_seconds)
        for policy in dict.fromkeys(against or ())
    }
    report = summarise(result, others)
    if report_file is not None:
        # Its charts take long to import, and few ask for it.
        from kai_py.report.simulation_page import simulation_page  # noqa: PLC0415

        page = simulation_page(report, {OUR_POLICY: result} | others, title=file.name)
        write_report(report_file, page)
    if not print_document(report, output.form):
        _print(report)


def _scenario(file: Path, trace: TraceOptions) -> Scenario:
    """The scenario in the file; raises ScenarioError, CommandError."""
    text = text_of(str(file))
    if is_trace(text) or file.suffix == ".csv":
        return _scenario_of_trace(text, str(file), trace)
    if trace.nodes is not None or trace.saturate or trace.hours is not None:
        raise CommandError(f"{file}: --nodes, --saturate and --hours require a list of jobs")
    scenario = parse_scenario(text, name=str(file))
    return scenario if trace.seed is None else scenario.model_copy(update={"seed": trace.seed})


def _scenario_of_trace(text: str, name: str, trace: TraceOptions) -> Scenario:
    recorded = parse_jobs(text, name=name)
    nodes, hours = trace.nodes, trace.hours
    if nodes is None:
        raise CommandError(
            f"{name}: a list of jobs needs nodes: --nodes nodes.csv or scenario.yaml"
        )
    nodes_text = text_of(str(nodes))
    queues: tuple[ScenarioQueue, ...] = ()
    if is_trace(nodes_text):
        machines = parse_nodes(nodes_text, name=str(nodes))
    else:
        scenario = parse_scenario(nodes_text, name=str(nodes))
        machines, queues = scenario.nodes, scenario.queues
    if trace.saturate:
        recorded = saturating_jobs(recorded, machines, seed=trace.seed or 0)
        hours = hours or SATURATION_HOURS
    return scenario_of(recorded, machines, queues, hours=hours)


def _simulate(
    scenario: Scenario, configuration: Configuration, cycle_seconds: float
) -> SimulationResult:
    with progress("simulated hours", scenario.hours) as on_progress:
        return simulate(
            scenario, configuration, cycle_seconds=cycle_seconds, on_progress=on_progress
        )


def _simulate_other(
    policy: ComparedPolicy, scenario: Scenario, configuration: Configuration, cycle_seconds: float
) -> SimulationResult:
    if policy is ComparedPolicy.FIFO:
        if any(kind.interruptions_per_hour for kind in scenario.nodes):
            say("kai-py: fifo is simulated without interruptions of nodes", err=True)
        return simulate_fifo(scenario, PROFILES[configuration.rules])
    theirs = configuration.model_copy(update={"rules": Profile.KAI})
    return _simulate(scenario, theirs, cycle_seconds)


def _print(found: SimulationReport) -> None:
    say_sentence(
        f"{count_of(found.hours, 'hour')} of {count_of(found.gpus, 'GPU')}: "
        f"{found.allocated:.1%} used, "
        f"{found.idle_while_waiting:.1%} idle while gangs requested as many, "
        f"{found.fragmented:.1%} idle on partly used nodes; Jain's fairness index "
        f"{found.jain_index:.3f}; {count_of(found.cycles, 'cycle')}."
    )
    if found.evictions:
        evicted = ", ".join(f"{count} by {action}" for action, count in found.evictions.items())
        say(f"Evicted pods: {evicted}; {found.lost_gpu_hours:.1f} GPU-hours lost.")
    typer.echo()
    print_table(
        (
            "POLICY",
            "USED",
            "USEFUL",
            "LOST",
            "EVICTED",
            "<2MIN",
            "MOST",
            "COMPLETION",
            "WAIT",
            "P99",
        ),
        (_policy_cells(policy, found.gpus * found.hours) for policy in found.policies),
    )
    say(
        "USED, USEFUL, LOST are parts of all GPU-hours; EVICTED counts pods, MOST the evictions of "
        "the gang that was evicted most often; COMPLETION and WAIT are means."
    )
    if found.cost:
        costs = ", ".join(f"{sort} {price:,.0f}" for sort, price in found.cost.items())
        say(f"Cost of the nodes: {costs}.")
    typer.echo()
    headings = ("QUEUE", "RECEIVED", "ENTITLED", "EVICTED", "LOST", *WAITING)
    print_table(headings, queue_rows(found))
    typer.echo("RECEIVED, ENTITLED and LOST are GPU-hours; LOST is what evictions cost.\n")
    print_table(("GPUS OF THE GANG", *WAITING), size_rows(found))
    if found.never_started:
        typer.echo("\nWhy gangs never started, with the reason of one of them:")
    print_table(("QUEUE", "GANGS", "STAGE", "REASON"), never_started_rows(found))


def _policy_cells(policy: PolicyFigures, total: float) -> tuple[str, ...]:
    hours = (policy.used_gpu_hours, policy.useful_gpu_hours, policy.lost_gpu_hours)
    return (
        policy.name,
        *(f"{each / total:.1%}" if total else "-" for each in hours),
        str(policy.evicted_pods),
        str(policy.evicted_within_two_minutes),
        str(policy.most_evictions_of_a_gang),
        duration(policy.mean_completion_seconds),
        duration(policy.waits.mean),
        duration(policy.waits.p99),
    )
