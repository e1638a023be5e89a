"""Who submits what, when, and what must be seen for the demo to have shown it?

The cluster: ``nodes`` nodes of eight GPUs with a DRA driver, and one more with a device plugin. The
queues deserve all GPUs of the driver between them: inference 2 nodes, the rest training and
research. A step waits for what it builds on, so a slow machine tells the same story, later. With
eight nodes:

    chat        6 x 1  inference   servers that start one by one
    llm         4 x 8  training    whole nodes, all that training deserves
    protein     2 x 8  research    with notebooks, 3 x 1 nvidia.com/gpu, beside it
    vision      8 x 2  training    10 GPUs are left: waits, and starts when llm ends
    urgent      5 x 8  training    preempts vision; vision returns when urgent ends
    ablation    5 x 8  research    elastic, floor 2: borrows beyond what research deserves
    peak       10 x 1  inference   deserved: reclaims the room of one pod of ablation
"""

from dataclasses import dataclass
from enum import StrEnum

from kai_py.demo.workloads import GpuSource, QueueSetup, Workload

GPUS_PER_NODE = 8
FEWEST_NODES = 6
MOST_NODES = 64


class Milestone(StrEnum):
    """What can happen to a workload that the story is about."""

    WAITED = "waited"
    """The cluster said that it cannot start, and why."""
    STARTED = "started"
    """All its pods are bound."""
    PREEMPTED = "preempted"
    """Pods left for a higher priority in the queue."""
    RECLAIMED = "reclaimed"
    """Pods left for another queue's share."""
    RETURNED = "returned"
    """All its pods are bound again after some had to leave."""
    COMPLETED = "completed"
    """Its Job is complete."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A milestone of a workload."""

    workload: str
    milestone: Milestone


@dataclass(frozen=True, slots=True)
class Step:
    """Once ``once`` has been seen, and after ``pause`` seconds more, Jobs end and start."""

    title: str
    pause: float
    once: tuple[Seen, ...] = ()
    end: tuple[str, ...] = ()
    submit: tuple[Workload, ...] = ()


