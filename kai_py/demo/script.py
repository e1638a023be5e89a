"""The demo's script: workloads over time, and the milestones that must be reached.

The cluster: ``nodes`` nodes of eight GPUs with a DRA driver, and one more with a device plugin. The
queues deserve all GPUs of the driver between them: inference 2 nodes, the rest training and
research. A step waits for the milestones it depends on, so that a slow machine shows the same
course, later. With eight nodes:

    chat        6 x 1  inference   servers that start one by one
    llm         4 x 8  training    whole nodes, all that training deserves
    protein     2 x 8  research    with notebooks, 3 x 1 nvidia.com/gpu, beside it
    vision      8 x 2  training    10 GPUs are left: waits, and starts when llm ends
    urgent      5 x 8  training    preempts vision; vision returns when urgent ends
    ablation    5 x 8  research    elastic, minMember 2: borrows beyond what research deserves
    peak       10 x 1  inference   deserved: reclaims the capacity of one pod of ablation
"""

from enum import StrEnum

from msgspec import Struct

from kai_py.api.texts import count_of
from kai_py.demo.workloads import DemoWorkload, GpuSource, QueueSetup

GPUS_PER_NODE = 8
MIN_NODES = 6
MAX_NODES = 64


class Milestone(StrEnum):
    """A milestone of a workload."""

    WAITED = "waited"
    """The cluster reported that it cannot start, and why."""
    STARTED = "started"
    """All its pods are bound."""
    PREEMPTED = "preempted"
    """Pods were evicted for a higher priority in the queue."""
    RECLAIMED = "reclaimed"
    """Pods were evicted for another queue's share."""
    RETURNED = "returned"
    """All its pods are bound again after some were evicted."""
    COMPLETED = "completed"
    """Its Job is complete."""


class MilestoneReached(Struct, frozen=True):
    """A milestone of a named workload."""

    workload: str
    milestone: Milestone


class ScriptStep(Struct, frozen=True):
    """Once ``after`` has been reached, and ``pause`` seconds more, Jobs end and start."""

    title: str
    pause: float
    after: tuple[MilestoneReached, ...] = ()
    end: tuple[str, ...] = ()
    submit: tuple[DemoWorkload, ...] = ()


class Expectation(Struct, frozen=True):
    """A sentence that is true once all of ``milestones`` have been reached."""

    sentence: str
    milestones: tuple[MilestoneReached, ...]


class Script(Struct, frozen=True):
    """Everything that is fixed before the demo begins."""

    nodes: int
    queues: tuple[QueueSetup, ...]
    priorities: dict[str, int]
    steps: tuple[ScriptStep, ...]
    expectations: tuple[Expectation, ...]

    @property
    def workloads(self) -> tuple[DemoWorkload, ...]:
        """All workloads, in the order in which they are submitted."""
        return tuple(workload for step in self.steps for workload in step.submit)


def script_for(nodes: int) -> Script:
    """The script for this many driver nodes; raises ValueError outside the supported range."""
    if not MIN_NODES <= nodes <= MAX_NODES:
        raise ValueError(f"the demo needs {MIN_NODES} to {MAX_NODES} nodes, not {nodes}")
    workloads = _Workloads.for_nodes(nodes)
    queues = (
        QueueSetup("inference", 2 * GPUS_PER_NODE, 3 * GPUS_PER_NODE),
        QueueSetup(
            "training", workloads.llm.pods * GPUS_PER_NODE, (workloads.llm.pods + 2) * GPUS_PER_NODE
        ),
        QueueSetup("research", workloads.protein.pods * GPUS_PER_NODE, nodes * GPUS_PER_NODE),
    )
    return Script(
        nodes=nodes,
        queues=queues,
        priorities={"urgent": 1000},
        steps=_steps(workloads),
        expectations=_expectations(workloads),
    )


