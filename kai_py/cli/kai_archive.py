"""Reader of snapshots of KAI-Scheduler (``GET /get-snapshot``).

A zip with one file, ``snapshot.json``: the objects as the API server returned them to KAI, and
KAI's settings. Owners of pods are not in it, so gangs come from PodGroups. A pod with a BindRequest
that did not fail counts as bound to its node.

Source: KAI-Scheduler, docs/plugins/snapshot.md.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from kai_py.api.records.core import Pod
from kai_py.api.records.record import Record
from kai_py.api.records.unstructured import value_at, values_at
from kai_py.audit.documents import DecodedObjects, planner_of
from kai_py.config import Configuration
from kai_py.planner import Planner
from kai_py.simulate.files.objects import MAX_BYTES
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.watch.kinds import (
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    KAI_POD_GROUPS,
    KAI_QUEUES,
    KAI_TOPOLOGIES,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from kai_py.watch.resource import Kind, Resource

FILE_NAME = "snapshot.json"
KINDS: Mapping[str, Kind[Any]] = {
    "priorityClasses": PRIORITY_CLASSES,
    "queues": KAI_QUEUES,
    "topologies": KAI_TOPOLOGIES,
    "nodes": NODES,
    "nodeResourceTopologies": NODE_TOPOLOGIES,
    "podDisruptionBudgets": DISRUPTION_BUDGETS,
    "storageClasses": STORAGE_CLASSES,
    "persistentVolumes": VOLUMES,
    "persistentVolumeClaims": VOLUME_CLAIMS,
    "deviceClasses": DEVICE_CLASSES,
    "resourceSlices": RESOURCE_SLICES,
    "resourceClaims": RESOURCE_CLAIMS,
    "podGroups": KAI_POD_GROUPS,
    "pods": PODS,
}
"""Kind by the name of its list, in the order of reading."""

_V1BETA1_MARKERS: Mapping[str, str] = {
    "ResourceSlice": "spec.devices.*.basic",
    "ResourceClaim": "spec.devices.requests.*.deviceClassName",
}
"""Fields that only v1beta1 has."""


class ArchiveError(ValueError):
    """The file is no snapshot; the message says why."""


class _SchedulerParams(Record, frozen=True):
    scheduler_name: str = ""


class _Document(Record, frozen=True):
    raw_objects: dict[str, msgspec.Raw]
    scheduler_params: _SchedulerParams | None = None


class Archive(Struct, frozen=True):
    """The objects of a snapshot, and the name of the scheduler that took it."""

    objects: DecodedObjects
    scheduler_name: str = ""
    binding: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Nodes of pods that are being bound, by (namespace, name) of the pod."""

    @property
    def taken_at(self) -> float:
        """The latest time on any object, seconds since the epoch."""
        records = (each for of_kind in self.objects.records.values() for each in of_kind)
        times = (each for record in records for each in _timestamps(record))
        return max((each.timestamp() for each in times), default=0.0)

    def planner(self, configuration: Configuration) -> Planner:
        """A planner that has read everything in the snapshot."""
        planner, absent = planner_of(self.objects, configuration)
        for kind in absent:
            planner.builder.set_owner_kind(kind, readable=False)
        for pod in self.objects.of(PODS):
            node = self.binding.get((pod.metadata.namespace, pod.metadata.name))
            if node and not pod.spec.node_name:
                planner.builder.assume(AssumedBinding(pod.metadata.uid, node))
        return planner


def read_archive(path: Path) -> Archive:
    """Read a snapshot; raises ArchiveError."""
    try:
        document = msgspec.json.decode(_content(path), type=_Document)
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror}") from error
    except ArchiveError:
        raise
    except RecursionError:
        raise ArchiveError(f"{path}: {FILE_NAME} is nested too deeply") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, KeyError, ValueError) as error:
        raise ArchiveError(f"{path} is not a snapshot of KAI-Scheduler: {error}") from error
    objects = DecodedObjects()
    for name, kind in KINDS.items():
        for position, raw in enumerate(_listed(document.raw_objects.get(name))):
            try:
                objects.add(kind, _resource(kind, raw).decode(raw))
            except ValueError as error:
                objects.problems.append((f"{name}[{position}]", str(error)))
    params = document.scheduler_params
    return Archive(
        objects,
        scheduler_name=params.scheduler_name if params is not None else "",
        binding=dict(_binding_pods(document.raw_objects.get("bindRequests"))),
    )


def _content(path: Path) -> bytes:
    """The file in the archive; raises ArchiveError if it is enormous, and errors of zipfile."""
    with zipfile.ZipFile(path) as archive:
        too_large = archive.getinfo(FILE_NAME).file_size > MAX_BYTES
        content = b""
        if not too_large:
            # The size that the archive names may be wrong.
            with archive.open(FILE_NAME) as member:
                content = member.read(MAX_BYTES + 1)
    if too_large or len(content) > MAX_BYTES:
        raise ArchiveError(f"{path}: {FILE_NAME} expands to more than {MAX_BYTES >> 30} GiB")
    return content


def _resource(kind: Kind[Any], raw: msgspec.Raw) -> Resource[Any]:
    """The version of an object, which snapshots do not record; earlier ones have v1beta1."""
    marker = _V1BETA1_MARKERS.get(kind.name)
    is_v1beta1 = marker is not None and any(
        True for _ in values_at(msgspec.json.decode(raw), marker)
    )
    return kind.at("v1beta1" if is_v1beta1 else "")


def _listed(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    if raw is None:
        return []
    return msgspec.json.decode(raw, type=list[msgspec.Raw] | None) or []


def _binding_pods(raw: msgspec.Raw | None) -> Iterator[tuple[tuple[str, str], str]]:
    for each in _listed(raw):
        request = msgspec.json.decode(each)
        paths = ("metadata.namespace", "spec.podName", "spec.selectedNode")
        namespace, pod, node = (str(value_at(request, path) or "") for path in paths)
        if value_at(request, "status.phase") != "Failed":
            yield (namespace, pod), node


def _timestamps(record: Any) -> Iterator[datetime]:
    if record.metadata.creation_timestamp is not None:
        yield record.metadata.creation_timestamp
    if isinstance(record, Pod):
        for condition in record.status.conditions:
            if condition.last_transition_time is not None:
                yield condition.last_transition_time
