"""Random clusters whose pods ask for volumes, host ports and resources of every kind.

Left out is what differs on purpose. kube-scheduler does not read the zones of ephemeral volumes,
counts a volume twice that is attached to a node and that the pod asks for, takes existing volumes
in classes that provision, and provisions for claims with a selector; a selected node keeps it from
existing volumes.
"""

import random
from typing import Any

Document = dict[str, Any]
HOST = "kubernetes.io/hostname"
PLACES = (
    ("topology.kubernetes.io/zone", "xyz"),
    ("topology.kubernetes.io/region", "r"),
    ("failure-domain.beta.kubernetes.io/zone", "xyz"),
    ("failure-domain.beta.kubernetes.io/region", "rs"),
)
ZONE, REGION = PLACES[0][0], PLACES[1][0]
PLACE_VALUES = ("x", "r", "x__y", "y__r", "__", "x__", " x __y", "")
PLUGIN, REPLACEMENT = "kubernetes.io/aws-ebs", "ebs.csi.aws.com"
MIGRATED = {"storage.alpha.kubernetes.io/migrated-plugins": PLUGIN}
DRIVERS = ("a.csi", "b.csi", "counted.csi")
CLASSES = ("first", "static", "static", "now", "zones", "counted", "missing", "", "plugin")
SIZES = ("1Gi", "5Gi", "5120Mi", "10Gi", "5G", "1100Mi")
MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
MAPS = ("Block", "Filesystem")
ADDRESSES = ("", "0.0.0.0", "127.0.0.1", "127.0.0.2", "::", "::1")
PHASES = ("Running", "Running", "Running", "Pending", "Unknown", "Succeeded", "Failed")
EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
ASKED = 6


def random_cluster(seed: int) -> Document:
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(chance.randint(1, 5))]
    volumes = {
        f"free{i}": volume(chance, f"free{i}", names, "static" if chance.random() < 0.8 else "none")
        for i in range(chance.randint(0, 4))
    }
    attached = [*volumes]
    claims = [claim(chance, f"d{i}", volumes, names) for i in range(chance.randint(0, 8))]
    shared = [each["metadata"]["name"] for each in claims]
    pods = []
    for i in range(ASKED + chance.randint(0, 8)):
        made = pod(chance, f"p{i}", shared, chance.choice(names) if i >= ASKED else "")
        pods.append(made)
        if made["spec"]["volumes"][:1] == [EPHEMERAL] and chance.random() < 0.9:
            claims.append(own_claim(chance, made, volumes, names))
    return {
        "nodes": [node(chance, name) for name in names],
        "pods": pods[ASKED:],
        "asked": pods[:ASKED],
        "persistentvolumes": list(volumes.values()),
        "persistentvolumeclaims": claims,
        "storageclasses": [each for each in classes(chance) if chance.random() < 0.97],
        "csidrivers": [
            {"metadata": {"name": each}, "spec": {"storageCapacity": each == "counted.csi"}}
            for each in DRIVERS
            if chance.random() < 0.8
        ],
        "csinodes": [csi_node(chance, name) for name in names if chance.random() < 0.8],
        "csistoragecapacities": [
            storage_capacity(chance, f"c{i}", names) for i in range(chance.randint(0, 3))
        ],
        "volumeattachments": [
            attachment(chance, f"a{i}", attached, names)
            for i in range(chance.randint(0, 3) if attached else 0)
        ],
    }


