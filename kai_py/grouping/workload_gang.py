"""The gang of a workload whose pods do not exist yet, as a pod of it would be grouped.

Manifests that were never applied have no pods; what makes these is the framework's controller. The
rules for the kind say all the same which gang its pods will be, or what keeps them from being one.
"""

from collections.abc import Callable

import msgspec
from msgspec import structs

from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod
from kai_py.api.records.unstructured import mappings_in
from kai_py.api.texts import count_of
from kai_py.grouping.gang import GangSpec, Subgroup
from kai_py.grouping.owner_chain import KnownOwners, OwnerObject, Owners

Identify = Callable[[Pod, Owners], GangSpec]
UID = "workload"
MAX_PARTS = 8
"""Subgroups that a sentence lists."""


def gang_of_workload(
    api_version: str,
    kind: str,
    workload: OwnerObject,
    identify: Identify,
    template: ObjectMeta,
) -> GangSpec | None:
    """The gang of the first pod; None where its pods start one by one, or another object decides.

    ``template``: the labels and annotations of the pod. The gang's ``problem`` does not repeat the
    workload's name.
    """
    meta = workload.metadata
    owned = msgspec.structs.replace(meta, uid=UID, owner_references=())
    workload = msgspec.structs.replace(workload, metadata=owned)
    reference = OwnerReference(
        api_version=api_version, kind=kind, name=meta.name, uid=UID, controller=True
    )
    pod = Pod(
        metadata=msgspec.structs.replace(
            template, name=meta.name, namespace=meta.namespace, owner_references=(reference,)
        )
    )
    spec = identify(pod, KnownOwners({UID: workload}))
    if spec.owner.uid != UID:
        return None
    place = f"{kind} {meta.namespace}/{meta.name}: "
    problem = spec.problem.removeprefix(place)
    return structs.replace(
        spec, owner=structs.replace(spec.owner, uid=meta.uid), problem=problem, pod_problem=""
    )


def first_template(spec: object) -> ObjectMeta:
    """The labels and annotations of the first pod template below ``spec``; empty if it has none."""
    for value in mappings_in(spec):
        pod_spec = value.get("spec")
        if isinstance(pod_spec, dict) and "containers" in pod_spec:
            return _labels_and_annotations(value.get("metadata"))
    return ObjectMeta()


def _labels_and_annotations(metadata: object) -> ObjectMeta:
    fields = metadata if isinstance(metadata, dict) else {}
    given = {name: fields.get(name) or {} for name in ("labels", "annotations")}
    try:
        return msgspec.convert(given, ObjectMeta)
    except msgspec.ValidationError:
        return ObjectMeta()


def describe_start(gang: GangSpec) -> str:
    """What a gang starts with: ``4 pods (master 1, worker 3)``, and what must fit besides."""
    first = _minimum(gang.tree)
    later = sum(max(each.count - first.get(each.subgroup, 0), 0) for each in gang.expected)
    pods = sum(first.values())
    counted = count_of(pods, "pod") if pods else "any of its pods"
    parts = ", ".join(f"{leaf} {count}" for leaf, count in first.items() if count)
    if all(first) and len(first) <= MAX_PARTS and pods:
        counted = f"{counted} ({parts})"
    if not later:
        return counted
    fit = "another fits, which is" if later == 1 else f"{later} more fit, which are"
    return f"{counted} once {fit} created later"


def _minimum(tree: Subgroup) -> dict[str, int]:
    """By leaf the pods of the smallest set that satisfies the tree."""
    if not tree.children:
        return {tree.name: tree.min_members}
    by_pods = sorted(tree.children, key=Subgroup.min_pods)
    smallest = {id(each) for each in by_pods[: tree.needed_children]}
    chosen = [child for child in tree.children if id(child) in smallest]
    return {leaf: pods for child in chosen for leaf, pods in _minimum(child).items()}
