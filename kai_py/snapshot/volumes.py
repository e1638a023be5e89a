"""Which nodes a pod's volumes can be reached from.

A bound claim binds the pod to its volume's node affinity. An unbound claim of a class with
WaitForFirstConsumer follows the class's allowed topologies; one that binds immediately must be
bound first (the rules of kube-scheduler's VolumeBinding plugin).
"""

from dataclasses import dataclass

from kai_py.api.records.core import (
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolumeClaim,
    Pod,
    Requirement,
    StorageClass,
    Volume,
)
from kai_py.snapshot.dependencies import RecordingOwners


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Node selectors that must all hold, claims to provision on the chosen node, and what waits."""

    selectors: tuple[NodeSelector, ...] = ()
    provision: tuple[str, ...] = ()
    waiting: str = ""


def volume_selectors(pod: Pod, objects: RecordingOwners) -> PodVolumes:
    """Resolve the PersistentVolumeClaims of ``pod``."""
    selectors: list[NodeSelector] = []
    provision: list[str] = []
    waiting = ""
    for volume in pod.spec.volumes:
        name = _claim_name(pod, volume)
        if not name:
            continue
        claim = objects.volume_claim(pod.metadata.namespace, name)
        if claim is None:
            waiting = waiting or f'persistentvolumeclaim "{name}" not found'
        elif claim.spec.volume_name:
            bound = objects.volume(claim.spec.volume_name)
            if bound is not None and bound.spec.node_affinity and bound.spec.node_affinity.required:
                selectors.append(bound.spec.node_affinity.required)
        else:
            storage = objects.storage_class(claim.spec.storage_class_name or "")
            obstacle = _unbound(claim, storage)
            waiting = waiting or obstacle
            if storage is not None and not obstacle:
                provision.append(name)
                selectors.extend(_allowed(storage))
    return PodVolumes(tuple(selectors), tuple(provision), waiting)


def _claim_name(pod: Pod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def _unbound(claim: PersistentVolumeClaim, storage: StorageClass | None) -> str:
    if storage is not None and storage.volume_binding_mode == "WaitForFirstConsumer":
        return ""
    return (
        f'persistentvolumeclaim "{claim.metadata.name}" is not bound and its storage class '
        "does not wait for a first consumer"
    )


def _allowed(storage: StorageClass) -> tuple[NodeSelector, ...]:
    if not storage.allowed_topologies:
        return ()
    terms = tuple(
        NodeSelectorTerm(
            match_expressions=tuple(
                Requirement(key=wanted.key, operator="In", values=wanted.values)
                for wanted in term.match_label_expressions
            )
        )
        for term in storage.allowed_topologies
    )
    return (NodeSelector(node_selector_terms=terms),)