def node(chance: random.Random, name: str) -> Document:
    labels = {HOST: name}
    labels |= {key: chance.choice(values) for key, values in PLACES if chance.random() < 0.5}
    allocatable = {
        "cpu": chance.choice(("2", "4", "1500m")),
        "memory": "8Gi",
        "pods": chance.choice(("9", "9", "9", "9", "0", "1", "3")),
        "example.com/x": chance.choice(("0", "1", "2")),
        "hugepages-2Mi": chance.choice(("0", "4Mi", "64Mi")),
        "ephemeral-storage": "10Gi",
    }
    reported = {key: each for key, each in allocatable.items() if chance.random() < 0.93}
    status: Document = {"conditions": [{"type": "Ready", "status": "True"}]}
    if chance.random() < 0.95:
        status["allocatable"] = reported
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def classes(chance: random.Random) -> list[Document]:
    zones = [{"key": ZONE, "values": chance.sample("xyz", 2)}]
    if chance.random() < 0.3:
        zones.append({"key": REGION, "values": ["r"]})
    topologies = [{"matchLabelExpressions": zones}]
    if chance.random() < 0.2:
        topologies.append({"matchLabelExpressions": [{"key": HOST, "values": ["n0"]}]})

    def made(name: str, provisioner: str, **more: Any) -> Document:
        mode = {"volumeBindingMode": "WaitForFirstConsumer"}
        return {"metadata": {"name": name}, "provisioner": provisioner, **mode, **more}

    return [
        made("first", "a.csi"),
        made("static", "kubernetes.io/no-provisioner"),
        made("now", "b.csi", volumeBindingMode="Immediate"),
        made("zones", "b.csi", allowedTopologies=topologies),
        made("counted", "counted.csi"),
        made("plugin", PLUGIN),
    ]


def csi_node(chance: random.Random, name: str) -> Document:
    drivers = []
    for driver in chance.sample((*DRIVERS, REPLACEMENT), chance.randint(0, 4)):
        allocatable = chance.choice(({}, None, *({"count": count} for count in (0, 1, 1, 2, 3))))
        limit = {} if allocatable is None else {"allocatable": allocatable}
        drivers.append({"name": driver, "nodeID": name, **limit})
    return {"metadata": {"name": name, "annotations": MIGRATED}, "spec": {"drivers": drivers}}


def storage_capacity(chance: random.Random, name: str, names: list[str]) -> Document:
    found: Document = {
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": chance.choice(("counted", "counted", "zones", "missing")),
    }
    if chance.random() < 0.8:
        found["capacity"] = chance.choice(SIZES)
    if chance.random() < 0.3:
        found["maximumVolumeSize"] = chance.choice(SIZES)
    elsewhere = {"key": ZONE, "operator": "NotIn", "values": ["x"]}
    topologies: tuple[Document, ...] = (
        {},
        {"matchLabels": {ZONE: chance.choice("xyz")}},
        {"matchLabels": {HOST: chance.choice(names)}},
        {"matchExpressions": [elsewhere]},
        {"matchLabels": {ZONE: "x", REGION: "r"}},
    )
    if chance.random() < 0.85:
        found["nodeTopology"] = chance.choice(topologies)
    return found


def attachment(chance: random.Random, name: str, attached: list[str], names: list[str]) -> Document:
    source = {"persistentVolumeName": chance.choice(attached)}
    where = {"attacher": chance.choice(DRIVERS), "nodeName": chance.choice(names)}
    return {"metadata": {"name": name}, "spec": {**where, "source": source}}


def node_affinity(chance: random.Random, names: list[str]) -> Document:
    def term() -> Document:
        if chance.random() < 0.1:
            return {"matchExpressions": []}
        key, values = chance.choice(((HOST, names), (ZONE, list("xyz"))))
        wanted = chance.sample(values, min(2, len(values)))
        operator = chance.choice(("In", "In", "NotIn"))
        return {"matchExpressions": [{"key": key, "operator": operator, "values": wanted}]}

    return {"required": {"nodeSelectorTerms": [term() for _ in range(chance.choice((1, 1, 2)))]}}


