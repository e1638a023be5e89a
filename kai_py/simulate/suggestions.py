"""Which small change would let a waiting gang start? Each one proven by a simulation.

What is tried follows from the stage that stops the gang: its queue's bounds, what its manifest asks
for, or room; for room: fewer pods, fewer gangs, more nodes. The change that costs others least, or
names the stage's own rule, comes first. Where another stage stops the gang then, what helps there
is added. A change is only told when the gang starts in the simulation in which exactly its steps
were made, with what it costs others.
"""

from collections.abc import Callable, Iterator, Sequence

from kai_py.observe.suggestion import Suggestion
from kai_py.plan.plan import Stage
from kai_py.simulate.capacity_remedies import add_nodes, end_one_gang, lower_min_available
from kai_py.simulate.device_remedies import fewer_device_conditions, tolerated_devices
from kai_py.simulate.manifest_remedies import (
    relax_node_conditions,
    relax_topology,
    remove_gates,
    uncordon_node,
)
from kai_py.simulate.objects import Document
from kai_py.simulate.queue_remedies import (
    create_queue,
    disable_min_runtime,
    disable_reservation,
    raise_deserved,
    raise_eviction_limit,
    raise_maximum,
    relax_disruption_budget,
)
from kai_py.simulate.remedy_search import RemedySearch
from kai_py.simulate.steps import ApplySteps, combine_steps
from kai_py.simulate.what_if import CAPACITY_STAGES, LoadedCluster, SettledCluster

Remedy = Callable[[RemedySearch], Iterator[Suggestion]]
REMEDIES: tuple[tuple[frozenset[Stage], Remedy], ...] = (
    (frozenset({Stage.QUEUE_NOT_FOUND}), create_queue),
    (frozenset({Stage.SCHEDULING_GATED}), remove_gates),
    (frozenset({Stage.QUEUE_MAX}), raise_maximum),
    (frozenset({Stage.NON_PREEMPTIBLE, Stage.FAIR_SHARE, Stage.VICTIMS_PROTECTED}), raise_deserved),
    (frozenset({Stage.RESERVED, Stage.QUEUE_MAX}), disable_reservation),
    (frozenset({Stage.EVICTION_BUDGET}), raise_eviction_limit),
    (frozenset({Stage.EVICTION_BUDGET}), relax_disruption_budget),
    (frozenset({Stage.VICTIMS_PROTECTED}), disable_min_runtime),
    (CAPACITY_STAGES, relax_node_conditions),
    (CAPACITY_STAGES, uncordon_node),
    (frozenset({Stage.TOPOLOGY}), relax_topology),
    (frozenset({Stage.DEVICES}), fewer_device_conditions),
    (frozenset({Stage.DEVICES}), tolerated_devices),
    (
        CAPACITY_STAGES | {Stage.MEMBERS_MISSING, Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE},
        lower_min_available,
    ),
    (CAPACITY_STAGES, end_one_gang),
    (CAPACITY_STAGES, add_nodes),
)
"""Which remedies are tried at which stages, in the order in which they are told."""


MAX_STAGES = 3
"""Stages that one suggestion helps across."""
MAX_PARTIAL_REMEDIES = 2


def suggest(
    documents: Sequence[Document],
    cluster: LoadedCluster,
    baseline: SettledCluster,
    gang: str,
    has_time: Callable[[], bool] = lambda: True,
    *,
    stages: int = MAX_STAGES,
) -> tuple[Suggestion, ...]:
    """Changes with which ``gang`` would start, the smallest of each kind; () if it runs.

    ``present``: the cluster of the ``documents``; ``without``: how it goes on without any change.
    Where no single change is enough, changes are put together that help at one of up to ``stages``
    stages each.
    """
    stage = baseline.stage_of(gang)
    if stage is None or gang not in cluster.snapshot.gangs:
        return ()
    asking = cluster.snapshot.gangs[gang]
    question = RemedySearch(documents, cluster, asking, baseline, stage, has_time)
    found = tuple(
        suggestion
        for stages_helped, remedy in REMEDIES
        if stage in stages_helped
        for suggestion in remedy(question)
    )
    return found or tuple(_combine_remedies(question, stages - 1))


def _combine_remedies(search: RemedySearch, stages: int) -> Iterator[Suggestion]:
    """For what brought the gang to a later stage: that, and what helps there."""
    if not stages:
        return
    for half in search.partial_remedies[:MAX_PARTIAL_REMEDIES]:
        after = search.cluster.after(ApplySteps(half.steps))
        key = search.gang.key
        others = suggest(
            after.documents, after, after.settled(), key, search.has_time, stages=stages
        )
        for other in others:
            steps = combine_steps(half.steps, other.steps)
            yield from search.verified(f"{half.text}, and {other.text}", *steps)
        if others:
            return
