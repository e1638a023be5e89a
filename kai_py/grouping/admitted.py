"""What a pod was admitted with: the record that is written with its binding.

Labels and annotations of a running pod, and of its owners, belong to its tenant, who may edit them
at any time. What the pod may hold and take was decided when it was bound, so that is recorded on it
by the binding itself, in an annotation that the admission policies reserve to the scheduler.
An edit can lower what was admitted, never raise it; a record that was forged where the policies are
not installed yields no more than the objects themselves say.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from kai_py.api.gpu_reservation import GpuGroup, reserved_group
from kai_py.api.gpu_share import (
    SHARE_KEYS,
    GpuShare,
    has_claimed_share,
    shared_gpus,
)
from kai_py.api.numbers import MAX_COUNT
from kai_py.api.queue import GROUP
from kai_py.api.records.core import Pod
from kai_py.grouping.gang import FailureLimit, Subgroup
from kai_py.grouping.gang_settings import Preemptibility

ADMITTED_KEY = f"{GROUP}/admitted"
MAX_RECORD = 16_384
"""Characters of a record; a longer one is not ours."""

RESIZABLE = ("cpu", "memory")
"""The resources that a resize in place can change."""

PROTECTION = {
    Preemptibility.PREEMPTIBLE: 0,
    Preemptibility.SEMI_PREEMPTIBLE: 1,
    Preemptibility.NON_PREEMPTIBLE: 2,
}
"""How much of a gang is protected from preemption, in order."""


class Terms(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The terms on which a pod was admitted.

    ``requests``: CPU and memory of a pod that is protected from preemption, in row units.
    ``minimums``: by name of a subgroup, the minMember of a leaf, or how many of its subgroups an
    inner node needs. ``expected_runtime``: seconds. ``share``: the part of each of ``gpus``, which
    are indexes on the node by group. ``fragile``: whether its workload had limits of failed pods
    and could not be suspended; None in records of earlier versions. ``limits``: if so, by key,
    how many failed pods it survives in all (``FailureLimit.most``). ``started``: when the gang
    started, seconds since the epoch, if pods of it ran already.
    """

    queue: str
    priority: int = 0
    preemptibility: Preemptibility = Preemptibility.PREEMPTIBLE
    minimums: dict[str, int] = msgspec.field(default_factory=dict, name="floors")
    expected_runtime: float | None = None
    share: GpuShare | None = None
    gpus: dict[str, int] = {}
    fragile: bool | None = None
    limits: dict[str, int] | None = None
    requests: dict[str, float] = {}
    started: float | None = None

    def text(self) -> str:
        """The annotation."""
        return msgspec.json.encode(self).decode()


GPUS_FIELD = '"gpus"'
"""A record without it names no shared GPUs; looking for it is cheaper than reading the record."""

_DECODER = msgspec.json.Decoder(Terms)


def read_terms(annotations: Mapping[str, str]) -> Terms | None:
    """The record among the annotations of a pod; None where there is none that can be read."""
    text = annotations.get(ADMITTED_KEY, "")
    if not text or len(text) > MAX_RECORD:
        return None
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def preemptibility_of(*, preemptible: bool, semi_preemptible: bool) -> Preemptibility:
    """The preemptibility of a gang."""
    if not preemptible:
        return Preemptibility.NON_PREEMPTIBLE
    return Preemptibility.SEMI_PREEMPTIBLE if semi_preemptible else Preemptibility.PREEMPTIBLE


def least_protected(kinds: Iterable[Preemptibility]) -> Preemptibility:
    """The one of ``kinds`` that protects least."""
    return min(kinds, key=PROTECTION.__getitem__)


def minimums_of(tree: Subgroup, leaf: str, expected: int) -> dict[str, int]:
    """The minimums of ``leaf`` and of the subgroups above it.

    ``expected``: the pods that the leaf will have once its framework has created them all; they
    start together, so they belong to its minimum.
    """
    if not tree.children:
        return {tree.name: max(tree.min_members, expected)} if tree.name == leaf else {}
    for child in tree.children:
        minimums = minimums_of(child, leaf, expected)
        if minimums:
            needed = tree.min_subgroups
            return minimums if needed is None else {tree.name: needed, **minimums}
    return {}


