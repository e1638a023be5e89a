"""Devices and volumes in use, groups of other schedulers, and the pods of each."""

from tests.support.cluster.api import Document
from tests.support.poison.document import GPU, document
from tests.support.poison.used_pods import OWN, STARTED, used_pod


def _slice(name: str, node: str, devices: list[Document], **spec: object) -> Document:
    return document(
        "resource.k8s.io/v1",
        "ResourceSlice",
        name,
        spec={
            "driver": GPU,
            "nodeName": node,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        | spec,
    )


def used_slices() -> list[Document]:
    """GPUs in partitions, in shares, whole, and devices that stand for resources of their node."""
    partitions = [
        {
            "name": f"part-{number}",
            "attributes": {"profile": {"string": "1g.10gb" if number else ""}},
            "capacity": {"memory": {"value": "10Gi"}},
            "consumesCounters": [
                {
                    "counterSet": "set",
                    "counters": {
                        "memory": {"value": "10Gi"},
                        f"memory-slice-{number}": {"value": "1"},
                    },
                }
            ],
        }
        for number in range(4)
    ]
    counters = {f"memory-slice-{number}": {"value": "1"} for number in range(4)}
    counters["memory"] = {"value": "40Gi"}
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}}
    shares = [
        {
            "name": f"share-{number}",
            "attributes": {
                "uuid": {"string": f"GPU-{number}"},
                "resource.kubernetes.io/pcieRoot": {"string": "root"},
                "numa": {"ints": [0, 1]},
                "driverVersion": {"version": "1.2.3"},
            },
            "capacity": {
                "memory": {"value": "80Gi", "requestPolicy": policy},
                "cores": {
                    "value": "100",
                    "requestPolicy": {"default": "10", "validValues": ["10", "50", "100"]},
                },
            },
            "allowMultipleAllocations": True,
            "nodeAllocatableResources": {
                "memory": {
                    "mapping": {"capacityKey": "memory", "capacityMultiplier": "1"},
                    "overhead": {"perPod": "10Mi", "perContainer": "5Mi"},
                }
            },
        }
        for number in range(2)
    ]
    siblings = [
        {
            "name": f"sibling-{number}",
            "attributes": {
                "parentUUID": {"string": "GPU-p"},
                "type": {"string": "partition"},
                "productName": {"string": "A30"},
            },
            "capacity": {"memory": {"value": "20Gi"}},
            "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}},
        }
        for number in range(2)
    ]
    by_class = {
        "selectors": [{"cel": {"expression": "device.allowMultipleAllocations"}}],
        "extendedResourceName": "example.com/share",
    }
    return [
        document("resource.k8s.io/v1", "DeviceClass", GPU, spec={"selectors": []}),
        document("resource.k8s.io/v1", "DeviceClass", "shares", spec=by_class),
        _slice("partitions", "shared", partitions),
        _slice(
            "counters",
            "shared",
            [],
            sharedCounters=[{"name": "set", "counters": counters}],
            pool={"name": "partitions", "generation": 1, "resourceSliceCount": 2},
        ),
        _slice("shares", "shared", shares),
        _slice("siblings", "shared", siblings),
    ]


def _claim(name: str, request: Document, results: list[Document], **more: object) -> Document:
    devices = {"requests": [{"name": "gpu"} | request], "constraints": more.pop("constraints", [])}
    status: Document = dict(more)
    if results:
        status["allocation"] = {"devices": {"results": results}}
        status["reservedFor"] = [
            {"resource": "pods", "name": f"uses-{name}", "uid": f"uid-Pod-uses-{name}"}
        ]
    return document(
        "resource.k8s.io/v1",
        "ResourceClaim",
        name,
        "tenant",
        spec={"devices": devices},
        status=status,
    )


