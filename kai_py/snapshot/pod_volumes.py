"""Requirements of a pod's volumes: the nodes that reach them, and what is bound or provisioned.

A bound claim binds the pod to its volume's node affinity and zone. An unbound claim of a class with
WaitForFirstConsumer follows the class's allowed topologies and the capacity that its driver
reports; once a node was selected for it, it goes there. In a class without a provisioner, and where
the claim has a selector, it follows the existing volumes. One that binds immediately must be bound
first (the rules of kube-scheduler's VolumeBinding plugin). Disks that a pod names itself bind it to
no node, but pods of a node do not mount the same one (VolumeRestrictions).

Zones and regions in the labels of a volume bind a pod like its node affinity (VolumeZone): a node
that is labelled with a zone or a region must have the value of each such label of the volume. Where
it lacks a label of before Kubernetes 1.17, the one that replaced it counts. Several values are
joined by two underscores.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from msgspec import Struct, field, structs

from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, Pod, SelectorRequirement
from kai_py.api.records.storage import (
    NO_PROVISIONER,
    READ_WRITE_ONCE_POD,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai_py.api.records.volume import Volume
from kai_py.api.references import ClaimRef
from kai_py.snapshot.attachments import attachment, is_exclusive
from kai_py.snapshot.available_volumes import parse_volume
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.missing_objects import STORAGE_CLASSES, VOLUME_CLAIMS, MissingObject
from kai_py.snapshot.resources import amount
from kai_py.snapshot.volume_requirements import (
    NO_VOLUME_REQUIREMENTS,
    Attachment,
    Disk,
    VolumeRequest,
    VolumeRequirements,
    VolumeToProvision,
)

REPLACED_BY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
PLACES = (*REPLACED_BY, *REPLACED_BY.values())
SEPARATOR = "__"

Requirements = tuple[SelectorRequirement, ...]


def zone_selector(labels: Mapping[str, str]) -> NodeSelector | None:
    """The nodes that reach a volume with ``labels``; None if these name no zone or region."""
    alternatives = [found for key in PLACES if (found := _alternatives(key, labels.get(key, "")))]
    if not alternatives:
        return None
    choices = [sum(choice, ()) for choice in product(*alternatives)]
    unlabelled = tuple(map(_lacks, PLACES))
    terms = [NodeSelectorTerm(match_expressions=each) for each in (*choices, unlabelled)]
    return NodeSelector(node_selector_terms=tuple(terms))


def _alternatives(key: str, text: str) -> tuple[Requirements, ...]:
    """What a node may have for one label of a volume; () where that label has no valid value."""
    values = tuple(part.strip() for part in text.split(SEPARATOR))
    if not all(values):
        return ()
    same: Requirements = (SelectorRequirement(key=key, operator="In", values=values),)
    if key not in REPLACED_BY:
        return (same,)
    newer = SelectorRequirement(key=REPLACED_BY[key], operator="In", values=values)
    return same, (_lacks(key), newer)


def _lacks(key: str) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator="DoesNotExist")


class PodVolumes(Struct, frozen=True):
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
    """Resolve the volumes of ``pod``."""
    claimed = [(each, name) for each in pod.spec.volumes if (name := volume_claim_name(pod, each))]
    disks = tuple(disk for each in pod.spec.volumes for disk in _disks(each))
    if not claimed:
        return PodVolumes(requirements=VolumeRequirements(disks=disks)) if disks else NO_VOLUMES
    found = _ResolvedClaims(pod, objects)
    for volume, name in claimed:
        found.resolve(volume, name)
    return found.volumes(disks)


class _ResolvedClaims(Struct):
    """What the claims of a pod require, resolved one after the other."""

    pod: Pod
    objects: RecordingOwners
    selectors: list[NodeSelector] = field(default_factory=list)
    provision: list[str] = field(default_factory=list)
    attached: dict[Attachment, Attachment] = field(default_factory=dict)
    exclusive: list[str] = field(default_factory=list)
    requests: list[tuple[VolumeRequest, ClaimRef]] = field(default_factory=list)
    to_make: dict[VolumeToProvision, None] = field(default_factory=dict)
    waiting_for: str = ""
    missing: MissingObject | None = None

    def resolve(self, volume: Volume, name: str) -> None:
        """Add the claim called ``name``, which ``volume`` stands for."""
        claim = self.objects.volume_claim(self.pod.metadata.namespace, name)
        if claim is None:
            reason = f'persistentvolumeclaim "{name}" not found'
            self._wait_for(reason, MissingObject(VOLUME_CLAIMS, name))
            return
        self._wait_for(_unusable_reason(self.pod, volume, claim))
        if READ_WRITE_ONCE_POD in claim.spec.access_modes:
            self.exclusive.append(f"{claim.metadata.namespace}/{name}")
        bound, storage = None, self.objects.storage_class(claim.storage_class)
        if claim.spec.volume_name:
            bound = self._resolve_bound(claim)
        else:
            self._resolve_unbound(claim, storage)
        found = attachment(claim, bound, storage)
        if found is not None:
            shared = not is_exclusive(self.pod, claim)
            self.attached[found] = found if shared else Attachment(found.driver)

    def volumes(self, disks: tuple[Disk, ...]) -> PodVolumes:
        """All of them together, with the disks that need no claim."""
        requests = sorted(self.requests, key=lambda item: (item[0].size, item[1].name))
        requirements = VolumeRequirements(
            tuple(self.attached.values()),
            tuple(sorted(self.exclusive)),
            tuple(request for request, _ in requests),
            tuple(self.to_make),
            disks,
        )
        return PodVolumes(
            tuple(self.selectors),
            tuple(self.provision),
            self.waiting_for,
            self.missing,
            requirements,
            tuple(self.attached),
            tuple(claim for _, claim in requests),
        )

    def _wait_for(self, reason: str, missing: MissingObject | None = None) -> None:
        """Note what the pod waits for, if it is anything; the first reason counts."""
        if reason and not self.waiting_for:
            self.waiting_for, self.missing = reason, missing

    def _resolve_bound(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        bound = self.objects.volume(claim.spec.volume_name)
        self._wait_for(_no_volume_reason(claim, bound))
        self.selectors.extend(_places(bound))
        return bound

    def _resolve_unbound(self, claim: PersistentVolumeClaim, storage: StorageClass | None) -> None:
        class_name = claim.storage_class
        not_bound = _not_bound_reason(claim, storage)
        lacks_class = storage is None and class_name
        self._wait_for(
            not_bound, MissingObject(STORAGE_CLASSES, class_name) if lacks_class else None
        )
        if storage is None or not_bound:
            return
        request = volume_request(claim)
        if storage.provisioner == NO_PROVISIONER or request.selects_volumes:
            self.requests.append((request, ClaimRef.of(claim.metadata)))
        else:
            self.provision.append(claim.metadata.name)
            self.selectors.extend((*_allowed_topologies(storage), *_selected_node(claim)))
            self.to_make.update(_to_provision(claim, storage, self.objects))


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


def volume_request(claim: PersistentVolumeClaim) -> VolumeRequest:
    """What a claim asks of a volume; raises QuantityError."""
    spec = claim.spec
    return VolumeRequest(
        storage_class=claim.storage_class,
        size=amount("storage", spec.resources.requests.get("storage", 0)),
        access_modes=spec.access_modes,
        volume_mode=spec.volume_mode,
        selector=spec.selector,
        attributes_class=spec.volume_attributes_class_name,
    )


def _disks(volume: Volume) -> Iterator[Disk]:
    """Disks that pods of a node do not share, or only for reading; one per monitor of Ceph."""
    if gce := volume.gce_persistent_disk:
        yield Disk("gcePersistentDisk", gce.pd_name, gce.read_only)
    if ebs := volume.aws_elastic_block_store:
        yield Disk("awsElasticBlockStore", ebs.volume_id)
    if volume.iscsi:
        yield Disk("iscsi", volume.iscsi.iqn, volume.iscsi.read_only)
    if rbd := volume.rbd:
        for monitor in rbd.monitors:
            yield Disk("rbd", f"{monitor} {rbd.pool}/{rbd.image}", rbd.read_only)


def volume_claim_name(pod: Pod, volume: Volume) -> str:
    """The PersistentVolumeClaim that a volume of the pod stands for; "" if it stands for none."""
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
    """Why the volume that a claim names is not its own, or "": its author may name any volume.

    One that no claim has is going to be bound, unless it does not satisfy the claim.
    """
    meta = claim.metadata
    named = f'persistentvolumeclaim "{meta.name}" names persistentvolume "{claim.spec.volume_name}"'
    if bound is None:
        return f"{named}, which does not exist"
    owner = bound.spec.claim_ref
    if owner is None:
        request = structs.replace(volume_request(claim), selector=None)
        may_have = parse_volume(bound).satisfies(request)
        return "" if may_have else f"{named}, which does not satisfy it"
    is_same = (owner.namespace, owner.name) == (meta.namespace, meta.name)
    if is_same and (owner.uid or meta.uid) == meta.uid:
        return ""
    return f"{named}, which belongs to another claim"


def _not_bound_reason(claim: PersistentVolumeClaim, storage: StorageClass | None) -> str:
    if storage is not None and storage.volume_binding_mode == "WaitForFirstConsumer":
        return ""
    problem = f'persistentvolumeclaim "{claim.metadata.name}" is not bound'
    if storage is not None:
        return (
            f"{problem}, and its storage class {storage.metadata.name} does not bind on first use"
        )
    name = claim.storage_class
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
