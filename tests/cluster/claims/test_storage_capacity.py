"""Volumes are made where their driver has storage left: the same nodes for both schedulers."""

from collections.abc import Iterator
from itertools import count, product
from typing import Any

import pytest

from kai_py.api.records.node import Node
from kai_py.api.records.storage import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from tests.cluster.fake_kubelet import FakeNode
from tests.cluster.gangs.test_filter_parity import ask_ours
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.view import View, scheduled_condition
from tests.support.records import from_json

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"
STORAGE, CLAIMS = "/apis/storage.k8s.io/v1", "/api/v1/namespaces/default/persistentvolumeclaims"
NODES = {"nx": {ZONE: "x"}, "ny": {ZONE: "y"}, "nowhere": {}}
ASKED = (("disks", "1Gi"), ("disks", "2500Mi"), ("wide", "6Gi"), ("wide", "5Gi"), ("mute", "1Ti"))
READ = (
    (Node, "/api/v1/nodes"),
    (StorageClass, f"{STORAGE}/storageclasses"),
    (CSIDriver, f"{STORAGE}/csidrivers"),
    (CSIStorageCapacity, f"{STORAGE}/csistoragecapacities"),
    (PersistentVolumeClaim, CLAIMS),
)


def storage(kind: str, name: str, **fields: Any) -> Document:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}


def storage_class(name: str, provisioner: str) -> Document:
    mode = {"volumeBindingMode": "WaitForFirstConsumer"}
    return storage("StorageClass", name, provisioner=provisioner, **mode)


def offer(name: str, storage_class: str, topology: Document | None, **sizes: str) -> Document:
    said: Document = {} if topology is None else {"nodeTopology": topology}
    return storage("CSIStorageCapacity", name, storageClassName=storage_class, **said, **sizes)


def storage_left() -> Iterator[Document]:
    """One driver tells what it has in which zone, the other tells nothing."""
    spec = {"storageCapacity": True, "attachRequired": False}
    yield storage("CSIDriver", "disk.example.com", spec=spec)
    yield storage_class("disks", "disk.example.com")
    yield storage_class("wide", "disk.example.com")
    yield storage_class("mute", "mute.example.com")
    zones = {zone: {"matchLabels": {ZONE: zone}} for zone in "xy"}
    yield offer("x", "disks", zones["x"], capacity="10Gi")
    yield offer("y", "disks", zones["y"], capacity="10Gi", maximumVolumeSize="2Gi")
    yield offer("none", "disks", None, capacity="10Gi")
    yield offer("all", "wide", {}, capacity="5Gi")


def claim(name: str, storage_class: str, size: str) -> Document:
    spec = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def pod(name: str, node: str) -> Document:
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "nodeSelector": {HOST: node},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def verdict_of_kube_scheduler(cluster: Cluster, view: View, name: str) -> bool | None:
    """Whether it has a node for the pod: it names that on the claim, for the driver to see."""
    found = await cluster.api.get(f"{CLAIMS}/{name}")
    if SELECTED in found["metadata"].get("annotations", {}):
        return True
    said = scheduled_condition(await cluster.api.get(f"{view.path('pods')}/{name}"))
    return False if "enough free storage" in str(said.get("message")) else None


async def until_it_knows_the_driver(cluster: Cluster, view: View) -> None:
    """It has a node for any pod until it sees that the driver tells what it has left."""
    numbers = count()

    async def refused() -> bool:
        name = f"probe-{next(numbers)}"
        await cluster.submit(claim(name, "wide", "9Ti"), pod(name, "nx"))

        async def told() -> bool:
            return await verdict_of_kube_scheduler(cluster, view, name) is not None

        await eventually(told, what=f"a verdict on {name}")
        return await verdict_of_kube_scheduler(cluster, view, name) is False

    await eventually(refused, what="storage capacity to count")


@pytest.mark.usefixtures("kube_scheduler")
async def test_both_schedulers_choose_nodes_for_which_there_is_storage(real: Cluster) -> None:
    view = View(real.api)
    made = [
        FakeNode(name=name, labels=labels, allocatable={"cpu": "8", "memory": "8Gi", "pods": "30"})
        for name, labels in NODES.items()
    ]
    async with real.run_nodes(made):
        await real.submit(*storage_left())
        await until_it_knows_the_driver(real, view)
        asked = {
            f"{kind}-{size.lower()}-{node}": (kind, size, node)
            for (kind, size), node in product(ASKED, NODES)
        }
        await real.submit(*(claim(name, kind, size) for name, (kind, size, _) in asked.items()))
        standing = [
            from_json(kind, each) for kind, path in READ for each in await real.api.items(path)
        ]
        ours = {name: ask_ours(standing, pod(name, node))[0] for name, (*_, node) in asked.items()}
        await real.submit(*(pod(name, node) for name, (*_, node) in asked.items()))

        async def alike() -> bool:
            theirs = {name: await verdict_of_kube_scheduler(real, view, name) for name in asked}
            assert ours == theirs
            return True

        await eventually(alike, what="the same verdicts")
    assert {name for name, fits in ours.items() if fits} == {
        "disks-1gi-nx",
        "disks-1gi-ny",
        "disks-2500mi-nx",
        *(f"{kind}-{node}" for kind in ("wide-5gi", "mute-1ti") for node in NODES),
    }
