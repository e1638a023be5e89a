"""Objects as the API server returns them, for a planner or an audit: a file, or what was just read.

The objects pass through the planner, so that gangs, queues and charges are those of the scheduler.
Objects of kinds that it does not watch are used as owners of pods, or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim
from kai_py.api.records.storage import PersistentVolumeClaim
from kai_py.api.records.unstructured import Unstructured
from kai_py.audit.finding import AuditedCluster
from kai_py.config import Configuration
from kai_py.dra.rows import ParsedSlice
from kai_py.grouping.owner_chain import GroupKind
from kai_py.planner import Planner
from kai_py.snapshot.pod_claims import claims_of
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.discovery import METADATA
from kai_py.watch.kinds import (
    DEVICE_CLASSES,
    NATIVE_GROUPS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    VOLUME_CLAIMS,
    WATCHED,
    unsupported_version,
    watched_as,
)
from kai_py.watch.resource import Kind

Document: TypeAlias = Mapping[str, Any]


@dataclass
class DecodedObjects:
    """Records by kind; owners of other kinds as they are; ``problems``: object and reason."""

    records: dict[Kind[Any], list[Any]] = field(default_factory=dict)
    owners: dict[GroupKind, list[Document]] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: Kind[Any], record: Any) -> None:
        """Add a record of a kind."""
        self.records.setdefault(kind, []).append(record)

    def of(self, kind: Kind[Any]) -> Sequence[Any]:
        """The records of a kind."""
        return self.records.get(kind, ())


def decode_objects(documents: Iterable[Document]) -> DecodedObjects:
    """Decode objects; what cannot be decoded is a problem and left out.

    Of several versions of an object the last counts. An object without a uid gets one.
    """
    decoded = DecodedObjects()
    for document in _latest(documents):
        resource, problem = watched_as(document), unsupported_version(document)
        if problem:
            decoded.problems.append((object_name(document), problem))
            continue
        if resource is None:
            group = str(document.get("apiVersion", "")).rpartition("/")[0]
            owner_kind = GroupKind(group, str(document.get("kind", "")))
            decoded.owners.setdefault(owner_kind, []).append(document)
            continue
        try:
            record = resource.decode(msgspec.json.encode(document))
            if resource.kind is NATIVE_GROUPS:
                claims_of(record)  # one that cannot be read is a problem of this object
        except ValueError as error:
            decoded.problems.append((object_name(document), str(error)))
            continue
        decoded.add(resource.kind, record)
    return decoded


def _latest(documents: Iterable[Document]) -> list[Document]:
    """One document per object: lists of several files may overlap."""
    found: dict[tuple[str, ...], Document] = {}
    for document in documents:
        meta = document.get("metadata")
        if not isinstance(meta, dict) or not meta.get("name"):
            continue
        group = str(document.get("apiVersion", "")).rpartition("/")[0]
        key = group, object_name(document)
        found[key] = document if meta.get("uid") else _with_uid(document, meta)
    return list(found.values())


def _with_uid(document: Document, meta: Mapping[str, Any]) -> Document:
    return {**document, "metadata": {**meta, "uid": object_name(document)}}


def planner_of(
    decoded: DecodedObjects, configuration: Configuration
) -> tuple[Planner, Sequence[GroupKind]]:
    """A planner that has read these objects, and the kinds of owners that none of them is of."""
    wanted: list[GroupKind] = []
    planner = Planner(configuration, on_owner_kind=wanted.append)
    for kind in WATCHED:
        for record in decoded.of(kind):
            planner.builder.apply(kind.collection_name, None, record)
    _feed_owners(planner, decoded, wanted)
    return planner, [kind for kind in wanted if kind not in decoded.owners]


def observed_cluster(
    decoded: DecodedObjects, configuration: Configuration, now: float
) -> AuditedCluster:
    """The cluster of these objects at ``now``, as the scheduler accounts for it."""
    planner, _ = planner_of(decoded, configuration)
    snapshot = planner.freeze(now)
    return cluster_of(
        snapshot,
        planner.published_slices(),
        configuration,
        now,
        pods=decoded.of(PODS),
        nodes=decoded.of(NODES),
        claims=decoded.of(RESOURCE_CLAIMS),
        classes=decoded.of(DEVICE_CLASSES),
        volume_claims=decoded.of(VOLUME_CLAIMS),
        groups=decoded.records.get(NATIVE_GROUPS),
    )


def cluster_of(
    snapshot: Snapshot,
    slices: Iterable[ParsedSlice],
    configuration: Configuration,
    now: float,
    *,
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    claims: Iterable[ResourceClaim],
    classes: Iterable[DeviceClass],
    volume_claims: Iterable[PersistentVolumeClaim],
    groups: Iterable[Unstructured] | None,
) -> AuditedCluster:
    """These objects, with the gangs and charges of a snapshot; ``groups``: None if unknown."""
    return AuditedCluster(
        now=now,
        pods=tuple(pods),
        claims=tuple(claims),
        nodes=tuple(nodes),
        slices=tuple(slices),
        classes=tuple(classes),
        volume_claims=tuple(volume_claims),
        pod_groups=(
            None
            if groups is None
            else {(each.metadata.namespace, each.metadata.name): claims_of(each) for each in groups}
        ),
        gangs=tuple(snapshot.gangs.values()),
        queues=snapshot.queues,
        queue_allocated=snapshot.queue_allocated,
        scheduler_names=frozenset((configuration.scheduler_name, *configuration.scheduler_aliases)),
        staleness_grace=configuration.eviction.staleness_grace,
    )


def _feed_owners(planner: Planner, decoded: DecodedObjects, wanted: Sequence[GroupKind]) -> None:
    """Give the planner the owners that it asks for, and those above them; each kind once."""
    fed: dict[GroupKind, None] = {}
    while missing := [kind for kind in wanted if kind not in fed and kind in decoded.owners]:
        for kind in missing:
            fed[kind] = None
            decode = planner.owner_decoder(kind) or METADATA
            for document in decoded.owners[kind]:
                try:
                    owner = decode(msgspec.json.encode(document))
                except ValueError as error:
                    decoded.problems.append((object_name(document), str(error)))
                    continue
                planner.builder.apply(f"{kind.kind.lower()}s.{kind.group}", None, owner)
            planner.builder.set_owner_kind(kind, readable=True)


def object_name(document: Document) -> str:
    """KIND/NAMESPACE/NAME of an object."""
    meta = document.get("metadata") or {}
    parts = (document.get("kind"), meta.get("namespace"), meta.get("name"))
    return "/".join(str(part) for part in parts if part)
