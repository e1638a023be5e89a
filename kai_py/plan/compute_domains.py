"""Where may the pods of a ComputeDomain be? Within one NVLink clique.

A channel of NVIDIA's ComputeDomain driver lets a pod reach the memory of GPUs on other nodes, as
far as NVLink goes: the clique that a node's label names. A gang of pods that claim channels, and
that names no topology itself, stays in one clique. Each node has one channel; a gang that wants
more channels than any clique has nodes only prefers a clique.

Complexity: O(waiting gangs) where a DeviceClass selects channels, nothing elsewhere.
Source: NVIDIA's driver for ComputeDomains, resource.nvidia.com/v1beta1.
"""

from collections.abc import Set
from dataclasses import replace

import numpy as np

from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import TopologyConstraint
from kai_py.plan.placement.topology import constrained
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

CLIQUE = "nvidia.com/gpu.clique"
DRIVER = "compute-domain.nvidia.com"


def in_cliques(snapshot: Snapshot, devices: ClusterDevices) -> Snapshot:
    """The snapshot, with every waiting gang that claims channels kept in a clique."""
    classes = devices.classes_of(DRIVER)
    cliques = snapshot.nodes.label(CLIQUE).codes
    if not classes or not cliques.any():
        return snapshot
    largest = int(np.bincount(cliques)[1:].max())
    kept = {
        key: _kept(snapshot.gangs[key], classes, largest)
        for key in snapshot.pending
        if not constrained(snapshot.gangs[key].tree)
    }
    return replace(snapshot, gangs={**snapshot.gangs, **kept})


def _kept(gang: Gang, classes: Set[str], largest: int) -> Gang:
    """The gang in one clique if any of its pods claims a channel."""
    channels = {
        claim
        for member in gang.members
        for use, claim in zip(member.shape.claims, member.claims, strict=False)
        if _asks_for(use.spec, classes)
    }
    if not channels:
        return gang
    topology = TopologyConstraint(required_level=CLIQUE)
    if len(channels) > largest:
        topology = TopologyConstraint(preferred_level=CLIQUE)
    return replace(gang, tree=replace(gang.tree, topology=topology))


def _asks_for(spec: ResourceClaimSpec, classes: Set[str]) -> bool:
    return any(
        asked.device_class_name in classes
        for request in spec.devices.requests
        for asked in (
            (request.exactly,) if request.exactly is not None else request.first_available
        )
    )
