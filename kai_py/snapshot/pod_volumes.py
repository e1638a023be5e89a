"""Requirements of a pod's volumes: the nodes that reach them, and what is bound or provisioned.

A bound claim binds the pod to its volume's node affinity and zone. An unbound claim of a class with
WaitForFirstConsumer follows the class's allowed topologies and the capacity that its driver
reports, or, in a class without a provisioner, the existing volumes; once a node was selected for
it, it goes there. One that binds immediately must be bound first (the rules of kube-scheduler's
VolumeBinding plugin).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, Pod, SelectorRequirement, Volume
from kai_py.api.records.storage import (
    NO_PROVISIONER,
    READ_WRITE_ONCE_POD,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai_py.api.references import ClaimRef
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.resources import amount
from kai_py.snapshot.tables.known_names import STORAGE_CLASSES, VOLUME_CLAIMS, MissingObject
from kai_py.snapshot.tables.volumes import (
    NO_VOLUME_REQUIREMENTS,
    Attachment,
    VolumeRequest,
    VolumeRequirements,
    VolumeToProvision,
)
from kai_py.snapshot.volume_zones import zone_selector


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Node selectors that must all match, claims to provision on the chosen node, what is missing.

    ``requirements`` are those of all pods of the shape; ``attachments`` name the pod's own volumes
    too. ``unbound_claims``: the claims of ``requirements.volume_requests``, in their order.
    ``missing``: the object that the pod waits for, if that does not exist.
    """

    selectors: tuple[NodeSelector, ...] = ()
    to_provision: tuple[str, ...] = ()
    waiting_for: str = ""
    missing: MissingObject | None = None
    requirements: VolumeRequirements = NO_VOLUME_REQUIREMENTS
    attachments: tuple[Attachment, ...] = ()
    unbound_claims: tuple[ClaimRef, ...] = ()


NO_VOLUMES = PodVolumes()


def pod_volumes(pod: Pod, objects: RecordingOwners) -> PodVolumes:
    """Resolve the PersistentVolumeClaims of ``pod``."""
    if not pod.spec.volumes:
        return NO_VOLUMES
    selectors: list[NodeSelector] = []
    provision: list[str] = []
    attached: dict[Attachment, Attachment] = {}
    exclusive: list[str] = []
    requests: list[tuple[VolumeRequest, ClaimRef]] = []
    to_make: dict[VolumeToProvision, None] = {}
    waiting, missing = "", None
    for volume in pod.spec.volumes:
        name = _claim_name(pod, volume)
        if not name:
            continue
        claim = objects.volume_claim(pod.metadata.namespace, name)
        if claim is None:
            missing = missing if waiting else MissingObject(VOLUME_CLAIMS, name)
            waiting = waiting or f'persistentvolumeclaim "{name}" not found'
            continue
        waiting = waiting or _unusable_reason(pod, volume, claim)
        if READ_WRITE_ONCE_POD in claim.spec.access_modes:
            exclusive.append(f"{claim.metadata.namespace}/{name}")
        bound, storage = None, None
        if claim.spec.volume_name:
            bound = objects.volume(claim.spec.volume_name)
            waiting = waiting or _no_volume_reason(claim, bound)
            selectors.extend(_places(bound))
        else:
            storage = objects.storage_class(claim.spec.storage_class_name or "")
            not_bound = _not_bound_reason(claim, storage)
            if not_bound and not waiting and storage is None and claim.spec.storage_class_name:
                missing = MissingObject(STORAGE_CLASSES, claim.spec.storage_class_name)
            waiting = waiting or not_bound
            if storage is not None and storage.provisioner == NO_PROVISIONER and not not_bound:
                requests.append((_volume_request(claim), ClaimRef.of(claim.metadata)))
            elif storage is not None and not not_bound:
                provision.append(name)
                selectors.extend((*_allowed_topologies(storage), *_selected_node(claim)))
                to_make.update(_to_provision(claim, storage, objects))
        found = _attachment(claim, bound, storage)
        if found is not None:
            attached[found] = Attachment(found.driver) if _is_exclusive(pod, claim) else found
    requests.sort(key=lambda item: (item[0].size, item[1].name))
    requirements = VolumeRequirements(
        tuple(attached.values()),
        tuple(sorted(exclusive)),
        tuple(request for request, _ in requests),
        tuple(to_make),
    )
    return PodVolumes(
        tuple(selectors),
        tuple(provision),
        waiting,
        missing,
        requirements,
        tuple(attached),
        tuple(claim for _, claim in requests),
    )


