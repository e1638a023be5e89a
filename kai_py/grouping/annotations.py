"""What do our own annotations, or labels, on a pod and above it say of its gang?

expected-runtime    how long the pods will run: such pods may use room that is kept for later
ageing              how much waiting counts as one point of priority; 0: none
preemptibility      whether it may be evicted for others; see ``preemptibility``
on-eviction         suspend: when all of a Job must go it is suspended, and resumed later
preemption-delay    how long the gang waits before it may evict others
provisioning-class-name  the class of the ProvisioningRequest made while it waits, or none
segment-size        blocks of so many pods, in a domain each: segment-topology-required-placement,
                    segment-topology-preferred-placement; see ``segments``

Of several objects the nearest to the pod counts. Where nothing is said, the cost is one set
operation per object.
"""

from collections.abc import Mapping
from dataclasses import replace

from kai_py.api.duration import DurationError, parse_duration
from kai_py.api.queue import GROUP
from kai_py.grouping.gang import GangSpec, TopologyConstraint
from kai_py.grouping.lineage import Lineage
from kai_py.grouping.preemptibility import Preemptibility, read_preemptibility
from kai_py.grouping.segments import in_segments

EXPECTED_RUNTIME_KEY = f"{GROUP}/expected-runtime"
AGEING_KEY = f"{GROUP}/ageing"
PREEMPTIBILITY_KEY = f"{GROUP}/preemptibility"
PREEMPTION_DELAY_KEY = f"{GROUP}/preemption-delay"
ON_EVICTION_KEY = f"{GROUP}/on-eviction"
ON_EVICTION = {"suspend": True, "evict": False}
PROVISIONING_CLASS_KEY = f"{GROUP}/provisioning-class-name"
SEGMENT_SIZE_KEY = f"{GROUP}/segment-size"
SEGMENT_REQUIRED_KEY = f"{GROUP}/segment-topology-required-placement"
SEGMENT_PREFERRED_KEY = f"{GROUP}/segment-topology-preferred-placement"
TOPOLOGY_KEY = "kai.scheduler/topology"
KEYS = frozenset(
    {
        EXPECTED_RUNTIME_KEY,
        AGEING_KEY,
        PREEMPTIBILITY_KEY,
        PREEMPTION_DELAY_KEY,
        ON_EVICTION_KEY,
        PROVISIONING_CLASS_KEY,
        SEGMENT_SIZE_KEY,
        SEGMENT_REQUIRED_KEY,
        SEGMENT_PREFERRED_KEY,
    }
)


def as_annotated(spec: GangSpec, lineage: Lineage) -> GangSpec:
    """``spec`` with what is said; what makes no sense is its ``problem``."""
    said = lineage.said(KEYS)
    if not said:
        return spec
    try:
        spec = _leaving(_preemptible(_timed(spec, said), said), said)
    except ValueError as error:
        meta = lineage.pod.metadata
        problem = f"pod {meta.namespace}/{meta.name}: {error}"
        return spec if spec.problem else replace(spec, problem=problem)
    if PROVISIONING_CLASS_KEY in said:
        spec = replace(spec, provisioning_class=said[PROVISIONING_CLASS_KEY])
    size = said.get(SEGMENT_SIZE_KEY)
    if size is None:
        return spec
    constraint = _constraint(said, lineage.nearest(TOPOLOGY_KEY))
    return in_segments(spec, lineage.pod, SEGMENT_SIZE_KEY, size, constraint)


def _timed(spec: GangSpec, said: Mapping[str, str]) -> GangSpec:
    runtime, delay = _seconds(said, EXPECTED_RUNTIME_KEY), _seconds(said, PREEMPTION_DELAY_KEY)
    ageing = _seconds(said, AGEING_KEY)
    if runtime is not None:
        spec = replace(spec, expected_runtime=runtime)
    if ageing is not None:
        spec = replace(spec, ageing=ageing)
    if delay is not None:
        spec = replace(spec, terms=replace(spec.terms, preemption_delay=delay))
    return spec


def _preemptible(spec: GangSpec, said: Mapping[str, str]) -> GangSpec:
    text = said.get(PREEMPTIBILITY_KEY)
    if text is None:
        return spec
    read = read_preemptibility(text)
    if read is None:
        known = ", ".join(Preemptibility)
        raise ValueError(f'{PREEMPTIBILITY_KEY} must be one of {known}, is "{text}"')
    return replace(
        spec,
        preemptible=read is not Preemptibility.NON_PREEMPTIBLE,
        semi_preemptible=read is Preemptibility.SEMI,
    )


def _leaving(spec: GangSpec, said: Mapping[str, str]) -> GangSpec:
    text = said.get(ON_EVICTION_KEY)
    if text is None:
        return spec
    if text not in ON_EVICTION:
        raise ValueError(f'{ON_EVICTION_KEY} must be suspend or evict, is "{text}"')
    return replace(spec, suspend=ON_EVICTION[text])


def _seconds(said: Mapping[str, str], key: str) -> float | None:
    try:
        return parse_duration(said[key]) if key in said else None
    except DurationError as error:
        raise DurationError(f"{key}: {error}") from None


def _constraint(said: Mapping[str, str], topology: str) -> TopologyConstraint | None:
    required, preferred = said.get(SEGMENT_REQUIRED_KEY, ""), said.get(SEGMENT_PREFERRED_KEY, "")
    if not required and not preferred:
        return None
    return TopologyConstraint(topology, required, preferred)
