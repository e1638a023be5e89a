"""Traces of recorded clusters: lists of jobs and nodes (CSV) as a scenario.

A format is recognised by columns of the first line, in any order, that no other format has:

    openb jobs     name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, creation_time, …
    openb nodes    sn, cpu_milli, memory_mib, gpu, model
    spot jobs      job_name, organization, gpu_model, cpu_request, gpu_request, worker_num, …
    spot nodes     node_name, gpu_model, gpu_capacity_num, cpu_num

openb is Alibaba's cluster-trace-gpu-v2023, a pod per line, its queue the QoS class. The spot trace
is its cluster-trace-v2026-spot-gpu, a gang per line: the queue is the organization; high-priority
jobs (HP) come before Spot jobs and may preempt them. Nodes may have two more columns,
``price_per_hour`` and ``spot``, for the costs. Times are seconds from the start.

``saturating_jobs`` measures how full the nodes get, as in "Beware of Fragmentation" (Weng et al.,
ATC 2023): the list is shuffled, then lines are drawn from it, until 1.3 times the GPUs are
requested; no job ends.
"""

import csv
import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from pydantic import ValidationError

from kai_py.api.problems import field_problems
from kai_py.api.selectors import MAX_LABEL
from kai_py.simulate.scenarios.scenario import (
    MAX_ARRIVALS,
    NodeGroup,
    Scenario,
    ScenarioError,
    ScenarioJob,
    ScenarioQueue,
)

Row = Mapping[str, str]
MODEL_LABEL = "nvidia.com/gpu.product"
HIGH_PRIORITY = 1000
GIB_PER_CPU = 4.0
"""Memory where a list has none."""
MIN_MINUTES = 1 / 60
MAX_NAME_LENGTH = 40
TRUE_TEXTS = ("1", "true", "yes")
COLUMN_ALIASES = {
    "pod": "name",
    "node": "sn",
    "mem_mib": "memory_mib",
    "create_s": "creation_time",
    "delete_s": "deletion_time",
}
"""Columns of openb under the names of other distributions of it."""


def openb_job(row: Row) -> ScenarioJob:
    """A pod, from its creation to its deletion."""
    gpus = int(_number(row, "num_gpu" if row.get("num_gpu") else "gpus"))
    created = _number(row, "creation_time", 0)
    deleted = _number(row, "deletion_time", created)
    share = _number(row, "gpu_milli", 1000) / 1000
    return ScenarioJob(
        name=_label(row["name"]),
        queue=_label(row["qos"]) or "none",
        gpus_per_pod=share if gpus == 1 else gpus,
        cpu_per_pod=max(_number(row, "cpu_milli") / 1000, 0.001),
        memory_gib_per_pod=max(_number(row, "memory_mib") / 1024, 0.001),
        minutes=max((deleted - created) / 60, MIN_MINUTES),
        node_selector=_models(row["gpu_spec"]),
        at=created / 60,
    )


def openb_node(row: Row) -> NodeGroup:
    """A machine."""
    return NodeGroup(
        name="node",
        gpus=int(_number(row, "gpu" if row.get("gpu") else "gpus", 0)),
        cpu=_number(row, "cpu_milli") / 1000,
        memory_gib=_number(row, "memory_mib") / 1024,
        labels=_model(row["model"]),
        price_per_hour=_number(row, "price_per_hour", 0),
        spot=row.get("spot", "").lower() in TRUE_TEXTS,
    )


def spot_job(row: Row) -> ScenarioJob:
    """A gang of equal workers; ``cpu_request`` and ``gpu_request`` are those of one."""
    cpu = max(_number(row, "cpu_request", 0), 0.001)
    return ScenarioJob(
        name=_label(f"job-{row['job_name']}"),
        queue=_label(f"org-{row['organization']}"),
        pods=int(_number(row, "worker_num", 1)),
        gpus_per_pod=_number(row, "gpu_request", 0),
        cpu_per_pod=cpu,
        memory_gib_per_pod=cpu * GIB_PER_CPU,
        minutes=max(_number(row, "duration") / 60, MIN_MINUTES),
        priority=HIGH_PRIORITY if row["job_type"].lower() == "hp" else 0,
        node_selector=_models(row["gpu_model"]),
        at=_number(row, "submit_time") / 60,
    )