def _places(bound: PersistentVolume | None) -> Iterator[NodeSelector]:
    """The nodes that reach a volume, by its node affinity and by its labels."""
    if bound is None:
        return
    affinity = bound.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        yield affinity.required
    by_labels = zone_selector(bound.metadata.labels)
    if by_labels is not None:
        yield by_labels


def _to_provision(
    claim: PersistentVolumeClaim, storage: StorageClass, objects: RecordingOwners
) -> dict[VolumeToProvision, None]:
    """The volume to provision for a claim, if its driver reports its capacity."""
    driver = objects.csi_driver(storage.provisioner)
    size = claim.spec.resources.requests.get("storage")
    if driver is None or not driver.spec.storage_capacity or size is None:
        return {}
    return {VolumeToProvision(storage.metadata.name, amount("storage", size)): None}


def _volume_request(claim: PersistentVolumeClaim) -> VolumeRequest:
    spec = claim.spec
    return VolumeRequest(
        storage_class=spec.storage_class_name or "",
        size=amount("storage", spec.resources.requests.get("storage", 0)),
        access_modes=spec.access_modes,
        volume_mode=spec.volume_mode,
        selector=spec.selector,
    )


def _attachment(
    claim: PersistentVolumeClaim, bound: PersistentVolume | None, storage: StorageClass | None
) -> Attachment | None:
    """What a driver attaches for a claim: its volume, or the one that will be made for it."""
    if bound is not None:
        csi = bound.spec.csi
        return None if csi is None else Attachment(csi.driver, csi.volume_handle)
    if storage is None or storage.provisioner in ("", NO_PROVISIONER):
        return None
    meta = claim.metadata
    return Attachment(storage.provisioner, f"{meta.namespace}/{meta.name}")


def _is_exclusive(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether no other pod uses the claim: it is the pod's, or a StatefulSet's for this pod."""
    owned = any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)
    return owned or claim.metadata.name.endswith(f"-{pod.metadata.name}")


def _claim_name(pod: Pod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def _unusable_reason(pod: Pod, volume: Volume, claim: PersistentVolumeClaim) -> str:
    """Why the kubelet would not start the pod with the claim, or ""."""
    named = f'persistentvolumeclaim "{claim.metadata.name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f"{named} is being deleted"
    owners = claim.metadata.owner_references
    if volume.ephemeral is not None and not any(
        each.controller and each.uid == pod.metadata.uid for each in owners
    ):
        return f'{named} was not created for volume "{volume.name}" (the pod is not its owner)'
    return ""


def _no_volume_reason(claim: PersistentVolumeClaim, bound: PersistentVolume | None) -> str:
    if bound is not None:
        return ""
    name, volume = claim.metadata.name, claim.spec.volume_name
    return f'persistentvolumeclaim "{name}" names persistentvolume "{volume}", which does not exist'


def _not_bound_reason(claim: PersistentVolumeClaim, storage: StorageClass | None) -> str:
    if storage is not None and storage.volume_binding_mode == "WaitForFirstConsumer":
        return ""
    problem = f'persistentvolumeclaim "{claim.metadata.name}" is not bound'
    if storage is not None:
        return (
            f"{problem}, and its storage class {storage.metadata.name} does not bind on first use"
        )
    name = claim.spec.storage_class_name
    return f'{problem}, and storage class "{name}" does not exist' if name else problem


def _selected_node(claim: PersistentVolumeClaim) -> tuple[NodeSelector, ...]:
    """The node for which the volume is being provisioned already, so that it can be reached there.

    A provisioner that cannot do so withdraws the annotation.
    """
    node = claim.metadata.annotations.get(SELECTED_NODE)
    if not node:
        return ()
    named = SelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return (NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(named,)),)),)


def _allowed_topologies(storage: StorageClass) -> tuple[NodeSelector, ...]:
    if not storage.allowed_topologies:
        return ()
    terms = tuple(
        NodeSelectorTerm(
            match_expressions=tuple(
                SelectorRequirement(key=wanted.key, operator="In", values=wanted.values)
                for wanted in term.match_label_expressions
            )
        )
        for term in storage.allowed_topologies
    )
    return (NodeSelector(node_selector_terms=terms),)
