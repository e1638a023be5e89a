"""Scenarios of simulations: the nodes, the queues, and the Jobs over time.

    hours: 24
    nodes:
    - {name: h100, count: 8, gpus: 8, pricePerHour: 88}
    queues:
    - {name: training, deservedGPUs: 32}
    jobs:
    - {name: train, queue: training, pods: 4, gpusPerPod: 8, minutes: 90, every: 60}

Times are minutes from the start. An entry of ``jobs`` is one Job, or one ``every`` so many minutes,
at even or (``random: true``) at random distances with that mean. Arrivals are determined by
``seed``.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self

from msgspec import Struct
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from kai_py.api.manifests import ManifestError, line_at, read_documents
from kai_py.api.model import ApiModel, LabelValue, Name, QualifiedName
from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.problems import FieldPath, closest_match, field_problems
from kai_py.api.queue import API_VERSION, OWN_PARENT, Queue, QueueSpec, read_queue
from kai_py.api.spot import SpotUse
from kai_py.api.times import HOUR
from kai_py.snapshot.tables.queue_objects import queue_info
from kai_py.snapshot.tables.queue_tree import QueueTable, build_queue_table
from kai_py.snapshot.tables.queues import QueueFault

Count = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Problem = tuple[FieldPath, str]
"""The path of a field, and what is wrong with it."""
MAX_ARRIVALS = 1_000_000
"""Jobs of a scenario, in all."""
Minutes = Annotated[float, Field(ge=0, le=10_000_000)]


NOT_A_SCENARIO = (
    "this is a Kubernetes object, not a scenario of nodes, queues and jobs over time; "
    "`kai-py plan FILE` says what the scheduler does with objects"
)


class ScenarioError(ValueError):
    """A scenario cannot be used; the message has one line per problem."""


class NodeGroup(ApiModel):
    """Nodes that are alike."""

    name: Name
    """Their names are this and a number."""
    count: Count = 1
    """How many there are."""
    gpus: Annotated[int, Field(ge=0, le=1024, strict=True)] = 8
    """GPUs of a device plugin of one node."""
    cpu: Annotated[float, Field(gt=0, le=100_000)] = 192
    """Cores of one node."""
    memory_gib: Annotated[float, Field(gt=0, le=1_000_000)] = 2048
    """Memory of one node in GiB."""
    labels: dict[QualifiedName, LabelValue] = Field(default_factory=dict)
    """Labels of the nodes."""
    price_per_hour: Annotated[float, Field(ge=0, le=1_000_000_000)] = 0.0
    """Price of one node, in any currency."""
    spot: bool = False
    """Counted apart in the costs, and labelled ``karpenter.sh/capacity-type: spot``."""
    interruptions_per_hour: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Mean number for one node: that it goes is announced, it goes, and another one comes."""
    notice_seconds: Annotated[float, Field(ge=0, le=86_400)] = 120.0
    """Seconds from the announcement until the node is gone."""
    away_minutes: Annotated[float, Field(ge=0, le=1_000_000)] = 15.0
    """Mean number of minutes until another node comes; meanwhile there is nothing to pay."""


class ScenarioQueue(QueueSpec):
    """A Queue: its name, and its spec as users write it."""

    name: Name
    """Name of the queue."""

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.parent == self.name:
            raise ValueError(OWN_PARENT)
        return self


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


LabelValues = Annotated[tuple[LabelValue, ...], Field(min_length=1), BeforeValidator(_listed)]
"""One value of a label, or a list of them."""


