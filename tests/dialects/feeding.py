"""Documents as the API server would give them, through the kinds' own decoders into a planner."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kai_py.api.records.unstructured import unstructured_decoder
from kai_py.config import Configuration
from kai_py.grouping.owner_chain import GroupKind
from kai_py.plan.plan import Plan
from kai_py.planner import Planner
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.kinds import WATCHED
from tests.support import yaml_text

NOW = 1_800_000_000.0
CREATED = "2027-01-15T07:00:00Z"
Document = Mapping[str, Any]


def documents(text: str) -> list[Document]:
    """The documents of a YAML text."""
    return [each for each in yaml_text.read_all(text) if each]


class Cluster:
    """A planner and the objects it was told of."""

    def __init__(self, *given: Document | Iterable[Document] | str, **configuration: Any) -> None:
        self.planner = Planner(Configuration(**configuration))
        self._known: dict[tuple[str, str, str], Any] = {}
        for each in given:
            self.add(each)

    def add(self, given: Document | Iterable[Document] | str) -> "Cluster":
        """Create or replace objects."""
        for document in _listed(given):
            key, record = self._decoded(document)
            self.planner.builder.apply(key[0], self._known.get(key), record)
            self._known[key] = record
        return self

    def remove(self, given: Document | Iterable[Document] | str) -> "Cluster":
        """Delete objects."""
        for document in _listed(given):
            key, _ = self._decoded(document)
            self.planner.builder.apply(key[0], self._known.pop(key), None)
        return self

    def _decoded(self, document: Document) -> tuple[tuple[str, str, str], Any]:
        """Collection, namespace and name of an object, and its record."""
        group, _, version = document["apiVersion"].rpartition("/")
        watched = {(kind.group, kind.name): kind for kind in WATCHED}
        kind = watched.get((group, document["kind"]))
        namespaced = kind is None or kind.namespaced
        namespace = document["metadata"].get("namespace", "default") if namespaced else ""
        metadata = {
            "uid": _uid(document),
            "creationTimestamp": CREATED,
            **document["metadata"],
            "namespace": namespace,
        }
        whole = {**document, "metadata": metadata}
        if kind is not None:
            record = kind.versions[version](json.dumps(whole).encode())
            return (kind.collection_name, namespace, metadata["name"]), record
        decoder = self.planner.owner_decoder(GroupKind(group, document["kind"]))
        decoder = decoder or unstructured_decoder(("metadata",))
        built_in = "." not in group or group.endswith(".k8s.io")
        collection = f"{document['kind'].lower()}s" + ("" if built_in else f".{group}")
        return (collection, namespace, metadata["name"]), decoder(json.dumps(whole).encode())

    def record(self, document: Document) -> Any:
        """The record of an object that was added."""
        return self._known[self._decoded(document)[0]]

    def snapshot(self, now: float = NOW) -> Snapshot:
        return self.planner.freeze(now)

    def plan(self, now: float = NOW) -> Plan:
        return self.planner.decide(self.snapshot(now))

    def gang(self, key: str) -> Any:
        """The gang called ``key``."""
        return self.snapshot().gangs[key]

    def why(self) -> dict[str, tuple[str, str]]:
        """Stage and sentence of every gang that waits."""
        return {u.gang: (u.stage.value, u.message) for u in self.plan().unplaced}


def placed(plan: Plan) -> dict[str, str]:
    """Pod name to node."""
    return {p.pod.name: p.node for gang in plan.placements for p in gang.pods}


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "status": {
            "allocatable": {
                "cpu": "64",
                "memory": "512Gi",
                "pods": "110",
                "nvidia.com/gpu": str(gpus),
            },
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, gpus: int = 1, *, owner: Document | None = None, **parts: Any) -> Document:
    """A pod for ``gpus`` GPUs; ``parts``: labels, annotations and further fields of the spec."""
    metadata = {
        "labels": parts.pop("labels", {}),
        "annotations": parts.pop("annotations", {}),
    }
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": _uid(owner),
                "controller": True,
            }
        ]
    requests = {"cpu": "1", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            **parts,
        },
        "status": {"phase": "Running" if "nodeName" in parts else "Pending"},
    }


def _listed(given: Document | Iterable[Document] | str) -> Iterable[Document]:
    if isinstance(given, str):
        return documents(given)
    return [given] if isinstance(given, Mapping) else given


def _uid(document: Document) -> str:
    metadata = document["metadata"]
    return metadata.get("uid", f"uid-{document['kind']}-{metadata['name']}")
