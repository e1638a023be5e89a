"""Ordinary objects of every kind that the scheduler watches: what fuzzed objects are made from."""

from tests.support.cluster.api import Document
from tests.support.poison.devices import claims, slices
from tests.support.poison.document import GPU, document
from tests.support.poison.pods import jobs, pods, pods_of_dialects


def ordinary() -> list[Document]:
    """A world of a tenant with one object of every kind, and pods of every way to form a gang."""
    return [
        *pods(),
        *pods_of_dialects(),
        *jobs(),
        *_queues(),
        *_groups(),
        *_levels(),
        *slices(),
        *claims(),
        *_nodes(),
        *_volumes(),
        *_storage(),
    ]


def _queues() -> list[Document]:
    """Queues."""
    queue = "scheduling.kai.io/v1alpha1"
    return [
        document(
            queue,
            "Queue",
            "fuzzed",
            spec={
                "deservedGPUs": 4,
                "maxGPUs": 8,
                "parent": "root",
                "weight": 1.0,
                "resources": {"cpu": {"deserved": "10", "max": "20"}},
                "devices": [{"name": "gpus", "deviceClassName": GPU, "deserved": 1}],
                "preemptMinRuntime": "1m",
                "reserveAfter": "10m",
                "ageing": "1h",
                "namespaces": {"names": ["tenant"]},
            },
            status={
                "evictions": [{"workload": "a", "at": "2026-01-01T00:00:00Z", "pods": 1}],
                "usage": {
                    "observedAt": "2026-01-01T00:00:00Z",
                    "used": {"gpus": 1.0},
                    "capacity": {"gpus": 2.0},
                    "halfLife": "1h",
                },
            },
        ),
        document(queue, "Queue", "root", spec={"deservedGPUs": 4}),
        document(
            "scheduling.run.ai/v2",
            "Queue",
            "of-kai",
            spec={
                "parentQueue": "of-kai-root",
                "priority": 100,
                "resources": {
                    "gpu": {"quota": 2, "limit": 4, "overQuotaWeight": 1},
                    "cpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
                    "memory": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
                },
                "preemptMinRuntime": "1m",
            },
        ),
    ]


def _groups() -> list[Document]:
    """Groups of pods in other dialects."""
    return [
        document(
            "scheduling.run.ai/v2alpha2",
            "PodGroup",
            "kai-group",
            "tenant",
            meta={"annotations": {"kai.scheduler/last-eviction-timestamp": "2026-01-01T00:00:00Z"}},
            spec={
                "minMember": 1,
                "queue": "tenant",
                "priorityClassName": "train",
                "preemptionDelay": "1m",
                "stalenessGracePeriod": "1m",
                "schedulingBackoff": 2,
                "subGroups": [
                    {"name": "a", "minMember": 1},
                    {"name": "b", "parent": "c", "minMember": 1},
                    {"name": "c", "minSubGroup": 1},
                ],
                "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "zone"},
            },
            status={
                "schedulingConditions": [{"type": "UnschedulableOnNodePool", "transitionID": "1"}]
            },
        ),
        document(
            "scheduling.k8s.io/v1alpha3",
            "PodGroup",
            "native-group",
            "tenant",
            spec={
                "parentCompositePodGroupName": "above",
                "schedulingPolicy": {"gang": {"minCount": 1}},
                "priority": 5,
                "disruptionMode": {"all": {}},
                "schedulingConstraints": {"topology": [{"key": "zone"}]},
            },
        ),
        document(
            "scheduling.k8s.io/v1alpha3",
            "CompositePodGroup",
            "above",
            "tenant",
            spec={"schedulingPolicy": {"gang": {"minGroupCount": 1}}},
        ),
    ]


def _levels() -> list[Document]:
    """What pods and groups refer to."""
    return [
        document(
            "kai.scheduler/v1alpha1",
            "Topology",
            "t",
            spec={"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "kubernetes.io/hostname"}]},
        ),
        document("scheduling.k8s.io/v1", "PriorityClass", "train", value=50, globalDefault=False),
    ]


def _nodes() -> list[Document]:
    """A node, what says more of one, and what hangs on none."""
    return [
        document(
            "v1",
            "Node",
            "fuzzed",
            meta={"labels": {"zone": "z", "nvidia.com/gpu.memory": "80000", "gen": "4"}},
            spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            status={
                "allocatable": {
                    "cpu": "8",
                    "memory": "64Gi",
                    "pods": "110",
                    "nvidia.com/gpu": "8",
                    "nvidia.com/mig-1g.5gb": "7",
                },
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        ),
        document(
            "policy/v1",
            "PodDisruptionBudget",
            "budget",
            "tenant",
            spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "fuzz"}}},
            status={
                "disruptionsAllowed": 1,
                "currentHealthy": 1,
                "desiredHealthy": 1,
                "expectedPods": 1,
                "disruptedPods": {"a": "2026-01-01T00:00:00Z"},
            },
        ),
        document(
            "topology.node.k8s.io/v1alpha2",
            "NodeResourceTopology",
            "n0",
            topologyPolicies=["SingleNUMANodePodLevel"],
            zones=[
                {
                    "name": "node-0",
                    "type": "Node",
                    "resources": [{"name": "cpu", "allocatable": "4", "available": "4"}],
                }
            ],
            attributes=[{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        ),
        document("v1", "Namespace", "tenant", meta={"labels": {"team": "tenant"}}),
    ]


def _volumes() -> list[Document]:
    """A volume and its claim."""
    return [
        document(
            "v1",
            "PersistentVolumeClaim",
            "data",
            "tenant",
            spec={
                "storageClassName": "fast",
                "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": "1Gi"}},
                "selector": {"matchLabels": {"a": "b"}},
            },
            status={"phase": "Pending"},
        ),
        document(
            "v1",
            "PersistentVolume",
            "volume",
            spec={
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "csi": {"driver": "csi.example.com", "volumeHandle": "h"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
                        ]
                    }
                },
            },
            status={"phase": "Available"},
        ),
    ]


def _storage() -> list[Document]:
    """What serves volumes."""
    return [
        document(
            "storage.k8s.io/v1",
            "StorageClass",
            "fast",
            provisioner="csi.example.com",
            volumeBindingMode="WaitForFirstConsumer",
            allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
        ),
        document(
            "storage.k8s.io/v1",
            "CSINode",
            "n0",
            spec={
                "drivers": [
                    {"name": "csi.example.com", "nodeID": "n0", "allocatable": {"count": 3}}
                ]
            },
        ),
        document(
            "storage.k8s.io/v1", "CSIDriver", "csi.example.com", spec={"storageCapacity": True}
        ),
        document(
            "storage.k8s.io/v1",
            "CSIStorageCapacity",
            "here",
            "tenant",
            storageClassName="fast",
            capacity="10Gi",
            maximumVolumeSize="5Gi",
            nodeTopology={"matchLabels": {"zone": "a"}},
        ),
        document(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            "attached",
            spec={
                "attacher": "csi.example.com",
                "nodeName": "n0",
                "source": {"persistentVolumeName": "volume"},
            },
        ),
    ]