class ScenarioJob(ApiModel):
    """One Job, or many at a rhythm."""

    name: Name
    """Name of the Job; a number is appended where several are created."""
    queue: Name
    """Its queue, one without children."""
    pods: Count = 1
    """Pods of the Job, which run at the same time."""
    gpus_per_pod: Annotated[float, Field(ge=0, le=1024)] = 1
    """Whole, or below 1 for a part of one GPU."""
    cpu_per_pod: Annotated[float, Field(gt=0, le=10_000)] = 1
    """Cores."""
    memory_gib_per_pod: Annotated[float, Field(gt=0, le=100_000)] = 1
    """Memory in GiB."""
    minutes: Annotated[float, Field(gt=0, le=10_000_000)] = 60
    """Minutes that every pod runs; a pod that was evicted begins again."""
    expected_minutes: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """The runtime that its annotation declares; absent: it has no such annotation."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000_000, strict=True)] = 0
    """Priority of its pods, which counts within the queue."""
    min_available: Count | None = None
    """Pods that must start together, by default all."""
    node_selector: dict[QualifiedName, LabelValues] = Field(default_factory=dict)
    """Labels of its nodes; of several values a node has one."""
    at: Minutes = 0
    """Minutes from the start until the first one comes; the first of random arrivals comes after
    a random distance."""
    every: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """Minutes between two of them."""
    count: Count | None = None
    """How many come, by default until the end where ``every`` is set, else one."""
    burst: Count = 1
    """How many are created each time, at once."""
    checkpoint_minutes: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """Minutes between its checkpoints; an evicted pod repeats only the work since the last one."""
    spot: SpotUse | None = None
    """Whether it goes to spot nodes, as its annotation says."""
    on_node_departure: DepartureTreatment | None = None
    """How it is treated when a node of it is about to go; pods that are asked to save their work
    do so in 20 seconds."""
    random: bool = False
    """Whether distances are random (a Poisson process)."""

    @model_validator(mode="after")
    def _whole_or_a_part(self) -> "ScenarioJob":
        if self.gpus_per_pod > 1 and not self.gpus_per_pod.is_integer():
            raise ValueError("gpusPerPod must be whole, or below 1 for a part of one GPU")
        return self


class Scenario(ApiModel):
    """Everything that goes into a simulation."""

    hours: Annotated[float, Field(gt=0, le=100_000)] = 24
    """How many hours are simulated."""
    seed: int = 0
    """Fixes random arrivals."""
    start_up_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """Seconds that a pod needs before its work begins; every start costs them again."""
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    """Groups of nodes that are alike."""
    queues: Annotated[tuple[ScenarioQueue, ...], Field(min_length=1)]
    """Queues, each with its name and the fields of a Queue's spec."""
    jobs: tuple[ScenarioJob, ...] = ()
    """Jobs, each one or many at a rhythm."""


class Arrival(Struct, frozen=True):
    """A Job that is created ``seconds`` after the start as ``name``."""

    seconds: float
    name: str
    job: ScenarioJob


def _is_object(value: object) -> bool:
    return isinstance(value, dict) and {"apiVersion", "kind"} <= value.keys()


def parse_scenario(text: str, *, name: str = "scenario") -> Scenario:
    """Read a scenario; raises ScenarioError with lines ``name:line: field: what is wrong``."""
    try:
        documents = read_documents(text)
    except ManifestError as error:
        raise ScenarioError(f"{name}:{error.line}: {error.reason}") from None
    if any(_is_object(document.value) for document in documents):
        raise ScenarioError(f"{name}: {NOT_A_SCENARIO}")
    if len(documents) != 1:
        raise ScenarioError(f"{name}: one document is expected, there are {len(documents)}")
    value = documents[0].value
    try:
        scenario = Scenario.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = field_problems(error, Scenario)
        lines = sorted((line_at(value, problem.path), str(problem)) for problem in problems)
        raise ScenarioError(
            "\n".join(f"{name}:{line}: {problem_text}" for line, problem_text in lines)
        ) from None
    endless = _first_beyond_the_maximum(scenario)
    if endless is not None:
        place = f"{name}:{line_at(value, ('jobs', endless))}: jobs[{endless}]"
        raise ScenarioError(f"{place}: with it more than {MAX_ARRIVALS:,} Jobs are created")
    found = sorted((line_at(value, path), text) for path, text in _contradictions(scenario))
    if found:
        raise ScenarioError("\n".join(f"{name}:{line}: {text}" for line, text in found))
    return scenario


def _contradictions(scenario: Scenario) -> Iterator[Problem]:
    """Why a scenario cannot be simulated as it is written."""
    yield from _names_used_again("nodes", [each.name for each in scenario.nodes])
    yield from _names_used_again("queues", [each.name for each in scenario.queues])
    infos = [queue_info(queue_spec(each)) for each in scenario.queues]
    table, problems = build_queue_table(infos, ())
    positions = {queue.name: index for index, queue in enumerate(scenario.queues)}
    for problem in problems:
        if problem.fault is not QueueFault.DUPLICATE:
            index = positions[problem.queue]
            yield ("queues", index), f"queues[{index}]: {problem.reason}"
    for index, job in enumerate(scenario.jobs):
        yield from _problems_of_job(job, index, table)
    yield from _names_of_two_jobs(scenario)