def volume(
    chance: random.Random, name: str, names: list[str], storage_class: str, *, zonal: bool = True
) -> Document:
    spec: Document = {
        "capacity": {"storage": chance.choice(SIZES)},
        "accessModes": chance.sample(MODES, chance.choice((1, 2))),
        "storageClassName": storage_class,
    }
    labels = {"tier": "fast"} if chance.random() < 0.5 else {}
    if chance.random() < 0.2:
        spec["volumeMode"] = chance.choice(MAPS)
    if chance.random() < 0.2:
        spec["volumeAttributesClassName"] = "gold"
    source = chance.random()
    if source < 0.1:
        # kube-scheduler reads other labels of nodes for such a volume, those of the new driver.
        spec["awsElasticBlockStore"] = {"volumeID": f"vol-{name}"}
    else:
        handle = chance.choice((*[f"h-{name}"] * 9, "same"))
        csi = {"driver": chance.choice(DRIVERS), "volumeHandle": handle}
        spec |= {"csi": csi} if source < 0.8 else {"local": {"path": "/data"}}
        if chance.random() < 0.4:
            spec["nodeAffinity"] = node_affinity(chance, names)
        for key, _ in PLACES if zonal else ():
            if chance.random() < 0.1:
                labels[key] = chance.choice(PLACE_VALUES)
    meta: Document = {"name": name, "labels": labels}
    if chance.random() < 0.05:
        meta |= {"deletionTimestamp": LATER, "finalizers": ["kubernetes.io/pv-protection"]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Available"}}


def claim(
    chance: random.Random,
    name: str,
    volumes: dict[str, Document],
    names: list[str],
    *,
    zonal: bool = True,
) -> Document:
    """A claim; if it is bound, its volume is added to ``volumes``, unless that is gone."""
    storage_class = chance.choice(CLASSES)
    spec: Document = {"accessModes": chance.sample(MODES, chance.choice((1, 1, 1, 2)))}
    annotations: dict[str, str] = {}
    if chance.random() < 0.95:
        spec["resources"] = {"requests": {"storage": chance.choice(SIZES)}}
    if chance.random() < 0.05:
        annotations["volume.beta.kubernetes.io/storage-class"] = storage_class
    elif chance.random() < 0.95:
        spec["storageClassName"] = storage_class
    if chance.random() < 0.1:
        spec["volumeMode"] = chance.choice(MAPS)
    if chance.random() < 0.2:
        spec["volumeAttributesClassName"] = "gold"
    if storage_class == "static" and chance.random() < 0.3:
        missing = {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
        spec["selector"] = chance.choice(({"matchLabels": {"tier": "fast"}}, missing, {}))
    if storage_class != "static" and chance.random() < 0.05:
        annotations["volume.kubernetes.io/selected-node"] = chance.choice(names)
    meta: Document = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if chance.random() < 0.05:
        meta |= {"deletionTimestamp": LATER, "finalizers": ["kubernetes.io/pvc-protection"]}
    phase = "Pending"
    if chance.random() < 0.5:
        spec["volumeName"], phase = f"pv-{name}", "Bound"
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
        made = volume(chance, f"pv-{name}", names, storage_class, zonal=zonal)
        made["spec"]["claimRef"] = {"namespace": "default", "name": name, "uid": meta["uid"]}
        made["status"] = {"phase": phase}
        if chance.random() < 0.9:
            volumes[f"pv-{name}"] = made
    meta["annotations"] = annotations
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def own_claim(
    chance: random.Random, of: Document, volumes: dict[str, Document], names: list[str]
) -> Document:
    """The claim of an ephemeral volume; of a pod that is asked about, perhaps one of another."""
    meta = of["metadata"]
    found = claim(chance, f"{meta['name']}-own", volumes, names, zonal=False)
    if "nodeName" in of["spec"] or chance.random() < 0.9:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        found["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return found


EPHEMERAL: Document = {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


def pod_volumes(chance: random.Random, claims: list[str]) -> list[Document]:
    found = [EPHEMERAL] if chance.random() < 0.15 else []
    named = chance.sample([*claims, "none"], min(len(claims), chance.choice((0, 0, 1, 2))))
    found += [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in named]
    if chance.random() < 0.15:
        read = {"readOnly": chance.random() < 0.5}
        sources: tuple[Document, ...] = (
            {"gcePersistentDisk": {"pdName": "d", **read}},
            {"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0, **read}},
            {"rbd": {"monitors": [chance.choice("ab")], "image": "i", "pool": "rbd", **read}},
            {"emptyDir": {}},
        )
        found.append({"name": "disk", **chance.choice(sources)})
    return found


def amounts(chance: random.Random) -> Document:
    choices = (
        ("cpu", 0.6, ("0", "100m", "500m", "1", "1500m", "0.5", "1e-3", "1n")),
        ("memory", 0.4, ("0", "1Gi", "3Gi", "1500M", "1", "100m")),
        ("ephemeral-storage", 0.1, ("0", "4Gi", "11Gi")),
        ("example.com/x", 0.12, ("0", "1", "2")),
        ("example.com/unknown", 0.04, ("0", "0", "1")),
        ("hugepages-2Mi", 0.12, ("0", "2Mi", "4Mi", "64Mi")),
    )
    requests = {
        name: chance.choice(values) for name, likely, values in choices if chance.random() < likely
    }
    whole = ("example.com/", "hugepages-")
    limits = {name: each for name, each in requests.items() if name.startswith(whole)}
    return {"requests": requests, "limits": limits}


def port(chance: random.Random) -> Document:
    found: Document = {"containerPort": 80, "hostPort": chance.choice((0, 8080, 8081))}
    if chance.random() < 0.5:
        found["hostIP"] = chance.choice(ADDRESSES)
    if chance.random() < 0.7:
        found["protocol"] = chance.choice(("TCP", "UDP", "SCTP"))
    return found


def container(chance: random.Random, name: str) -> Document:
    found: Document = {"name": name, "image": "none", "resources": amounts(chance)}
    if chance.random() < 0.12:
        found["ports"] = [port(chance) for _ in range(chance.choice((1, 1, 2)))]
    return found


def resized(chance: random.Random, spec: Document) -> Document:
    """The status of a running pod that shows other amounts than its spec."""
    shown = []
    for each in spec["containers"]:
        one: Document = {"name": each["name"], "image": "", "imageID": "", "ready": True}
        if chance.random() < 0.7:
            one["allocatedResources"] = {"cpu": chance.choice(("100m", "1", "2"))}
        if chance.random() < 0.7:
            changed = {"cpu": chance.choice(("100m", "1", "2")), "memory": "1Gi"}
            one["resources"] = {"requests": each["resources"]["requests"] | changed}
        shown.append({**one, "restartCount": 0})
    reason = chance.choice(("Infeasible", "Deferred", ""))
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    return {"containerStatuses": shown, "conditions": [pending] if reason else []}


def pod(chance: random.Random, name: str, claims: list[str], at: str) -> Document:
    """``at``: the node of a pod that stands; "" for one that is asked about."""
    spec: Document = {
        "schedulerName": "default-scheduler" if at else "kai-scheduler",
        "priority": 0,
        "containers": [container(chance, f"c{i}") for i in range(chance.choice((1, 1, 2)))],
        "volumes": pod_volumes(chance, claims),
    }
    if chance.random() < 0.3:
        spec["initContainers"] = [
            container(chance, f"i{i}") | chance.choice(({}, {"restartPolicy": "Always"}))
            for i in range(chance.choice((1, 2, 3)))
        ]
    if chance.random() < 0.1:
        spec["overhead"] = {"cpu": "250m", "memory": "1Gi"}
    if chance.random() < 0.15:
        whole = chance.choice(({}, {"memory": "4Gi"}))
        spec["resources"] = {"requests": {"cpu": chance.choice(("1", "3")), **whole}}
    meta: Document = {"name": name, "uid": f"uid-{name}", "namespace": "default"}
    status: Document = {"phase": chance.choice(PHASES) if at else "Pending"}
    if at:
        spec["nodeName"] = at
        if chance.random() < 0.2:
            status |= resized(chance, spec)
        if chance.random() < 0.15:
            meta["deletionTimestamp"] = LATER
    return {"metadata": meta | {"creationTimestamp": EARLIER}, "spec": spec, "status": status}
