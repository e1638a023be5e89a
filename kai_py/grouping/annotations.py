"""Our own annotations, or labels, that name the gang of a pod or change its settings.

On a pod, ``scheduling.kai.io/pod-group`` names its gang, and ``scheduling.kai.io/min-available`` is
the gang's minMember (1 without it).

On a pod or one of its owners, these change the gang, however it was found:

expected-runtime    how long the pods will run: such pods may backfill reserved nodes
checkpoint-interval how often the pods save their work: less is lost when they are evicted
ageing              how much waiting counts as one point of priority; 0: none
preemptibility      whether it may be evicted for others; see ``gang_settings``
on-node-departure   checkpoint, move, shrink or go-down: what happens when a node of it goes
on-pod-loss         restart or replace: whether the rest restarts as well when a pod is lost
checkpoint-grace    how long its pods take to save their work when asked to
spot                prefer, only or never: whether it goes to spot nodes
ready-timeout       by when minMember pods must be ready after the gang has started
spot-fallback-after how long it waits for spot nodes before it may use others
on-eviction         suspend: when all of a Job must go it is suspended, and resumed later
preemption-delay    how long the gang waits before it may evict others
provisioning-class-name  the class of the ProvisioningRequest made while it waits, or none
segment-size        blocks of so many pods, in a domain each: segment-topology-required-placement,
                    segment-topology-preferred-placement; see ``segments``

Of several objects the nearest to the pod counts. Without any of the keys, the cost is one set
operation per object.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.queue import GROUP
from kai_py.api.spot import SpotUse
from kai_py.api.times import DurationError, parse_duration
from kai_py.grouping.gang import GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_settings import Preemptibility, parse_preemptibility
from kai_py.grouping.gang_template import annotation_or_label, count_annotation
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain

POD_GROUP_KEY = f"{GROUP}/pod-group"
MIN_AVAILABLE_KEY = f"{GROUP}/min-available"
GROUP_KEYS = frozenset((MIN_AVAILABLE_KEY, POD_GROUP_KEY))
EXPECTED_RUNTIME_KEY = f"{GROUP}/expected-runtime"
CHECKPOINT_INTERVAL_KEY = f"{GROUP}/checkpoint-interval"
AGEING_KEY = f"{GROUP}/ageing"
PREEMPTIBILITY_KEY = f"{GROUP}/preemptibility"
PREEMPTION_DELAY_KEY = f"{GROUP}/preemption-delay"
ON_EVICTION_KEY = f"{GROUP}/on-eviction"
ON_DEPARTURE_KEY = f"{GROUP}/on-node-departure"
ON_POD_LOSS_KEY = f"{GROUP}/on-pod-loss"
CHECKPOINT_GRACE_KEY = f"{GROUP}/checkpoint-grace"
SPOT_KEY = f"{GROUP}/spot"
SPOT_FALLBACK_KEY = f"{GROUP}/spot-fallback-after"
READY_TIMEOUT_KEY = f"{GROUP}/ready-timeout"
PROVISIONING_CLASS_KEY = f"{GROUP}/provisioning-class-name"
ON_EVICTION = {"suspend": True, "evict": False}
ON_POD_LOSS = {"restart": True, "replace": False}
TIMES = {
    PREEMPTION_DELAY_KEY: "preemption_delay",
    AGEING_KEY: "ageing",
    CHECKPOINT_INTERVAL_KEY: "checkpoint_interval",
    READY_TIMEOUT_KEY: "ready_timeout",
}
DEPARTURE_TIMES = {
    CHECKPOINT_GRACE_KEY: "checkpoint_grace",
    SPOT_FALLBACK_KEY: "spot_fallback_after",
}
CHOICES: Mapping[str, tuple[str, Mapping[str, StrEnum]]] = {
    ON_DEPARTURE_KEY: ("on_departure", {each.value: each for each in DepartureTreatment}),
    SPOT_KEY: ("spot", {each.value: each for each in SpotUse}),
}
"""Annotations by the fields of ``GangSettings`` that they set."""
ANNOTATION_KEYS = frozenset(
    {
        EXPECTED_RUNTIME_KEY,
        PREEMPTIBILITY_KEY,
        ON_EVICTION_KEY,
        ON_POD_LOSS_KEY,
        PROVISIONING_CLASS_KEY,
        *TIMES,
        *DEPARTURE_TIMES,
        *CHOICES,
    }
)


def _marker(chain: OwnerChain) -> str:
    name = annotation_or_label(chain.pod.metadata, POD_GROUP_KEY)
    return f'{POD_GROUP_KEY} "{name}"' if name else ""


def _gang(context: PodContext) -> GangSpec:
    meta = context.chain.pod.metadata
    name = annotation_or_label(meta, POD_GROUP_KEY)
    min_members, problem = count_annotation(meta, MIN_AVAILABLE_KEY)
    return GangSpec(
        key=f"{meta.namespace}/PodGroup/{name}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=Subgroup(min_members=1 if min_members is None else min_members),
        problem=f"pod {meta.namespace}/{meta.name}: {problem}" if problem else "",
    )


POD_GROUP_ANNOTATION = GroupSource(marker=_marker, gang_spec=_gang)


def unused_markers(chain: OwnerChain, spec: GangSpec) -> Iterator[str]:
    """Our keys for a group that have no effect where they stand, for a gang that its owners make.

    A Job's own minMember is the only one that counts: other frameworks have a field for theirs, and
    a group is named on pods.
    """
    for meta in chain.metas:
        if GROUP_KEYS.isdisjoint(meta.annotations) and GROUP_KEYS.isdisjoint(meta.labels):
            continue  # the usual case
        is_of_job = spec.owner.api_version.startswith("batch/v") and spec.owner.kind == "Job"
        if annotation_or_label(meta, MIN_AVAILABLE_KEY) and not (
            is_of_job and meta.uid == spec.owner.uid
        ):
            yield f"{MIN_AVAILABLE_KEY} of {meta.name}"
        if annotation_or_label(meta, POD_GROUP_KEY):
            yield f"{POD_GROUP_KEY} of {meta.name}"


def with_annotations(spec: GangSpec, chain: OwnerChain) -> GangSpec:
    """``spec`` with the annotations applied; invalid ones become its ``problem``."""
    values = chain.values(ANNOTATION_KEYS)
    if not values:
        return spec
    try:
        spec = _on_eviction(_preemptibility(_times(spec, values), values), values)
        changed = _other_settings(values)
    except ValueError as error:
        meta = chain.pod.metadata
        problem = f"pod {meta.namespace}/{meta.name}: {error}"
        return spec if spec.problem else replace(spec, problem=problem)
    return _with_settings(spec, changed)


def _with_settings(spec: GangSpec, changed: Mapping[str, Any]) -> GangSpec:
    return replace(spec, settings=replace(spec.settings, **changed)) if changed else spec


def _times(spec: GangSpec, values: Mapping[str, str]) -> GangSpec:
    runtime = _seconds(values, EXPECTED_RUNTIME_KEY)
    spec = _with_settings(spec, _durations(values, TIMES))
    return spec if runtime is None else replace(spec, expected_runtime=runtime)


def _other_settings(values: Mapping[str, str]) -> Mapping[str, Any]:
    found = _durations(values, DEPARTURE_TIMES)
    for key, (name, choices) in CHOICES.items():
        if key in values:
            if values[key] not in choices:
                known = ", ".join(choices)
                raise ValueError(f'{key} must be one of {known}, is "{values[key]}"')
            found[name] = choices[values[key]]
    if ON_POD_LOSS_KEY in values:
        loss = values[ON_POD_LOSS_KEY]
        if loss not in ON_POD_LOSS:
            raise ValueError(f'{ON_POD_LOSS_KEY} must be restart or replace, is "{loss}"')
        found["restarts_whole"] = ON_POD_LOSS[loss]
    if PROVISIONING_CLASS_KEY in values:
        found["provisioning_class"] = values[PROVISIONING_CLASS_KEY]
    return found


def _durations(values: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, Any]:
    return {name: _seconds(values, key) for key, name in fields.items() if key in values}


def _preemptibility(spec: GangSpec, values: Mapping[str, str]) -> GangSpec:
    text = values.get(PREEMPTIBILITY_KEY)
    if text is None:
        return spec
    preemptibility = parse_preemptibility(text)
    if preemptibility is None:
        known = ", ".join(Preemptibility)
        raise ValueError(f'{PREEMPTIBILITY_KEY} must be one of {known}, is "{text}"')
    return replace(
        spec,
        preemptible=preemptibility is not Preemptibility.NON_PREEMPTIBLE,
        semi_preemptible=preemptibility is Preemptibility.SEMI_PREEMPTIBLE,
    )


def _on_eviction(spec: GangSpec, values: Mapping[str, str]) -> GangSpec:
    text = values.get(ON_EVICTION_KEY)
    if text is None:
        return spec
    if text not in ON_EVICTION:
        raise ValueError(f'{ON_EVICTION_KEY} must be suspend or evict, is "{text}"')
    return replace(spec, suspend=ON_EVICTION[text])


def _seconds(values: Mapping[str, str], key: str) -> float | None:
    try:
        return parse_duration(values[key]) if key in values else None
    except DurationError as error:
        raise DurationError(f"{key}: {error}") from None