def _names_used_again(field: str, names: Sequence[str]) -> Iterator[Problem]:
    known = set[str]()
    for index, name in enumerate(names):
        if name in known:
            yield (field, index, "name"), f'{field}[{index}].name: "{name}" is used more than once'
        known.add(name)


def _problems_of_job(job: ScenarioJob, index: int, table: QueueTable) -> Iterator[Problem]:
    if job.min_available is not None and job.min_available > job.pods:
        path = "jobs", index, "minAvailable"
        yield path, f"jobs[{index}].minAvailable: must be at most pods, which is {job.pods}"
    place, queue = ("jobs", index, "queue"), table.positions.get(job.queue)
    if queue is None:
        nearest = closest_match(job.queue, table.names)
        hint = f"; did you mean {nearest}?" if nearest else ""
        yield place, f'jobs[{index}].queue: there is no queue "{job.queue}"{hint}'
    elif not table.is_leaf[queue]:
        hint = "only queues without children accept Jobs"
        yield place, f'jobs[{index}].queue: queue "{job.queue}" has children; {hint}'


def _names_of_two_jobs(scenario: Scenario) -> Iterator[Problem]:
    """Jobs that would be created with the name of one of an entry before."""
    first: dict[str, int] = {}
    for index, job in enumerate(scenario.jobs):
        names = (name for _, name in _created(scenario, job, index))
        taken = next((name for name in names if first.setdefault(name, index) != index), None)
        if taken is not None:
            text = f'a Job "{taken}" is also created by jobs[{first[taken]}]; choose another name'
            yield ("jobs", index, "name"), f"jobs[{index}].name: {text}"


def _first_beyond_the_maximum(scenario: Scenario) -> int | None:
    """The position of the job with which too many are created; None without one."""
    left = MAX_ARRIVALS
    for index, job in enumerate(scenario.jobs):
        times = itertools.islice(_times(scenario, job, index), left // job.burst + 1)
        left -= job.burst * sum(1 for _ in times)
        if left < 0:
            return index
    return None


def arrivals(scenario: Scenario) -> list[Arrival]:
    """Every Job that is created, in order of time."""
    result = [
        Arrival(seconds, name, job)
        for index, job in enumerate(scenario.jobs)
        for seconds, name in _created(scenario, job, index)
    ]
    return sorted(result, key=lambda each: (each.seconds, each.name))


def _created(scenario: Scenario, job: ScenarioJob, index: int) -> Iterator[tuple[float, str]]:
    """When the Jobs of an entry are created, seconds from the start, and their names."""
    once = job.every is None and job.count is None and job.burst == 1
    numbers = itertools.count()
    for seconds in _times(scenario, job, index):
        for _ in range(job.burst):
            yield seconds, job.name if once else f"{job.name}-{next(numbers)}"


def _times(scenario: Scenario, job: ScenarioJob, index: int) -> Iterator[float]:
    generator = random.Random(f"{scenario.seed}/{index}")
    end, seconds, count = scenario.hours * HOUR, job.at * 60, 0
    mean = (job.every or 0.0) * 60
    is_poisson = job.random and mean > 0
    limit = job.count if job.count is not None else (None if job.every else 1)
    if is_poisson:
        # Otherwise the first of every kind would come at once.
        seconds += generator.expovariate(1 / mean)
    while seconds < end and (limit is None or count < limit):
        yield seconds
        count += 1
        seconds += generator.expovariate(1 / mean) if is_poisson else mean


def queue_spec(queue: ScenarioQueue) -> Queue:
    """The Queue as the API server returns it."""
    return read_queue(queue_manifest(queue))


def queue_manifest(queue: ScenarioQueue) -> dict[str, Any]:
    """The Queue as a user would apply it."""
    spec = queue.model_dump(
        mode="json", by_alias=True, exclude_unset=True, exclude_none=True, exclude={"name"}
    )
    document = {"apiVersion": API_VERSION, "kind": "Queue", "spec": spec}
    return {**document, "metadata": {"name": queue.name}}