def spot_node(row: Row) -> NodeGroup:
    """A machine; the list has no memory."""
    cpu = _number(row, "cpu_num")
    return NodeGroup(
        name="node",
        gpus=int(_number(row, "gpu_capacity_num")),
        cpu=cpu,
        memory_gib=cpu * GIB_PER_CPU,
        labels=_model(row["gpu_model"]),
        price_per_hour=_number(row, "price_per_hour", 0),
        spot=row.get("spot", "").lower() in TRUE_TEXTS,
    )


JOBS: Mapping[frozenset[str], Callable[[Row], ScenarioJob]] = {
    frozenset(("cpu_milli", "gpu_milli", "gpu_spec", "qos")): openb_job,
    frozenset(("job_name", "organization", "worker_num", "submit_time", "duration")): spot_job,
}
NODES: Mapping[frozenset[str], Callable[[Row], NodeGroup]] = {
    frozenset(("sn", "cpu_milli", "memory_mib", "model")): openb_node,
    frozenset(("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")): spot_node,
}
"""The reader of a format's rows, by its identifying columns."""


def _number(row: Row, column: str, default: float | None = None) -> float:
    """The number in a column, the default if it is empty; raises KeyError, ValueError."""
    text = row[column] if default is None else row.get(column) or ""
    if not text and default is not None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{column}: {text!r} is not a number")
    return number