class _Workloads(Struct, frozen=True):
    chat: DemoWorkload
    llm: DemoWorkload
    protein: DemoWorkload
    notebooks: DemoWorkload
    vision: DemoWorkload
    urgent: DemoWorkload
    ablation: DemoWorkload
    peak: DemoWorkload

    @classmethod
    def for_nodes(cls, nodes: int) -> "_Workloads":
        """Chat takes part of one node; one more stays free, too little for vision."""
        protein = max(1, (nodes - 2) // 3)
        llm = nodes - 2 - protein
        ablation = nodes - 3
        return cls(
            chat=DemoWorkload("chat", "inference", 6, 1, min_available=1),
            llm=DemoWorkload("llm", "training", llm, 8, min_available=llm),
            protein=DemoWorkload("protein", "research", protein, 8, min_available=protein),
            notebooks=DemoWorkload(
                "notebooks", "research", 3, 1, min_available=1, source=GpuSource.PLUGIN
            ),
            vision=DemoWorkload("vision", "training", 8, 2, min_available=8),
            urgent=DemoWorkload("urgent", "training", llm + 1, 8, llm + 1, priority_class="urgent"),
            ablation=DemoWorkload("ablation", "research", ablation, 8, min_available=2),
            peak=DemoWorkload("peak", "inference", 10, 1, min_available=10),
        )


def _steps(workloads: _Workloads) -> tuple[ScriptStep, ...]:
    return (*_gang_steps(workloads), *_preemption_steps(workloads), *_reclaim_steps(workloads))


def _gang_steps(workloads: _Workloads) -> tuple[ScriptStep, ...]:
    """Gangs start whole, and one waits whole until there is capacity."""
    chat, llm, protein = workloads.chat, workloads.llm, workloads.protein
    notebooks, vision = workloads.notebooks, workloads.vision
    return (
        ScriptStep(
            f"{chat.pods} inference servers start one by one, packed on one node",
            1.0,
            submit=(chat,),
        ),
        ScriptStep(
            f"{_size(llm)}: a gang, started together on empty nodes",
            2.5,
            after=(_started(chat),),
            submit=(llm,),
        ),
        ScriptStep(
            f"{_size(protein)} by resource claims; notebooks by nvidia.com/gpu",
            3.0,
            after=(_started(llm),),
            submit=(protein, notebooks),
        ),
        ScriptStep(
            f"{_size(vision)}: not enough capacity, so the gang is pending; none of its pods "
            "starts",
            3.0,
            after=(_started(protein), _started(notebooks)),
            submit=(vision,),
        ),
        ScriptStep(
            f"{llm.name} ends: {vision.name} starts with all its {vision.pods} pods",
            5.0,
            after=(MilestoneReached(vision.name, Milestone.WAITED),),
            end=(llm.name,),
        ),
    )


def _preemption_steps(workloads: _Workloads) -> tuple[ScriptStep, ...]:
    """A gang of higher priority evicts another of its queue, which returns."""
    llm, protein = workloads.llm, workloads.protein
    vision, urgent = workloads.vision, workloads.urgent
    return (
        ScriptStep(
            f"{_size(urgent)} has a higher priority: it preempts all of {vision.name}",
            4.0,
            after=(_started(vision), _completed(llm)),
            submit=(urgent,),
        ),
        ScriptStep(
            f"{urgent.name} and {protein.name} end: all of {vision.name} starts again",
            5.0,
            after=(_started(urgent), MilestoneReached(vision.name, Milestone.PREEMPTED)),
            end=(urgent.name, protein.name),
        ),
    )


def _reclaim_steps(workloads: _Workloads) -> tuple[ScriptStep, ...]:
    """An elastic gang borrows, gives back what another queue deserves, and grows again."""
    protein, vision, urgent = workloads.protein, workloads.vision, workloads.urgent
    ablation, peak = workloads.ablation, workloads.peak
    return (
        ScriptStep(
            f"{_size(ablation)}, at least {ablation.min_available} pods: research borrows idle "
            "GPUs",
            3.5,
            after=(_returned(vision), _completed(urgent), _completed(protein)),
            submit=(ablation,),
        ),
        ScriptStep(
            f"{_size(peak)}: inference deserves them; one pod of research is reclaimed",
            4.0,
            after=(_started(ablation),),
            submit=(peak,),
        ),
        ScriptStep(
            f"{peak.name} and {vision.name} end: {ablation.name} grows to {ablation.pods} again",
            5.0,
            after=(_started(peak), MilestoneReached(ablation.name, Milestone.RECLAIMED)),
            end=(peak.name, vision.name),
        ),
        ScriptStep(
            f"{ablation.name} ends; the servers and notebooks keep running",
            3.5,
            after=(_returned(ablation), _completed(peak), _completed(vision)),
            end=(ablation.name,),
        ),
    )


def _expectations(workloads: _Workloads) -> tuple[Expectation, ...]:
    vision, urgent = workloads.vision, workloads.urgent
    ablation, peak = workloads.ablation, workloads.peak
    return (
        Expectation(
            "resource claims and device plugin in one cluster",
            (_started(workloads.protein), _started(workloads.notebooks)),
        ),
        Expectation(
            f"a gang was pending while capacity was short ({vision.name})",
            (MilestoneReached(vision.name, Milestone.WAITED),),
        ),
        Expectation("and started as a whole when there was enough", (_started(vision),)),
        Expectation(
            f"a higher priority preempted it ({urgent.name})",
            (_started(urgent), MilestoneReached(vision.name, Milestone.PREEMPTED)),
        ),
        Expectation("and it started again as a whole when that ended", (_returned(vision),)),
        Expectation(
            f"a queue reclaimed its deserved quota ({peak.name} from {ablation.name})",
            (_started(peak), MilestoneReached(ablation.name, Milestone.RECLAIMED)),
        ),
        Expectation(
            "and the elastic gang continued with fewer pods, then grew again",
            (_returned(ablation),),
        ),
        Expectation(
            "Jobs completed",
            tuple(
                map(_completed, (workloads.llm, workloads.protein, vision, urgent, ablation, peak))
            ),
        ),
    )


def _size(workload: DemoWorkload) -> str:
    pods, gpus = count_of(workload.pods, "pod"), count_of(workload.gpus, "GPU")
    return f"{workload.name}, {pods} x {gpus}"


def _started(workload: DemoWorkload) -> MilestoneReached:
    return MilestoneReached(workload.name, Milestone.STARTED)


def _returned(workload: DemoWorkload) -> MilestoneReached:
    return MilestoneReached(workload.name, Milestone.RETURNED)


def _completed(workload: DemoWorkload) -> MilestoneReached:
    return MilestoneReached(workload.name, Milestone.COMPLETED)
