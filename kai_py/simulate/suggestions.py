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
from kai_py.simulate.capacity_remedies import fewer_pods, more_nodes, one_gang_less
from kai_py.simulate.device_remedies import fewer_device_conditions, tolerated_devices
from kai_py.simulate.manifest_remedies import (
    fewer_node_conditions,
    no_gates,
    open_nodes,
    wider_topology,
)
from kai_py.simulate.objects import Document
from kai_py.simulate.queue_remedies import (
    larger_guarantee,
    larger_maximum,
    missing_queue,
    more_disruptions,
    more_evictions,
    no_least_runtime,
    nothing_kept,
)
from kai_py.simulate.remedy_search import Question
from kai_py.simulate.steps import TakeSteps, one_after_the_other
from kai_py.simulate.what_if import ROOM_STAGES, Present, Settled

Remedy = Callable[[Question], Iterator[Suggestion]]
REMEDIES: tuple[tuple[frozenset[Stage], Remedy], ...] = (
    (frozenset({Stage.QUEUE}), missing_queue),
    (frozenset({Stage.GATED}), no_gates),
    (frozenset({Stage.QUEUE_MAX}), larger_maximum),
    (frozenset({Stage.NON_PREEMPTIBLE, Stage.FAIR_SHARE, Stage.VICTIMS}), larger_guarantee),
    (frozenset({Stage.RESERVED, Stage.QUEUE_MAX}), nothing_kept),
    (frozenset({Stage.EVICTION_BUDGET}), more_evictions),
    (frozenset({Stage.EVICTION_BUDGET}), more_disruptions),
    (frozenset({Stage.VICTIMS}), no_least_runtime),
    (ROOM_STAGES, fewer_node_conditions),
    (ROOM_STAGES, open_nodes),
    (frozenset({Stage.TOPOLOGY}), wider_topology),
    (frozenset({Stage.DEVICES}), fewer_device_conditions),
    (frozenset({Stage.DEVICES}), tolerated_devices),
    (ROOM_STAGES | {Stage.MEMBERS, Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE}, fewer_pods),
    (ROOM_STAGES, one_gang_less),
    (ROOM_STAGES, more_nodes),
)
"""Which remedies are tried at which stages, in the order in which they are told."""


MOST_STAGES = 3
"""Stages that one suggestion helps across."""
HALVES_TRIED = 2


def suggest(
    documents: Sequence[Document],
    present: Present,
    without: Settled,
    gang: str,
    may_try: Callable[[], bool] = lambda: True,
    *,
    stages: int = MOST_STAGES,
) -> tuple[Suggestion, ...]:
    """Changes with which ``gang`` would start, the smallest of each kind; () if it runs.

    ``present``: the cluster of the ``documents``; ``without``: how it goes on without any change.
    Where no single change is enough, changes are put together that help at one of up to ``stages``
    stages each.
    """
    stage = without.stage_of(gang)
    if stage is None or gang not in present.snapshot.gangs:
        return ()
    asking = present.snapshot.gangs[gang]
    question = Question(documents, present, asking, without, stage, may_try)
    found = tuple(
        suggestion
        for stages_helped, remedy in REMEDIES
        if stage in stages_helped
        for suggestion in remedy(question)
    )
    return found or tuple(_put_together(question, stages - 1))


def _put_together(question: Question, stages: int) -> Iterator[Suggestion]:
    """For what brought the gang to a later stage: that, and what helps there."""
    if not stages:
        return
    for half in question.halves[:HALVES_TRIED]:
        after = question.present.after(TakeSteps(half.steps))
        key = question.gang.key
        others = suggest(
            after.documents, after, after.settled(), key, question.may_try, stages=stages
        )
        for other in others:
            steps = one_after_the_other(half.steps, other.steps)
            yield from question.proven(f"{half.text}, and {other.text}", *steps)
        if others:
            return