def _label(text: str) -> str:
    """``text`` as a valid object name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_NAME_LENGTH].rstrip("-")


def _models(text: str) -> dict[str, tuple[str, ...]]:
    models = tuple(filter(None, map(_label_value, text.split("|"))))
    return {MODEL_LABEL: models} if models else {}


def _model(text: str) -> dict[str, str]:
    model = _label_value(text)
    return {MODEL_LABEL: model} if model else {}


def _label_value(text: str) -> str:
    """``text`` as a valid value of a label; its beginning and end are letters or digits."""
    value = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:MAX_LABEL]
    return value.strip("-_.")


SATURATION_LOAD = 1.3
SATURATION_HOURS = 1.0
"""All jobs arrive within this time."""
ENDLESS_MINUTES = 1_000_000.0
Line = TypeVar("Line", ScenarioJob, NodeGroup)


class RecordedJobs(Struct, frozen=True):
    """A list of jobs, and the queues that they name."""

    jobs: tuple[ScenarioJob, ...]

    @property
    def queues(self) -> tuple[ScenarioQueue, ...]:
        """The queues of the jobs, none with a guarantee."""
        names = sorted({job.queue for job in self.jobs})
        return tuple(ScenarioQueue.model_validate({"name": name}) for name in names)

    @property
    def hours(self) -> float:
        """Hours until the last job would end if none had to wait."""
        return max((job.at + job.minutes for job in self.jobs), default=60.0) / 60


def is_trace(text: str) -> bool:
    """Whether ``text`` is a list of jobs or nodes rather than a scenario."""
    columns = _columns(text)
    return any(known <= columns for known in (*JOBS, *NODES))


def parse_jobs(text: str, *, name: str) -> RecordedJobs:
    """Read a list of jobs; raises ScenarioError that names the line."""
    return RecordedJobs(tuple(_with_names_of_their_own(list(_lines(text, name, JOBS, "jobs")))))


def _with_names_of_their_own(jobs: Sequence[ScenarioJob]) -> Iterator[ScenarioJob]:
    """Jobs of one name, as names that were cut short may be, get a number."""
    taken, numbers = {job.name for job in jobs}, dict[str, Iterator[int]]()
    for job in jobs:
        if job.name not in numbers:
            numbers[job.name] = itertools.count(2)
            yield job
            continue
        names = (f"{job.name}-{number}" for number in numbers[job.name])
        name = next(each for each in names if each not in taken)
        taken.add(name)
        yield job.model_copy(update={"name": name})


def parse_nodes(text: str, *, name: str) -> tuple[NodeGroup, ...]:
    """Read a list of nodes, equal ones grouped; raises ScenarioError that names the line."""
    counts = Counter(kind.model_dump_json() for kind in _lines(text, name, NODES, "nodes"))
    return tuple(
        NodeGroup.model_validate_json(kind, by_name=True).model_copy(
            update={"name": f"node-{number}", "count": count}
        )
        for number, (kind, count) in enumerate(counts.items())
    )


def scenario_of(
    recorded: RecordedJobs,
    nodes: Sequence[NodeGroup],
    queues: Sequence[ScenarioQueue] = (),
    *,
    hours: float | None = None,
) -> Scenario:
    """The scenario; queues that only jobs name are added without a guarantee.

    Raises ScenarioError where it has no nodes or queues, or would last too long.
    """
    declared = {queue.name for queue in queues}
    try:
        return Scenario(
            hours=hours or recorded.hours,
            nodes=tuple(nodes),
            queues=(*queues, *(queue for queue in recorded.queues if queue.name not in declared)),
            jobs=recorded.jobs,
        )
    except ValidationError as error:
        raise ScenarioError(_problems(error)) from None


def _problems(error: ValidationError) -> str:
    return "; ".join(str(each) for each in field_problems(error, Scenario))


def saturating_jobs(
    recorded: RecordedJobs, nodes: Sequence[NodeGroup], *, seed: int
) -> RecordedJobs:
    """The jobs in random order, repeated until the load is reached; no job ends."""
    generator, limit = random.Random(seed), SATURATION_LOAD * sum(n.count * n.gpus for n in nodes)
    order = sorted(recorded.jobs, key=lambda job: job.name)
    if not any(job.gpus_per_pod for job in order):
        raise ScenarioError("no job requests a GPU, so the nodes cannot be filled")
    generator.shuffle(order)
    drawn: list[ScenarioJob] = []
    requested = 0.0
    while len(drawn) <= MAX_ARRIVALS:
        # Every job once in shuffled order, then with repetition.
        job = order[len(drawn)] if len(drawn) < len(order) else generator.choice(order)
        requested += job.pods * job.gpus_per_pod
        if requested > limit:
            break
        drawn.append(job)
    else:
        raise ScenarioError(f"more than {MAX_ARRIVALS:,} of these jobs would fill the nodes")
    step = SATURATION_HOURS * 60 / max(len(drawn), 1)
    return RecordedJobs(
        tuple(
            job.model_copy(
                update={"name": f"{job.name}-{n}", "at": n * step, "minutes": ENDLESS_MINUTES}
            )
            for n, job in enumerate(drawn)
        )
    )


def _columns(text: str) -> frozenset[str]:
    return frozenset(map(_name, text.lstrip("\ufeff").partition("\n")[0].split(",")))


def _name(column: str) -> str:
    return COLUMN_ALIASES.get(column.strip(), column.strip())


def _lines(
    text: str, name: str, formats: Mapping[frozenset[str], Callable[[Row], Line]], what: str
) -> Iterator[Line]:
    columns = _columns(text)
    read_row = next((read_row for known, read_row in formats.items() if known <= columns), None)
    if read_row is None:
        known = " or ".join(", ".join(sorted(each)) for each in formats)
        raise ScenarioError(f"{name}:1: a list of {what} has the columns {known}")
    reader = csv.reader(text.lstrip("\ufeff").splitlines())
    try:
        names = [_name(column) for column in next(reader)]
        for values in reader:
            if values:
                yield read_row(_row(names, values))
    except KeyError as error:
        raise ScenarioError(f"{name}:1: column {error.args[0]} is missing") from None
    except ValidationError as error:
        raise ScenarioError(f"{name}:{reader.line_num}: {_problems(error)}") from None
    except (ValueError, csv.Error) as error:
        raise ScenarioError(f"{name}:{reader.line_num}: {error}") from None


def _row(names: Sequence[str], values: Sequence[str]) -> Row:
    if len(values) != len(names):
        raise ValueError(f"has {len(values)} columns, the first line has {len(names)}")
    return dict(zip(names, (value.strip() for value in values), strict=True))
