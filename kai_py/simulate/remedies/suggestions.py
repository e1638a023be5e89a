"""Suggestions: small changes that would let a pending gang start, each verified by a simulation.

The candidates follow from the stage that stops the gang: its queue's bounds, its manifest, or
capacity; for capacity: fewer pods, fewer gangs, more nodes. The change that costs others least, or
that names the stage's own rule, comes first. Where another stage stops the gang then, the remedies
of that stage are added. A change is only suggested if the gang starts in a simulation of exactly
its steps, together with its cost to others.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from kai_py.api.times import format_duration, format_time
from kai_py.observe.suggestion import Suggestion
from kai_py.plan.plan import CAPACITY_MAY_HELP, Stage
from kai_py.simulate.changes import ApplySteps, combine_steps
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.capacity import (
    add_nodes,
    end_one_gang,
    fewer_device_conditions,
    lower_min_available,
    reduce_devices,
    reduce_requests,
    tolerated_devices,
)
from kai_py.simulate.remedies.claim_selectors import correct_device_names, correct_selectors
from kai_py.simulate.remedies.manifests import (
    relax_node_conditions,
    relax_pod_rules,
    relax_topology,
    remove_gates,
    tolerate_taints,
    uncordon_node,
)
from kai_py.simulate.remedies.names import (
    correct_device_class,
    correct_names,
    correct_queue,
    correct_references,
    create_volume_claims,
)
from kai_py.simulate.remedies.queues import (
    create_queue,
    disable_min_runtime,
    disable_reservation,
    open_queue,
    raise_deserved,
    raise_eviction_limit,
    raise_maximum,
    relax_disruption_budget,
)
from kai_py.simulate.remedies.search import RemedySearch
from kai_py.simulate.what_if import LoadedCluster, SettledCluster
from kai_py.snapshot.gangs import Gang

log = logging.getLogger(__name__)

Remedy = Callable[[RemedySearch], Iterator[Suggestion]]
NAMES_MATTER = frozenset({Stage.NODE_FILTERS, Stage.RESOURCES, Stage.TOPOLOGY})
REMEDIES: tuple[tuple[frozenset[Stage], Remedy], ...] = (
    (frozenset({Stage.QUEUE_NOT_FOUND, Stage.INVALID}), correct_queue),
    (NAMES_MATTER, correct_names),
    (frozenset({Stage.DEVICES, Stage.INVALID, Stage.CLAIMS_NOT_READY}), correct_device_class),
    (frozenset({Stage.DEVICES}), correct_selectors),
    (frozenset({Stage.DEVICES}), correct_device_names),
    (frozenset({Stage.CLAIMS_NOT_READY, Stage.BELOW_MIN_MEMBER}), correct_references),
    (frozenset({Stage.CLAIMS_NOT_READY, Stage.BELOW_MIN_MEMBER}), create_volume_claims),
    (frozenset({Stage.QUEUE_NOT_FOUND}), create_queue),
    (frozenset({Stage.INVALID}), open_queue),
    (frozenset({Stage.SCHEDULING_GATED}), remove_gates),
    (frozenset({Stage.QUEUE_MAX}), raise_maximum),
    (frozenset({Stage.NON_PREEMPTIBLE, Stage.FAIR_SHARE, Stage.VICTIMS_PROTECTED}), raise_deserved),
    (frozenset({Stage.RESERVED, Stage.QUEUE_MAX}), disable_reservation),
    (frozenset({Stage.EVICTION_LIMITS}), raise_eviction_limit),
    (frozenset({Stage.EVICTION_LIMITS}), relax_disruption_budget),
    (frozenset({Stage.VICTIMS_PROTECTED}), disable_min_runtime),
    (CAPACITY_MAY_HELP, tolerate_taints),
    (CAPACITY_MAY_HELP, uncordon_node),
    (CAPACITY_MAY_HELP, relax_node_conditions),
    (frozenset({Stage.TOPOLOGY}), relax_topology),
    (frozenset({Stage.RESOURCES}), reduce_requests),
    (frozenset({Stage.DEVICES}), fewer_device_conditions),
    (frozenset({Stage.DEVICES}), tolerated_devices),
    (frozenset({Stage.DEVICES}), reduce_devices),
    (
        CAPACITY_MAY_HELP
        | {Stage.BELOW_MIN_MEMBER, Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE, Stage.INVALID},
        lower_min_available,
    ),
    (CAPACITY_MAY_HELP, relax_pod_rules),
    (CAPACITY_MAY_HELP, add_nodes),
    (CAPACITY_MAY_HELP, end_one_gang),
)
"""The remedies to try by stage, in the order of the suggestions."""


LEAST_WAIT = 5.0
"""Seconds; what starts earlier only waits for pods to end or to be created."""
MAX_STAGES = 3
"""Most stages that one suggestion combines remedies for."""
MAX_PARTIAL_REMEDIES = 2


def suggest(
    documents: Sequence[Document],
    cluster: LoadedCluster,
    baseline: SettledCluster,
    gang: str,
    has_time: Callable[[], bool] = lambda: True,
    *,
    stages: int = MAX_STAGES,
    on_found: Callable[[Suggestion], None] = lambda _: None,
) -> tuple[Suggestion, ...]:
    """Changes with which ``gang`` would start, the smallest of each kind; () if it runs.

    Where it starts by itself within the simulated time, the one suggestion is to wait. Each is
    passed to ``on_found`` as soon as it is known. ``cluster``: the cluster of the ``documents``;
    ``baseline``: its outcome without any change. Where no single change is enough, changes for up
    to ``stages`` stages are combined.
    """
    stage = baseline.stage_of(gang)
    pending_gang = cluster.snapshot.gangs.get(gang)
    if pending_gang is None:
        return ()
    if stage is None:
        waits = _wait(pending_gang, baseline, cluster.snapshot.now)
        for suggestion in waits:
            on_found(suggestion)
        return waits
    search = RemedySearch(documents, cluster, pending_gang, baseline, stage, has_time)
    helping = (remedy for stages_helped, remedy in REMEDIES if stage in stages_helped)
    found: list[Suggestion] = []
    for suggestion in chain.from_iterable(_tried(remedy, search) for remedy in helping):
        found.append(suggestion)
        on_found(suggestion)
    for suggestion in () if found else _combine_remedies(search, stages - 1):
        found.append(suggestion)
        on_found(suggestion)
    return tuple(found)


def _wait(gang: Gang, baseline: SettledCluster, now: float) -> tuple[Suggestion, ...]:
    """To wait until a gang starts without any change, if that takes a while; else ()."""
    at = baseline.starts.get(gang.key, now)
    if gang.key not in baseline.running or gang.is_satisfied or at < now + LEAST_WAIT:
        return ()
    until, seconds = format_time(math.ceil(at)), format_duration(math.ceil(at - now))
    text = f"wait until {until} (for {seconds}): it starts without any change"
    return (Suggestion(text, (), starts=(gang.key,)),)


def _tried(remedy: Remedy, search: RemedySearch) -> Iterator[Suggestion]:
    """The suggestions of a remedy; one that fails on this cluster yields no more."""
    try:
        yield from remedy(search)
    except Exception:
        log.exception("%s: remedy %s failed", search.gang.key, remedy.__name__)


def _combine_remedies(search: RemedySearch, stages: int) -> Iterator[Suggestion]:
    """For changes that brought the gang to a later stage: these, and remedies for that stage."""
    if not stages:
        return
    for partial in search.partial_remedies[:MAX_PARTIAL_REMEDIES]:
        after = search.cluster.after(ApplySteps(partial.steps))
        key = search.gang.key
        others = suggest(
            after.documents, after, after.settled(), key, search.has_time, stages=stages
        )
        for other in others:
            steps = combine_steps(partial.steps, other.steps)
            yield from search.verified(f"{partial.text}, and {other.text}", *steps)
        if others:
            return