def used_claims() -> list[Document]:
    """Claims for partitions, for shares, for alternatives; some allocated, each with its pod."""
    some = {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": 1}
    where = "device.capacity['gpu.example.com'].memory.compareTo(quantity('5Gi')) > 0"
    picked = some | {"selectors": [{"cel": {"expression": where}}]}
    capacity = {"requests": {"memory": "3Gi", "cores": "20"}}
    shared = {"request": "gpu", "driver": GPU, "pool": "shares", "device": "share-0"}
    shared |= {"shareID": "a671734a-e8e5-11e4-8fde-42010af09327"}
    part = {"request": "gpu", "driver": GPU, "pool": "partitions", "device": "part-1"}
    both = [
        {"name": "big", **picked, "count": 9},
        {"name": "small", **picked, "capacity": capacity},
    ]
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": STARTED}]
    made = [
        _claim("partition", {"exactly": picked}, []),
        _claim("share", {"exactly": some | {"capacity": capacity}}, []),
        _claim("either", {"firstAvailable": both}, []),
        _claim("all", {"exactly": {"deviceClassName": GPU, "allocationMode": "All"}}, []),
        _claim(
            "pair",
            {"exactly": picked | {"count": 2}},
            [],
            constraints=[
                {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
                {"requests": ["gpu"], "distinctAttribute": f"{GPU}/uuid"},
            ],
        ),
        _claim("has-partition", {"exactly": some}, [part]),
        _claim(
            "has-share",
            {"exactly": some | {"capacity": capacity}},
            [shared | {"consumedCapacity": {"memory": "3Gi", "cores": "50"}}],
            devices=[
                {"driver": GPU, "pool": "shares", "device": "share-0", "conditions": conditions}
            ],
        ),
        document(
            "resource.k8s.io/v1",
            "DeviceTaintRule",
            "of-shares",
            spec={
                "deviceSelector": {"driver": GPU, "pool": "shares", "device": "share-1"},
                "taint": {"key": "k", "value": "v", "effect": "NoExecute"},
            },
        ),
    ]
    none: Document = {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
    pods = [
        used_pod(
            f"uses-{name}",
            "tenant",
            "shared",
            runs=name.startswith("has-"),
            resources=none,
            resourceClaims=[{"name": "gpu", "resourceClaimName": name}],
            status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]},
        )
        for name in ("partition", "share", "either", "all", "pair", "has-partition", "has-share")
    ]
    extended = {"limits": {"example.com/share": "1"}}
    return [*made, *pods, used_pod("extended", "tenant", "shared", resources=extended)]


def used_volumes() -> list[Document]:
    """Disks that are bound, that wait for their pod, and those that a node can attach."""
    storage = "storage.k8s.io/v1"
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In"}]}
    here["matchExpressions"][0]["values"] = ["shared"]
    bound = {"volumeName": "disk", "storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    open_claim = {"storageClassName": "later", "accessModes": ["ReadWriteOncePod"]}
    open_claim["resources"] = {"requests": {"storage": "2Gi"}}
    bound_uid = "uid-PersistentVolumeClaim-bound"
    disk = {
        "capacity": {"storage": "10Gi"},
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.used", "volumeHandle": "h"},
        "claimRef": {"namespace": "tenant", "name": "bound", "uid": bound_uid},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
    }
    free = disk | {"claimRef": None, "storageClassName": "static"}
    waits = {"volumeBindingMode": "WaitForFirstConsumer"}
    return [
        document(storage, "StorageClass", "later", provisioner="csi.used", **waits),
        document(
            storage, "StorageClass", "static", provisioner="kubernetes.io/no-provisioner", **waits
        ),
        document(storage, "CSIDriver", "csi.used", spec={"storageCapacity": True}),
        document(
            storage,
            "CSINode",
            "shared",
            spec={"drivers": [{"name": "csi.used", "nodeID": "n", "allocatable": {"count": 2}}]},
        ),
        document(
            storage,
            "CSIStorageCapacity",
            "later",
            "tenant",
            storageClassName="later",
            capacity="100Gi",
            maximumVolumeSize="50Gi",
            nodeTopology={"matchLabels": {"pool": "used"}},
        ),
        document("v1", "PersistentVolume", "disk", spec=disk),
        document("v1", "PersistentVolume", "free", spec=free),
        document("v1", "PersistentVolumeClaim", "bound", "tenant", spec=bound),
        document("v1", "PersistentVolumeClaim", "open", "tenant", spec=open_claim),
        document(
            "v1",
            "PersistentVolumeClaim",
            "static",
            "tenant",
            spec=open_claim | {"storageClassName": "static"},
        ),
        *(
            used_pod(
                f"with-{name}",
                "tenant",
                "shared",
                resources={"requests": {"cpu": "1"}},
                volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
            )
            for name in ("bound", "open", "static")
        ),
    ]


def used_groups() -> list[Document]:
    """Groups of other schedulers, with a pod each."""
    volcano = {
        "minMember": 1,
        "minTaskMember": {"worker": 1},
        "queue": "tenant",
        "priorityClassName": "urgent",
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        "minResources": {"cpu": "1"},
    }
    grove = {
        "podgroups": [{"name": "a", "minReplicas": 1, "podReferences": []}],
        "terminationDelay": "1h",
        "priorityClassName": "urgent",
        "topologyConstraint": {"packConstraint": {"required": "zone", "preferred": "zone"}},
        "topologyConstraintGroupConfigs": [{"name": "g", "podGroupNames": ["a"]}],
    }
    workload = {
        "podGroups": [{"name": "w", "policy": {"gang": {"minCount": 1}}}],
        "controllerRef": {"kind": "Job", "name": "job"},
    }
    asked = {"podSets": [{"count": 1, "podTemplateRef": {"name": "t"}}]}
    return [
        document("scheduling.volcano.sh/v1beta1", "PodGroup", "vc", "tenant", spec=volcano),
        document(
            "scheduling.x-k8s.io/v1alpha1",
            "PodGroup",
            "co",
            "tenant",
            spec={"minMember": 1, "scheduleTimeoutSeconds": 10, "minResources": {"cpu": "1"}},
        ),
        document("scheduler.grove.io/v1alpha1", "PodGang", "grove", "tenant", spec=grove),
        document("scheduling.k8s.io/v1alpha1", "Workload", "native", "tenant", spec=workload),
        document(
            "autoscaling.x-k8s.io/v1",
            "ProvisioningRequest",
            "asked",
            "tenant",
            meta={"annotations": {f"{OWN}/gang": "tenant/PodGroup/reclaims"}},
            spec=asked | {"provisioningClassName": "check-capacity"},
            status={
                "conditions": [
                    {"type": "Provisioned", "status": "True", "lastTransitionTime": STARTED}
                ]
            },
        ),
        used_pod("of-volcano", "tenant", "shared", notes={"scheduling.k8s.io/group-name": "vc"}),
        used_pod(
            "of-coscheduling",
            "tenant",
            "shared",
            meta={"labels": {"scheduling.x-k8s.io/pod-group": "co"}},
        ),
        used_pod(
            "of-grove",
            "tenant",
            "shared",
            meta={"labels": {"grove.io/podgang": "grove", "grove.io/podclique": "a"}},
        ),
        used_pod(
            "of-workload",
            "tenant",
            "shared",
            workloadRef={"name": "native", "podGroup": "w", "podGroupReplicaKey": "0"},
        ),
    ]
