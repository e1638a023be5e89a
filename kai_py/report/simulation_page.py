"""The report of a simulation as a page: use, goodput, shares, waits, evictions and cost.

Policies that are compared stand side by side, with the same scales.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from kai_py.api.texts import count_of
from kai_py.api.times import HOUR
from kai_py.report.page import (
    COLORS,
    Curve,
    bars,
    curves,
    heading,
    html_page,
    paragraph,
    plot,
    table,
    waiting_times,
)
from kai_py.simulate.scenarios.entitlement import EntitledGpus
from kai_py.simulate.scenarios.goodput import PolicyFigures
from kai_py.simulate.scenarios.measurements import PodAttempt, SimulationResult
from kai_py.simulate.scenarios.report import (
    MAX_SAMPLES,
    OUR_POLICY,
    SimulationReport,
    duration,
    never_started_rows,
    queue_rows,
    size_groups,
    size_rows,
    usage_samples,
)
from kai_py.snapshot.resources import Floats

MAX_QUEUES = 12
"""Queues with a panel of their own: those that were entitled to the most."""
ALLOCATED, REQUESTED, USEFUL, IDLE, ENTITLED = COLORS[0], COLORS[1], COLORS[2], COLORS[4], COLORS[1]


def simulation_page(
    report: SimulationReport, results: Mapping[str, SimulationResult], *, title: str
) -> str:
    """The whole page; ``results``: those of ``report.policies`` by their names, ours first."""
    parts = [
        paragraph(
            f"{count_of(report.hours, 'hour')} of {count_of(report.gpus, 'GPU')}: "
            f"{report.allocated:.1%} used, "
            f"{report.idle_while_waiting:.1%} idle while gangs requested as many, "
            f"{report.fragmented:.1%} idle on partly used nodes, Jain's fairness index "
            f"{report.jain_index:.3f}, {report.lost_gpu_hours:.1f} GPU-hours lost to evictions."
        ),
        _policies(report),
        heading("Use and goodput"),
        _use(report, results),
        heading("Shares of the queues"),
        _shares(results),
        table((*_QUEUE_HEADINGS, *_WAITING_HEADINGS), queue_rows(report)),
        heading("Waiting times by GPUs of the gang"),
        _waits(results),
        table(("GPUs", *_WAITING_HEADINGS), size_rows(report)),
        table(_NEVER_STARTED_HEADINGS, never_started_rows(report)),
        heading("Evictions and lost work"),
        _evictions(report.policies, results),
        heading("Fragmentation"),
        _fragmentation(results),
    ]
    if report.cost:
        parts += [heading("Cost of the nodes"), _cost(report)]
    return html_page(title, parts)


_QUEUE_HEADINGS = ("queue", "received GPU-h", "entitled GPU-h", "evicted pods", "lost GPU-h")
_NEVER_STARTED_HEADINGS = ("queue", "gangs that never started", "stage", "reason of one of them")
_WAITING_HEADINGS = ("gangs", "never started", "median wait", "p95 wait", "longest wait")


def _policies(report: SimulationReport) -> str:
    headings = (
        "policy",
        "used GPU-h",
        "useful GPU-h",
        "lost GPU-h",
        "evicted pods",
        "most evictions of a gang",
        "mean completion",
        "mean wait",
    )
    rows = [
        (
            policy.name,
            f"{policy.used_gpu_hours:,.1f}",
            f"{policy.useful_gpu_hours:,.1f}",
            f"{policy.lost_gpu_hours:,.1f}",
            str(policy.evicted_pods),
            str(policy.most_evictions_of_a_gang),
            duration(policy.mean_completion_seconds),
            duration(policy.waits.mean),
        )
        for policy in report.policies
    ]
    return table(headings, rows)


def _use(report: SimulationReport, results: Mapping[str, SimulationResult]) -> str:
    edges = np.linspace(0.0, report.hours * HOUR, MAX_SAMPLES)
    hours = (edges / HOUR).tolist()
    panels = {}
    for name, result in results.items():
        requested = [sample.requested for sample in usage_samples(result)]
        panels[name] = [
            Curve("allocated", hours, gpus_over_time(result.attempts, edges), ALLOCATED, "solid"),
            Curve(
                "useful",
                hours,
                gpus_over_time(result.attempts, edges, useful=True),
                USEFUL,
                is_area=True,
            ),
            Curve("requested by pending gangs", hours, requested, REQUESTED, "dot"),
            Curve("all GPUs", [0.0, report.hours], [report.gpus] * 2, "#888", "dash"),
        ]
    figure = curves(panels, x_title="hours", y_title="GPUs")
    # Demand may be many times the cluster: what happened in it stays readable.
    figure.update_yaxes(range=[0, max(report.gpus, 1.0) * 1.25])
    return plot(
        figure,
        name="use",
        caption="GPUs with pods on them, the part of them whose work was not lost to a start-up "
        "or an eviction, and GPUs that pending gangs request; means of short periods.",
    )


def gpus_over_time(
    attempts: Sequence[PodAttempt], edges: Floats, *, useful: bool = False
) -> list[float]:
    """Mean GPUs in use between each of (times,) ``edges``, in seconds, and the next.

    With ``useful`` each attempt counts by the part of its time that was kept. The last value is
    repeated, so that there are as many as edges.
    """
    if not attempts:
        return [0.0] * len(edges)
    seconds = np.array([each.seconds for each in attempts], np.float64)
    starts = np.array([each.ended_at for each in attempts], np.float64) - seconds
    rates = np.array([each.gpus for each in attempts], np.float64)
    if useful:
        kept = np.array([each.kept for each in attempts], np.float64)
        rates *= np.divide(kept, seconds, out=np.zeros_like(kept), where=seconds > 0)
    # GPU-seconds up to each edge; one row at a time bounds the memory.
    done = np.array([rates @ np.clip(edge - starts, 0.0, seconds) for edge in edges])
    means = np.diff(done) / np.diff(edges)
    return [*means.tolist(), float(means[-1])]


def _shares(results: Mapping[str, SimulationResult]) -> str:
    ours = next(iter(results.values()))
    queues = sorted(ours.queues, key=lambda name: (-ours.queues[name].entitled, name))
    shown = sorted(queues[:MAX_QUEUES])
    panels = {}
    for queue in shown:
        for policy, result in results.items():
            title = queue if len(results) == 1 else f"{queue}, {policy}"
            hours = [sample.seconds / HOUR for sample in result.entitlement_samples]
            shares = [
                sample.shares.get(queue, EntitledGpus()) for sample in result.entitlement_samples
            ]
            allocated, entitled = zip(*shares, strict=True) if shares else ((), ())
            panels[title] = [
                Curve("allocated", hours, allocated, ALLOCATED, is_area=True),
                Curve("entitled", hours, entitled, ENTITLED),
            ]
    left_out = len(queues) - len(shown)
    more = f" {left_out} queues that were entitled to less have no plot." if left_out else ""
    figure = curves(
        panels, x_title="hours", y_title="GPUs", columns=len(results) if len(results) > 1 else 2
    )
    return plot(
        figure,
        name="shares",
        caption="GPUs that a queue had allocated, and those that it was entitled to by its fair "
        f"share at the time.{more}",
    )


def _waits(results: Mapping[str, SimulationResult]) -> str:
    panels = {
        policy: {
            _sized(name): [wait.seconds for wait in group]
            for name, group in size_groups(result.waits).items()
        }
        for policy, result in results.items()
    }
    return waiting_times(
        panels,
        caption="Part of the gangs of each size, in GPUs, that had started after so many minutes. "
        "A curve that ends below 100 % has gangs that did not start.",
    )


def _sized(name: str) -> str:
    return name if name.endswith("GPU") else f"{name} GPUs"


def _evictions(policies: Sequence[PolicyFigures], results: Mapping[str, SimulationResult]) -> str:
    rules = sorted({rule.value for result in results.values() for rule in result.evictions})
    evicted = {
        name: {
            rule: float(
                sum(count for each, count in result.evictions.items() if each.value == rule)
            )
            for rule in rules
        }
        for name, result in results.items()
    }
    causes = sorted({rule for policy in policies for rule in policy.lost_by_rule})
    lost = {
        policy.name: {cause: policy.lost_by_rule.get(cause, 0.0) for cause in causes}
        | {"start-up": policy.lost_gpu_hours - sum(policy.lost_by_rule.values())}
        for policy in policies
    }
    figure = bars(
        {"Evicted pods by rule": evicted, "Lost GPU-hours by cause": lost},
        y_titles=("pods", "GPU-hours"),
    )
    return plot(
        figure,
        name="evictions",
        caption="Pods that each rule evicted, and GPU-hours of work that has to be repeated.",
    )


def _fragmentation(results: Mapping[str, SimulationResult]) -> str:
    panels = {}
    for name, result in results.items():
        samples = usage_samples(result)
        hours = [sample.hours for sample in samples]
        fragmented = [sample.fragmented for sample in samples]
        largest = [sample.largest_free for sample in samples]
        panels[name] = [
            Curve("idle on partly used nodes", hours, fragmented, IDLE, is_area=True),
            Curve("idle on the emptiest node", hours, largest, ALLOCATED),
        ]
    return plot(
        curves(panels, x_title="hours", y_title="GPUs"),
        name="fragmentation",
        caption="Idle GPUs on nodes that are partly used, and the most that one pod could get.",
    )


def _cost(report: SimulationReport) -> str:
    figure = bars({"Cost": {OUR_POLICY: report.cost}}, y_titles=("in the scenario's currency",))
    return plot(figure, name="cost", caption="Price of the nodes over the whole time, by kind.")