def with_minimums(tree: Subgroup, minimums: Mapping[str, int]) -> Subgroup:
    """``tree`` with no minimum above those that were admitted; the same object where none is."""
    most = minimums.get(tree.name)
    if not tree.children:
        lowered = most is not None and tree.min_members > most
        return replace(tree, min_members=max(most or 0, 0)) if lowered else tree
    children = tuple(with_minimums(child, minimums) for child in tree.children)
    if most is not None and tree.needed_children > most:
        return replace(tree, children=children, min_subgroups=max(most, 0))
    same = all(new is old for new, old in zip(children, tree.children, strict=True))
    return tree if same else replace(tree, children=children)


def lowest_minimums(records: Iterable[tuple[str, Terms]]) -> dict[str, int]:
    """By subgroup, the lowest minMember with which one of its pods was admitted.

    ``records``: each with the leaf of its pod. A pod that was admitted in another leaf counts
    towards no minMember here, so the leaf that it was moved to has none.
    """
    lowest: dict[str, int] = {}
    for leaf, record in records:
        for name, minimum in record.minimums.items():
            lowest[name] = min(minimum, lowest.get(name, minimum))
        if leaf not in record.minimums:
            lowest[leaf] = 0
    return lowest


def resizable_requests(charge: Mapping[str, float]) -> dict[str, float]:
    """What of ``charge``, by resource in row units, a resize in place can change."""
    return {name: charge[name] for name in RESIZABLE if name in charge}


def has_grown(charge: Mapping[str, float], admitted: Mapping[str, float]) -> bool:
    """Whether a pod is charged with more than the CPU or memory that it was ``admitted`` with."""
    return any(charge.get(name, 0.0) > amount * (1 + 1e-9) for name, amount in admitted.items())


def limits_of(limits: Iterable[FailureLimit]) -> dict[str, int]:
    """What a record says of ``limits``."""
    return {each.key: each.most for each in limits}


def admitted_minimum(records: Iterable[Terms]) -> int:
    """How many pods a gang needs by the records of its pods alone, at the least.

    The last minimum of a record is that of its leaf, the others are those of nodes above it.
    """
    leaves: dict[str, int] = {}
    subgroups: list[int] = []
    for record in records:
        *above, leaf = record.minimums.items() or (("", 0),)
        leaves[leaf[0]] = min(leaf[1], leaves.get(leaf[0], leaf[1]))
        subgroups += [needed for _, needed in above]
    smallest = sorted(leaves.values())
    return max(sum(smallest[: min(subgroups, default=len(smallest))]), 1)


def highest_limits(
    records: Iterable[tuple[Iterable[FailureLimit], Terms | None]],
) -> dict[str, int]:
    """By key of a limit, the most with which a pod was admitted that it concerns.

    ``records``: of each pod, with its limits as they are now. What a record does not name was not
    limited, or by a number that is as good as no limit.
    """
    highest: dict[str, int] = {}
    for limits, record in records:
        if record is None or record.limits is None:
            continue
        for each in limits:
            admitted = record.limits.get(each.key, MAX_COUNT)
            highest[each.key] = max(highest.get(each.key, 0), admitted)
    return highest


def as_admitted_limits(
    limits: tuple[FailureLimit, ...], admitted: Mapping[str, int]
) -> tuple[FailureLimit, ...]:
    """``limits``, none lower than ``admitted``; what has failed since counts."""
    return tuple(
        replace(each, remaining=max(most - each.failed, 0), most=most)
        if (most := admitted.get(each.key, 0)) > each.most
        else each
        for each in limits
    )


def shortest_runtime(runtimes: Iterable[float | None]) -> float | None:
    """The shortest of the declared runtimes, in seconds; None if there are none."""
    return min([each for each in runtimes if each is not None], default=None)


def first_start(records: Iterable[Terms]) -> float:
    """When a gang started, by the records of its pods, seconds since the epoch; 0 if none says."""
    return min([each.started for each in records if each.started and each.started > 0], default=0.0)


def shared_groups(pod: Pod) -> Iterator[GpuGroup]:
    """The GPUs that a pod on a node shares, by its labels and by what it was admitted with."""
    meta, node = pod.metadata, pod.spec.node_name
    if reserved_group(pod) is not None or has_claimed_share(pod):
        return
    if any(key in meta.annotations for key in (*SHARE_KEYS, ADMITTED_KEY)):
        yield from (GpuGroup(node, gpu.group) for gpu in shared_gpus(pod))
    if GPUS_FIELD in meta.annotations.get(ADMITTED_KEY, ""):
        record = read_terms(meta.annotations)
        if record is not None and record.share is not None:
            yield from (GpuGroup(node, group) for group in record.gpus)
