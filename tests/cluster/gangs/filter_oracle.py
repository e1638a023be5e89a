"""The nodes on which kube-scheduler's filter plugins, and ours, let pods pass, in one format.

A cluster is a document: lists of objects by the plural of their kind, and the pods that are
``asked`` about. The plugins are compiled from the release that the control plane has into a small
program that reads clusters; no API server takes part.
"""

from collections.abc import Callable
from typing import Any

from kai_py.api.records import storage
from kai_py.api.records.core import PartialObjectMetadata, Pod
from kai_py.api.records.node import Node
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits import node_limits
from kai_py.plan.state.limits.numa import NumaZones
from kai_py.plan.state.limits.volumes import AssumedVolumes
from kai_py.plan.state.pod_rules import PodRuleCounts
from kai_py.policy.fit import replicas_that_fit, static_fit
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.snapshot import Snapshot
from tests.cluster.controlplane.oracles import ask, filter_program
from tests.support.records import from_json
from tests.support.scenario import QUEUE, cluster, queue

Document = dict[str, Any]
ENDED = ("Succeeded", "Failed")
KINDS: dict[str, type] = {
    "namespaces": PartialObjectMetadata,
    "nodes": Node,
    "csidrivers": storage.CSIDriver,
    "csinodes": storage.CSINode,
    "csistoragecapacities": storage.CSIStorageCapacity,
    "persistentvolumeclaims": storage.PersistentVolumeClaim,
    "persistentvolumes": storage.PersistentVolume,
    "storageclasses": storage.StorageClass,
    "volumeattachments": storage.VolumeAttachment,
    "pods": Pod,
}


def theirs(clusters: list[Document]) -> list[list[list[str]]]:
    """Per cluster and pod the nodes on which kube-scheduler's plugins let it pass, sorted.

    kube-scheduler does not watch pods that have ended.
    """
    found = ask(filter_program(), map(_without_ended, clusters))
    return [[sorted(names) for names in each] for each in found]


def _without_ended(document: Document) -> Document:
    left = [each for each in document["pods"] if each["status"]["phase"] not in ENDED]
    return document | {"pods": left}


def ours(document: Document) -> list[list[str]]:
    """The same of our filters."""
    asked = []
    for each in document["asked"]:
        meta = each["metadata"] | {"annotations": {QUEUE: "q"}}
        asked.append(from_json(Pod, each | {"metadata": meta}))
    objects = [
        from_json(kind, each) for name, kind in KINDS.items() for each in document.get(name, ())
    ]
    snapshot = cluster(queue("q", 100), objects, asked).snapshot()
    members = {m.pod.name: m for gang in snapshot.gangs.values() for m in gang.members}
    return [_nodes_for(members[each["metadata"]["name"]], snapshot) for each in document["asked"]]


def _nodes_for(member: Member, snapshot: Snapshot) -> list[str]:
    if member.waiting_for or member.problem:
        return []
    shape, nodes = member.shape, snapshot.nodes
    mask = static_fit(shape, nodes).mask.copy()
    for _, passes in PodRuleCounts(snapshot, lambda: ()).rules(Capacity.IDLE).filters(shape):
        mask &= passes
    free = nodes.allocatable - snapshot.used
    fits = replicas_that_fit(shape, snapshot.resources, free, mask, nodes.allocatable) > 0
    limits = node_limits(snapshot, AssumedVolumes(snapshot), NumaZones(snapshot))
    for limit in limits.refusing(shape):
        fits &= limit.replicas(shape, Capacity.IDLE, 1) > 0
    return [name for row, name in enumerate(nodes.names) if fits[row]]


def judge(random_cluster: Callable[[int], Document], seeds: range) -> None:
    """Fail if any answer differs, or if the clusters are too one-sided to tell."""
    clusters = [random_cluster(seed) for seed in seeds]
    passing = refused = 0
    differ = []
    for seed, document, verdicts in zip(seeds, clusters, theirs(clusters), strict=True):
        for at, (wanted, found) in enumerate(zip(verdicts, ours(document), strict=True)):
            passing += bool(wanted)
            refused += len(wanted) < len(document["nodes"])
            if wanted != found:
                differ.append((seed, at, wanted, found))
    assert passing > len(seeds), "too few pods pass anywhere"
    assert refused > len(seeds), "too few nodes are refused"
    assert not differ, f"{len(differ)} pods, first {differ[:5]}"
