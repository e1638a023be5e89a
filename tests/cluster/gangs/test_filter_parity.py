"""Where may a pod go? Random pods and nodes, asked of kube-scheduler and of our own filters.

Each question is one pod that is pinned to one node by its name, so that the verdict is about that
node alone: kube-scheduler binds it or says that it can't. The pod leaves again before the next is
asked. Ours is asked of the same documents, read from the API.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.records.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
)
from tests.cluster.fake_kubelet import FakeNode
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.view import View, scheduled_condition
from tests.support.records import from_json
from tests.support.scenario import QUEUE, placed, queue
from tests.support.scenario import cluster as planned

NODES, STANDING, QUESTIONS, SEED = 5, 12, 36, 20269
ZONE, DISK = "topology.kubernetes.io/zone", "disk"
DRIVER = "disk.example.com"
CLAIMS = ("disk-a", "disk-b", "disk-c", "disk-d", "local-a", "local-b", "single-a", "single-b")
REASONS = (
    "free ports",
    "max volume count",
    "PersistentVolume's node affinity",
    "ReadWriteOncePod",
    "no available disk",
    "untolerated taint",
    "Insufficient cpu",
    "anti-affinity",
    "topology spread constraints",
)
"""Of kube-scheduler; each must come up, lest a filter goes untested."""
STORAGE = (
    (CSINode, "/apis/storage.k8s.io/v1/csinodes"),
    (VolumeAttachment, "/apis/storage.k8s.io/v1/volumeattachments"),
    (PersistentVolume, "/api/v1/persistentvolumes"),
    (PersistentVolumeClaim, "/api/v1/namespaces/default/persistentvolumeclaims"),
)
LEFT = "disk-left"
LOCAL = ("local-a", "local-b")
EXCLUSIVE = ("single-a", "single-b")
MOUNTED: tuple[Document, ...] = (
    {"gcePersistentDisk": {"pdName": "data"}},
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2026-01.test:data", "lun": 0}},
    {"rbd": {"monitors": ["a", "b"], "image": "data"}},
    {"rbd": {"monitors": ["b", "c"], "image": "data", "pool": "rbd"}},
    {"rbd": {"monitors": ["c"], "image": "data"}},
)
TAINTS = (
    {"key": "team", "value": "red", "effect": "NoSchedule"},
    {"key": "team", "value": "blue", "effect": "NoSchedule"},
    {"key": "spot", "effect": "PreferNoSchedule"},
    {"key": "drain", "value": "now", "effect": "NoExecute"},
)


def nodes(chance: random.Random) -> list[FakeNode]:
    return [
        FakeNode(
            name=f"n{i}",
            labels={
                DISK: chance.choice(("ssd", "hdd")),
                "cores": str(chance.choice((4, 8, 16))),
                **({ZONE: chance.choice("xy")} if i else {}),
            },
            allocatable={"cpu": str(chance.choice((6, 12))), "memory": "12Gi", "pods": "9"}
            | ({"nvidia.com/gpu": "2"} if chance.random() < 0.6 else {}),
            taints=chance.sample(TAINTS, chance.choice((0, 0, 1, 2))),
        )
        for i in range(NODES)
    ]


def containers(chance: random.Random, *, ports: bool) -> Document:
    def amounts(most: int) -> Document:
        wanted = {"cpu": f"{chance.randrange(0, most * 1000, 250)}m"}
        if chance.random() < 0.5:
            wanted["memory"] = f"{chance.randrange(1, 4)}Gi"
        limits = {"nvidia.com/gpu": str(chance.choice((1, 2)))} if chance.random() < 0.1 else {}
        return {"requests": wanted | limits, "limits": limits}

    def made(name: str, most: int, **more: Any) -> Document:
        return {"name": name, "image": "none", "resources": amounts(most), **more}

    found: Document = {"containers": [made(f"c{i}", 2) for i in range(chance.choice((1, 1, 2)))]}
    if ports and chance.random() < 0.4:
        address = {"hostIP": "127.0.0.2"} if chance.random() < 0.4 else {}
        port = {"containerPort": 80, "hostPort": chance.choice((8080, 8081)), **address}
        found["containers"][0]["ports"] = [
            port | {"protocol": chance.choice(("TCP", "TCP", "UDP"))}
        ]
    if chance.random() < 0.4:
        found["initContainers"] = [
            made(f"i{i}", 6, **({"restartPolicy": "Always"} if chance.random() < 0.5 else {}))
            for i in range(chance.choice((1, 2, 3)))
        ]
    return found


def disks(made: list[FakeNode], chance: random.Random) -> Iterator[Document]:
    """Claims bound to volumes, some of them local ones, and how many a node can attach.

    One volume is attached to all nodes though no pod uses it; no pod asks for it, for there
    kube-scheduler would count it twice.
    """
    for node in made:
        driver = {"name": DRIVER, "nodeID": node.name, "allocatable": {"count": 2}}
        yield document("storage.k8s.io/v1", "CSINode", node.name, {"drivers": [driver]})
    for node in made:
        source = {"persistentVolumeName": f"volume-of-{LEFT}"}
        attached = {"attacher": DRIVER, "nodeName": node.name, "source": source}
        yield document("storage.k8s.io/v1", "VolumeAttachment", f"left-{node.name}", attached)
    for name in (*CLAIMS, LEFT):
        modes = ["ReadWriteOncePod" if name in EXCLUSIVE else "ReadWriteMany"]
        claim = {"namespace": "default", "name": name}
        offered: Document = {
            "capacity": {"storage": "1Gi"},
            "accessModes": modes,
            "storageClassName": "",
            "claimRef": claim,
            "csi": {"driver": DRIVER, "volumeHandle": f"volume-of-{name}"},
        }
        if name in LOCAL:
            del offered["csi"]
            offered["local"] = {"path": "/data"}
            hosts = {
                "key": "kubernetes.io/hostname",
                "operator": "In",
                "values": chance.sample([node.name for node in made], 2),
            }
            terms = [{"matchExpressions": [hosts]}]
            offered["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        yield document("v1", "PersistentVolume", f"volume-of-{name}", offered)
        wanted = {
            "accessModes": modes,
            "storageClassName": "",
            "volumeName": f"volume-of-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        yield document("v1", "PersistentVolumeClaim", name, wanted)


def document(api_version: str, kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def volumes(chance: random.Random) -> list[Document]:
    names = chance.sample(CLAIMS, chance.choice((1, 1, 2)))
    return [volume(name) for name in names]


def volume(claim: str) -> Document:
    return {"name": claim, "persistentVolumeClaim": {"claimName": claim}}


def mounted(chance: random.Random) -> Document:
    """A disk without a claim."""
    ((source, fields),) = chance.choice(MOUNTED).items()
    read_only = {"readOnly": True} if chance.random() < 0.5 else {}
    return {"name": "mounted", source: fields | read_only}


def selector(chance: random.Random) -> Document:
    return {"matchLabels": {"app": chance.choice("abc")}}


def node_terms(chance: random.Random) -> list[Document]:
    expressions = (
        {"key": DISK, "operator": "In", "values": ["ssd"]},
        {"key": DISK, "operator": "NotIn", "values": ["ssd", "nvme"]},
        {"key": ZONE, "operator": "Exists"},
        {"key": ZONE, "operator": "DoesNotExist"},
        {"key": "cores", "operator": "Gt", "values": ["4"]},
        {"key": "cores", "operator": "Lt", "values": ["16"]},
    )
    return [
        {"matchExpressions": chance.sample(expressions, chance.choice((1, 2)))}
        for _ in range(chance.choice((1, 2)))
    ]


def pod_terms(chance: random.Random) -> list[Document]:
    def term() -> Document:
        key = chance.choice((ZONE, "kubernetes.io/hostname"))
        return {"labelSelector": selector(chance), "topologyKey": key}

    return [term() for _ in range(chance.choice((1, 1, 2)))]


def spread(chance: random.Random) -> Document:
    return {
        "maxSkew": chance.choice((1, 2)),
        "topologyKey": chance.choice((ZONE, "kubernetes.io/hostname")),
        "whenUnsatisfiable": chance.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": selector(chance),
        "nodeAffinityPolicy": chance.choice(("Ignore", "Ignore", "Honor")),
        "nodeTaintsPolicy": chance.choice(("Ignore", "Honor")),
    }


def pod(chance: random.Random, name: str, *, ports: bool = True) -> Document:
    spec: Document = {"terminationGracePeriodSeconds": 0}
    spec |= containers(chance, ports=ports)
    affinity: Document = {}
    if chance.random() < 0.6:
        spec["volumes"] = volumes(chance)
    if chance.random() < 0.6:
        spec["volumes"] = [*spec.get("volumes", ()), mounted(chance)]
    if chance.random() < 0.1:
        spec["nodeSelector"] = {DISK: chance.choice(("ssd", "hdd"))}
    if chance.random() < 0.8:
        spec["tolerations"] = tolerations(chance)
    if chance.random() < 0.15:
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": node_terms(chance)
            }
        }
    for kind in ("podAffinity", "podAntiAffinity"):
        if chance.random() < 0.15:
            affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": pod_terms(chance)}
    if chance.random() < 0.3:
        spec["topologySpreadConstraints"] = [spread(chance)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": chance.choice("abc")}},
        "spec": spec | ({"affinity": affinity} if affinity else {}),
    }


def tolerations(chance: random.Random) -> list[Document]:
    known = (
        {"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists"},
        {"key": "drain", "operator": "Exists", "effect": "NoExecute"},
        {"key": "drain", "value": "later", "effect": "NoExecute"},
        {"operator": "Exists", "effect": "NoSchedule"},
    )
    return chance.sample(known, chance.choice((1, 2)))


def pinned(question: Document, node: str) -> Document:
    """The pod with its name changed, and every term of its node affinity narrowed to one node."""
    spec, meta = question["spec"], question["metadata"]
    affinity = spec.get("affinity", {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    asked = affinity.get("nodeAffinity", {}).get(required, {"nodeSelectorTerms": [{}]})
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [term | {"matchFields": [field]} for term in asked["nodeSelectorTerms"]]
    node_affinity = {required: {"nodeSelectorTerms": terms}}
    return question | {
        "metadata": meta | {"name": f"{meta['name']}-{node}"},
        "spec": spec | {"affinity": affinity | {"nodeAffinity": node_affinity}},
    }


async def ask_kube_scheduler(cluster: Cluster, view: View, document: Document) -> tuple[bool, str]:
    """Whether the pod found its node, and else why not; it is gone afterwards."""
    await cluster.submit(document)
    path = f"{view.path('pods')}/{document['metadata']['name']}"

    async def verdict() -> tuple[bool, str] | None:
        found = await cluster.api.get(path)
        said = scheduled_condition(found)
        bound, refused = bool(found["spec"].get("nodeName")), said.get("status") == "False"
        return (bound, str(said.get("message"))) if bound or refused else None

    answer = await eventually(verdict, what=f"a verdict on {document['metadata']['name']}")
    await cluster.api.delete(path, {"gracePeriodSeconds": 0})
    return answer


def ask_ours(standing: list[Any], document: Document) -> tuple[bool, str]:
    """Whether our scheduler places the pod, and else why not."""
    meta = document["metadata"] | {"namespace": "default", "uid": "asked"}
    meta["annotations"] = {QUEUE: "team"}
    spec = document["spec"] | {"schedulerName": "kai-scheduler", "priority": 0}
    asked = from_json(Pod, document | {"metadata": meta, "spec": spec})
    plan = planned(*standing, queue("team", 1000), asked).plan()
    return bool(placed(plan)), "".join(each.message for each in plan.unplaced)


def standing_pods(chance: random.Random, names: list[str]) -> Iterator[Document]:
    """Pods that are on nodes already, whoever put them there."""
    for i in range(STANDING):
        made = pod(chance, f"standing-{i}")
        affinity = made["spec"].get("affinity", {})
        made["spec"]["affinity"] = {k: v for k, v in affinity.items() if k == "podAntiAffinity"}
        made["spec"].pop("topologySpreadConstraints", None)
        made["spec"]["tolerations"] = [{"operator": "Exists"}]
        yield made | {"spec": made["spec"] | {"nodeName": chance.choice(names)}}


@pytest.mark.usefixtures("kube_scheduler")
async def test_both_schedulers_give_every_pod_the_same_nodes(real: Cluster):
    chance, view = random.Random(SEED), View(real.api)
    made = nodes(chance)
    async with real.run_nodes(made):
        await real.submit(*disks(made, chance))
        await real.submit(*standing_pods(chance, [each.name for each in made]))
        await real.submit(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "first"},
                "spec": {
                    "containers": [{"name": "main", "image": "none"}],
                    "volumes": [volume(name) for name in EXCLUSIVE],
                    "nodeName": made[0].name,
                },
            }
        )

        async def settled() -> bool:
            phases = {each["status"]["phase"] for each in await view.pods()}
            assert phases <= {"Running", "Failed"}
            claims = await real.api.items("/api/v1/namespaces/default/persistentvolumeclaims")
            return all(each["status"].get("phase") == "Bound" for each in claims)

        await eventually(settled, what="running pods")
        standing = [
            *(from_json(Node, each) for each in await real.api.items("/api/v1/nodes")),
            *(from_json(Pod, each) for each in await view.pods()),
            *[
                from_json(kind, each)
                for kind, path in STORAGE
                for each in await real.api.items(path)
            ],
        ]
        differ, refusals, asked = [], [], 0
        for number in range(QUESTIONS):
            question = pod(chance, f"asked-{number}")
            for each in made:
                document = pinned(question, each.name)
                theirs, why = await ask_kube_scheduler(real, view, document)
                ours, our_why = ask_ours(standing, document)
                asked += 1
                refusals += [] if theirs else [why]
                if ours != theirs:
                    differ.append((document["spec"], each.name, theirs, why, our_why))
    assert not differ, f"{len(differ)} of {asked}: {differ[0]}"
    assert 0.1 < len(refusals) / asked < 0.9, f"{len(refusals)} of {asked}: too one-sided"
    unseen = [reason for reason in REASONS if not any(reason in why for why in refusals)]
    assert not unseen, "no question was refused for these reasons"
