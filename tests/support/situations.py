"""Twelve gangs that wait, each stopped at another stage: what a user would submit, in which order.

``mixtures`` and ``pending`` have the others of the corpus.

The same for the simulation and for clusters with an API server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from kai_py.plan.plan import Stage
from tests.cluster.fake_kubelet.nodes import FakeNode, gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.manifests import (
    MIN_AVAILABLE_KEY,
    POD_GROUP_KEY,
    QUEUE_KEY,
    TEMPLATE,
    claim_template,
    gpu_request,
    job,
    pod,
    pod_spec,
    queue,
)

RACK = "example.com/rack"
POOL = "example.com/pool"
GATE = "example.com/approved"
JOB = "default/Job/waiting"
FITTING = 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
STRANGE = 'device.attributes["gpu.nvidia.com"].productName == "NVIDIA H200"'


def in_queue(name: str) -> Mapping[str, str]:
    return {QUEUE_KEY: name}


def gpus(name: str, size: int, team: str = "team", count: int = 1, **spec: object) -> Document:
    """A Job of pods with device plugin GPUs."""
    return job(name, size, pod_spec(gpus=count, **spec), annotations=in_queue(team))


def marked(document: Document, **marks: Mapping[str, str]) -> Document:
    """With labels or annotations beside its own."""
    for place, values in marks.items():
        document["metadata"][place] = {**document["metadata"].get(place, {}), **values}
    return document


def team(name: str = "team", deserved: int = 0, **spec: object) -> Document:
    return queue(name, **{"deservedGPUs": deserved, "maxGPUs": 64, **spec})


def nodes(count: int = 1, each: int = 8, **labels: str) -> Sequence[FakeNode]:
    return gpu_nodes(count, plugin_gpus=each, labels=labels)


def labelled(key: str, *values: str) -> Sequence[FakeNode]:
    """A node of four GPUs per label value."""
    return [
        each
        for value in values
        for each in gpu_nodes(1, prefix=f"node-{value}", plugin_gpus=4, labels={key: value})
    ]


def crew(size: int, floor: int) -> Sequence[Document]:
    marks = {QUEUE_KEY: "team", POD_GROUP_KEY: "waiting", MIN_AVAILABLE_KEY: str(floor)}
    return [pod(f"waiting-{number}", pod_spec(gpus=1), annotations=marks) for number in range(size)]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Some run, then one waits: by default in queue ``team``, for a node of eight GPUs.

    ``before``: Jobs, and how many of their pods run before the next is submitted. ``patience``:
    seconds that a gang of ``before`` that does not run has to wait first.
    """

    name: str
    stage: Stage | str
    """A state of an explanation where it is no gang."""
    waits: Sequence[Document]
    pods: int
    """Pods that run once it has started."""
    suggests: str
    """What the first suggestion says."""
    gang: str = JOB
    nodes: Sequence[FakeNode] = field(default_factory=nodes)
    objects: Sequence[Document] = field(default_factory=lambda: [team()])
    says: str = ""
    """Part of its message."""
    before: Sequence[tuple[Document, int]] = ()
    patience: float = 0.0
    definitions: Sequence[Document] = ()
    """Of kinds that are not ours."""


def few_fast(situations: Sequence[Situation]) -> list[pytest.ParameterSet]:
    """Every eighth stays in ``make test-fast``; the others are slow."""
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if rank % 8 else [])
        for rank, each in enumerate(situations)
    ]


def few_daily(situations: Sequence[Situation]) -> list[pytest.ParameterSet]:
    """The first of each stage and every eighth run in ``make test``, all in ``make nightly``."""
    stages: set[Stage | str] = set()
    found = []
    for rank, each in enumerate(situations):
        others = rank % 8 and each.stage in stages
        stages.add(each.stage)
        marks = [pytest.mark.nightly] if others else []
        found.append(pytest.param(each, id=each.name, marks=marks))
    return found