@dataclass(frozen=True, slots=True)
class Expectation:
    """A sentence that is true once all of ``seen`` have been seen."""

    sentence: str
    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that is fixed before the demo begins."""

    nodes: int
    queues: tuple[QueueSetup, ...]
    priorities: dict[str, int]
    steps: tuple[Step, ...]
    expectations: tuple[Expectation, ...]

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """All workloads, in the order in which they are submitted."""
        return tuple(workload for step in self.steps for workload in step.submit)


def script_for(nodes: int) -> Script:
    """The script for this many driver nodes, at least ``FEWEST_NODES``."""
    if not FEWEST_NODES <= nodes <= MOST_NODES:
        raise ValueError(f"the demo needs {FEWEST_NODES} to {MOST_NODES} nodes, not {nodes}")
    cast = _Cast.for_nodes(nodes)
    queues = (
        QueueSetup("inference", 2 * GPUS_PER_NODE, 3 * GPUS_PER_NODE),
        QueueSetup("training", cast.llm.pods * GPUS_PER_NODE, (cast.llm.pods + 2) * GPUS_PER_NODE),
        QueueSetup("research", cast.protein.pods * GPUS_PER_NODE, nodes * GPUS_PER_NODE),
    )
    return Script(
        nodes=nodes,
        queues=queues,
        priorities={"urgent": 1000},
        steps=_steps(cast),
        expectations=_expectations(cast),
    )


@dataclass(frozen=True, slots=True)
class _Cast:
    chat: Workload
    llm: Workload
    protein: Workload
    notebooks: Workload
    vision: Workload
    urgent: Workload
    ablation: Workload
    peak: Workload

    @classmethod
    def for_nodes(cls, nodes: int) -> "_Cast":
        """Chat takes part of one node; one more stays free, too little for vision."""
        protein = max(1, (nodes - 2) // 3)
        llm = nodes - 2 - protein
        ablation = nodes - 3
        return cls(
            chat=Workload("chat", "inference", 6, 1, floor=1),
            llm=Workload("llm", "training", llm, 8, floor=llm),
            protein=Workload("protein", "research", protein, 8, floor=protein),
            notebooks=Workload("notebooks", "research", 3, 1, floor=1, source=GpuSource.PLUGIN),
            vision=Workload("vision", "training", 8, 2, floor=8),
            urgent=Workload("urgent", "training", llm + 1, 8, llm + 1, priority_class="urgent"),
            ablation=Workload("ablation", "research", ablation, 8, floor=2),
            peak=Workload("peak", "inference", 10, 1, floor=10),
        )


def _steps(cast: _Cast) -> tuple[Step, ...]:
    chat, llm, protein, notebooks = cast.chat, cast.llm, cast.protein, cast.notebooks
    vision, urgent, ablation, peak = cast.vision, cast.urgent, cast.ablation, cast.peak
    return (
        Step(
            f"{chat.pods} inference servers start one by one, packed on one node",
            1.0,
            submit=(chat,),
        ),
        Step(
            f"{_size(llm)}: a gang, started whole on whole nodes",
            2.5,
            once=(_started(chat),),
            submit=(llm,),
        ),
        Step(
            f"{_size(protein)} by resource claims; notebooks by nvidia.com/gpu beside them",
            3.0,
            once=(_started(llm),),
            submit=(protein, notebooks),
        ),
        Step(
            f"{_size(vision)}: too little room is left, so the gang waits; none of it starts",
            3.0,
            once=(_started(protein), _started(notebooks)),
            submit=(vision,),
        ),
        Step(
            f"{llm.name} ends: now there is room, and {vision.name} starts, all {vision.pods} pods",
            5.0,
            once=(Seen(vision.name, Milestone.WAITED),),
            end=(llm.name,),
        ),
        Step(
            f"{_size(urgent)} has a higher priority: it preempts {vision.name}, whole for whole",
            4.0,
            once=(_started(vision), _completed(llm)),
            submit=(urgent,),
        ),
        Step(
            f"{urgent.name} and {protein.name} end: {vision.name} comes back, whole",
            5.0,
            once=(_started(urgent), Seen(vision.name, Milestone.PREEMPTED)),
            end=(urgent.name, protein.name),
        ),
        Step(
            f"{_size(ablation)}, at least {ablation.floor} pods: research borrows what is idle",
            3.5,
            once=(_returned(vision), _completed(urgent), _completed(protein)),
            submit=(ablation,),
        ),
        Step(
            f"{_size(peak)}: inference deserves them; research gives back one pod's room",
            4.0,
            once=(_started(ablation),),
            submit=(peak,),
        ),
        Step(
            f"{peak.name} and {vision.name} end: {ablation.name} grows to {ablation.pods} again",
            5.0,
            once=(_started(peak), Seen(ablation.name, Milestone.RECLAIMED)),
            end=(peak.name, vision.name),
        ),
        Step(
            f"{ablation.name} ends; the servers and notebooks run on",
            3.5,
            once=(_returned(ablation), _completed(peak), _completed(vision)),
            end=(ablation.name,),
        ),
    )


def _expectations(cast: _Cast) -> tuple[Expectation, ...]:
    vision, urgent, ablation, peak = cast.vision, cast.urgent, cast.ablation, cast.peak
    return (
        Expectation(
            "resource claims and device plugin, side by side",
            (_started(cast.protein), _started(cast.notebooks)),
        ),
        Expectation(
            f"a gang waited while there was too little room ({vision.name})",
            (Seen(vision.name, Milestone.WAITED),),
        ),
        Expectation("and started whole once there was", (_started(vision),)),
        Expectation(
            f"a higher priority preempted it ({urgent.name})",
            (_started(urgent), Seen(vision.name, Milestone.PREEMPTED)),
        ),
        Expectation("and it came back whole when that ended", (_returned(vision),)),
        Expectation(
            f"a queue took back what it deserves ({peak.name} from {ablation.name})",
            (_started(peak), Seen(ablation.name, Milestone.RECLAIMED)),
        ),
        Expectation(
            "and the elastic gang ran on with fewer pods, then grew back", (_returned(ablation),)
        ),
        Expectation(
            "Jobs completed",
            tuple(map(_completed, (cast.llm, cast.protein, vision, urgent, ablation, peak))),
        ),
    )


def _size(workload: Workload) -> str:
    return f"{workload.name}, {workload.pods} pods x {workload.gpus} GPUs"


def _started(workload: Workload) -> Seen:
    return Seen(workload.name, Milestone.STARTED)


def _returned(workload: Workload) -> Seen:
    return Seen(workload.name, Milestone.RETURNED)


def _completed(workload: Workload) -> Seen:
    return Seen(workload.name, Milestone.COMPLETED)