ONE_CPU = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
SITUATIONS = (
    Situation(
        name="members",
        stage=Stage.BELOW_MIN_MEMBER,
        waits=crew(3, floor=4),
        gang="default/PodGroup/waiting",
        pods=3,
        says="minMember is 4; existing pods: 3",
        suggests="let it start with 3 of its 4 pods (min-available)",
    ),
    Situation(
        name="gates",
        stage=Stage.SCHEDULING_GATED,
        waits=[gpus("waiting", 2, schedulingGates=[{"name": GATE}])],
        pods=2,
        says="gated pods: 2",
        suggests=f"remove the scheduling gate {GATE} from its pods",
    ),
    Situation(
        name="queue-max",
        stage=Stage.QUEUE_MAX,
        objects=[team("company", maxGPUs=4), team(parent="company")],
        waits=[gpus("waiting", 6)],
        pods=6,
        says="company quota has reached the allowable limit of GPUs. Limit is 4 GPUs",
        suggests="set maxGPUs of Queue company to 6",
    ),
    Situation(
        name="non-preemptible",
        stage=Stage.NON_PREEMPTIBLE,
        objects=[team(deserved=2)],
        waits=[
            marked(
                job("waiting", 4, pod_spec(gpus=1), annotations={}),
                labels={
                    "kai.scheduler/queue": "team",
                    "kai.scheduler/preemptibility": "non-preemptible",
                },
                annotations={"kai.scheduler/batch-min-member": "4"},
            )
        ],
        pods=4,
        says="team quota is 2 GPUs",
        suggests="set deservedGPUs of Queue team to 4",
    ),
    Situation(
        name="fair-share",
        stage=Stage.FAIR_SHARE,
        objects=[team(), team("other")],
        before=[(gpus("own", 4), 4), (gpus("theirs", 4, "other"), 4)],
        waits=[gpus("waiting", 4)],
        pods=4,
        says="queue team would have 8 GPUs allocated, above its fair share of 4",
        suggests="set deservedGPUs of Queue team to 8",
    ),
    Situation(
        name="node-filters",
        stage=Stage.NODE_FILTERS,
        nodes=labelled(POOL, "h100"),
        waits=[gpus("waiting", 2, nodeSelector={POOL: "h200"})],
        pods=2,
        says="1 didn't match Pod's node selector",
        suggests=f"correct node label {POOL}=h200 to h100",
    ),
    Situation(
        name="resources",
        stage=Stage.RESOURCES,
        nodes=[FakeNode(name="node-0", allocatable={"cpu": "4"})],
        waits=[gpus("waiting", 6, count=0, containers=[ONE_CPU])],
        pods=4,
        says="6 pods must start together but only 4",
        suggests="let it start with 4 of its 6 pods (min-available)",
    ),
    Situation(
        name="topology",
        stage=Stage.TOPOLOGY,
        nodes=labelled(RACK, "r1", "r2"),
        waits=[
            marked(
                gpus("waiting", 6),
                annotations={"kai.scheduler/topology-required-placement": RACK},
            )
        ],
        pods=6,
        says=f"requirement {RACK} couldn't be satisfied",
        suggests=f"only prefer one {RACK}, not require it",
    ),
    Situation(
        name="devices",
        stage=Stage.DEVICES,
        nodes=gpu_nodes(1, published_gpus=4),
        objects=[
            team(),
            claim_template(
                TEMPLATE,
                gpu_request(selectors=[{"cel": {"expression": f"{FITTING} && {STRANGE}"}}]),
            ),
        ],
        waits=[job("waiting", 2, pod_spec(template=TEMPLATE), annotations=in_queue("team"))],
        pods=2,
        says=f"no device matches selector: of 4 devices 4 fail selector #0 ({STRANGE})",
        suggests=f"remove {STRANGE} from ResourceClaimTemplate {TEMPLATE}",
    ),
    Situation(
        name="victims",
        stage=Stage.VICTIMS_PROTECTED,
        nodes=labelled(POOL, "x", "y"),
        objects=[team(deserved=4), team("other", deserved=4)],
        before=[(gpus("theirs", 4, "other", nodeSelector={POOL: "x"}), 4)],
        waits=[gpus("waiting", 4, nodeSelector={POOL: "x"})],
        pods=4,
        says="queue other has 4 GPUs allocated, within its deserved quota of 4",
        suggests=f"remove the requirement of node label {POOL}=x",
    ),
    Situation(
        name="budget",
        stage=Stage.EVICTION_LIMITS,
        objects=[team(deserved=4), team("other", maxEvictionsPerHour=0)],
        before=[(marked(gpus("theirs", 8, "other"), annotations={MIN_AVAILABLE_KEY: "2"}), 8)],
        waits=[gpus("waiting", 4)],
        pods=4,
        says="pods of queue other are protected by maxEvictionsPerHour, which is 0",
        suggests="allow 4 evictions an hour in Queue other (maxEvictionsPerHour)",
    ),
    Situation(
        name="reservation",
        stage=Stage.RESERVED,
        objects=[
            team("steady", reclaimMinRuntime="1h"),
            team("patient", deserved=8, reserveAfter="1s"),
            team(),
        ],
        before=[(gpus("theirs", 6, "steady"), 6), (gpus("big", 8, "patient"), 0)],
        patience=2.0,
        waits=[gpus("waiting", 1)],
        pods=1,
        says="1 node is reserved for gangs that have waited longer",
        suggests="reserve no nodes for gangs of Queue patient (reserveAfter)",
    ),
)
