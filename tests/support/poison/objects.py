"""Ordinary objects of every kind that the scheduler watches: what fuzzed objects are made from."""

from tests.support.cluster.api import Document

QUEUE = "scheduling.kai.io/queue-name"
GPU = "gpu.example.com"
TEAM = {QUEUE: "tenant"}
POD_SPEC: Document = {
    "schedulerName": "kai-scheduler",
    "restartPolicy": "Never",
    "containers": [
        {
            "name": "main",
            "image": "none",
            "ports": [{"hostPort": 80, "containerPort": 80}],
            "resources": {
                "requests": {"cpu": "1", "memory": "1Gi"},
                "limits": {"nvidia.com/gpu": "1"},
                "claims": [{"name": "gpu"}],
            },
        }
    ],
    "initContainers": [
        {"name": "init", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    ],
    "overhead": {"cpu": "10m"},
    "priority": 10,
    "preemptionPolicy": "PreemptLowerPriority",
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 10}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["3"]}]}
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 10,
                    "preference": {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["n0"]}
                        ]
                    },
                }
            ],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {
                        "matchExpressions": [
                            {"key": "app", "operator": "NotIn", "values": ["other"]}
                        ]
                    },
                    "namespaceSelector": {},
                    "topologyKey": "zone",
                    "matchLabelKeys": ["app"],
                }
            ]
        },
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 2,
            "labelSelector": {"matchLabels": {"app": "fuzz"}},
        }
    ],
}
CLAIM_SPEC: Document = {
    "devices": {
        "requests": [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": GPU,
                    "count": 1,
                    "allocationMode": "ExactCount",
                    "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
                    "tolerations": [{"key": "x", "operator": "Exists"}],
                    "capacity": {"requests": {"memory": "1Gi"}},
                },
            },
            {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": GPU, "count": 1}]},
        ],
        "constraints": [{"requests": ["gpu"], "matchAttribute": "gpu.example.com/numa"}],
    }
}
ALLOCATION: Document = {
    "devices": {
        "results": [
            {
                "request": "gpu",
                "driver": GPU,
                "pool": "n0",
                "device": "gpu-0",
                "consumedCapacity": {"memory": "1Gi"},
                "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
            }
        ]
    },
    "nodeSelector": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
        ]
    },
    "allocationTimestamp": "2026-01-01T00:00:00Z",
}


def document(api_version: str, kind: str, name: str, namespace: str = "", **fields: object):
    meta: Document = {"name": name, "uid": f"uid-{kind}-{name}", "resourceVersion": "1"}
    if namespace:
        meta["namespace"] = namespace
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    meta |= fields.pop("meta", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": meta} | fields


def _pod(name: str, meta: Document, spec: Document | None = None, status: Document | None = None):
    return document(
        "v1",
        "Pod",
        name,
        "tenant",
        meta={"annotations": dict(TEAM), "labels": {"app": "fuzz"}} | meta,
        spec=POD_SPEC | (spec or {}),
        status=status or {"phase": "Pending"},
    )


def _annotated(**annotations: str) -> Document:
    named = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return {"annotations": TEAM | named}


def ordinary() -> list[Document]:
    """A world of a tenant with one object of every kind, and pods of every way to form a gang."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-Job-job"}
    owned = {"ownerReferences": [owner | {"controller": True}]}
    plain: Document = {"resourceClaims": [], "volumes": [], "affinity": {}, "nodeSelector": {}}
    plain |= {"topologySpreadConstraints": []}
    plain["containers"] = [
        {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {}}}
    ]
    running = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "claim"}],
    }
    queue = "scheduling.kai.io/v1alpha1"
    return [
        _pod("pending", {}),
        _pod("simple", {}, plain),
        _pod("running", {}, plain | {"nodeName": "n0"}, running),
        _pod("of-job", owned, plain),
        _pod("suspended", owned, plain),
        _pod(
            "grouped",
            _annotated(scheduling__kai__io__pod_group="g", scheduling__kai__io__min_available="2")
            | {
                "annotations": TEAM
                | {
                    "scheduling.kai.io/pod-group": "g",
                    "scheduling.kai.io/min-available": "2",
                    "scheduling.kai.io/preemption-delay": "10s",
                    "scheduling.kai.io/expected-runtime": "1h",
                    "scheduling.kai.io/ageing": "1m",
                    "scheduling.kai.io/preemptibility": "semi-preemptible",
                    "scheduling.kai.io/on-eviction": "suspend",
                    "scheduling.kai.io/segment-size": "1",
                    "scheduling.kai.io/numa-zones": "[]",
                    "scheduling.kai.io/provisioning-class-name": "check-capacity",
                },
                "labels": {"batch.kubernetes.io/job-completion-index": "3"},
            },
            plain,
        ),
        _pod(
            "part",
            {
                "annotations": TEAM
                | {
                    "gpu-fraction": "0.5",
                    "gpu-fraction-num-devices": "2",
                    "scheduling.kai.io/gpu-index": "0",
                },
                "labels": {"runai-gpu-group": "g", "runai-gpu-group/h": "h"},
            },
            plain | {"nodeName": "n0", "containers": [{"name": "main", "resources": {}}]},
            running,
        ),
        _pod(
            "of-kai",
            {
                "annotations": {
                    "pod-group-name": "kai-group",
                    "kai.scheduler/staleness-grace-period": "1m",
                },
                "labels": {
                    "kai.scheduler/queue": "tenant",
                    "kai.scheduler/subgroup-name": "a",
                    "kai.scheduler/task-priority": "3",
                    "priorityClassName": "train",
                },
            },
            plain,
        ),
        _pod(
            "of-yunikorn",
            {
                "annotations": TEAM
                | {
                    "yunikorn.apache.org/task-group-name": "a",
                    "yunikorn.apache.org/task-groups": '[{"name": "a", "minMember": 2}]',
                    "applicationId": "app",
                }
            },
            plain,
        ),
        _pod("of-native", {}, plain | {"schedulingGroup": {"podGroupName": "native-group"}}),
        _pod(
            "of-kueue",
            {
                "labels": {"kueue.x-k8s.io/pod-group-name": "k"},
                "annotations": TEAM | {"kueue.x-k8s.io/pod-group-total-count": "2"},
            },
            plain,
        ),
        document(
            "batch/v1",
            "Job",
            "job",
            "tenant",
            meta=_annotated() | {"annotations": TEAM | {"scheduling.kai.io/min-available": "1"}},
            spec={"parallelism": 2, "completions": 4, "template": {"spec": plain}},
            status={"active": 1, "succeeded": 1},
        ),
        document(
            "batch/v1",
            "Job",
            "suspended",
            "tenant",
            meta={
                "annotations": TEAM
                | {
                    "scheduling.kai.io/suspended-by": "kai-scheduler",
                    "scheduling.kai.io/suspended-at": "2026-01-01T00:00:00Z",
                }
            },
            spec={
                "suspend": True,
                "parallelism": 2,
                "completions": 4,
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC | plain},
            },
        ),
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
        document(
            "kai.scheduler/v1alpha1",
            "Topology",
            "t",
            spec={"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "kubernetes.io/hostname"}]},
        ),
        document("scheduling.k8s.io/v1", "PriorityClass", "train", value=50, globalDefault=False),
        document(
            "resource.k8s.io/v1",
            "DeviceClass",
            "fuzzed",
            spec={
                "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
                "extendedResourceName": "example.com/gpu",
            },
        ),
        document(
            "resource.k8s.io/v1",
            "ResourceSlice",
            "fuzzed",
            spec={
                "driver": "fuzz.example.com",
                "nodeName": "n0",
                "pool": {"name": "fuzz", "generation": 1, "resourceSliceCount": 1},
                "sharedCounters": [{"name": "set", "counters": {"memory": {"value": "80Gi"}}}],
                "devices": [
                    {
                        "name": "d0",
                        "attributes": {
                            "model": {"string": "x"},
                            "numa": {"int": 1},
                            "ok": {"bool": True},
                            "driver": {"version": "1.0.0"},
                        },
                        "capacity": {
                            "memory": {
                                "value": "80Gi",
                                "requestPolicy": {
                                    "default": "1Gi",
                                    "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"},
                                },
                            }
                        },
                        "allowMultipleAllocations": True,
                        "consumesCounters": [
                            {"counterSet": "set", "counters": {"memory": {"value": "10Gi"}}}
                        ],
                        "taints": [
                            {
                                "key": "k",
                                "effect": "NoSchedule",
                                "timeAdded": "2026-01-01T00:00:00Z",
                            }
                        ],
                        "bindsToNode": True,
                        "bindingConditions": ["ready"],
                        "bindingFailureConditions": ["failed"],
                    }
                ],
            },
        ),
        document("resource.k8s.io/v1", "ResourceClaim", "claim", "tenant", spec=CLAIM_SPEC),
        document(
            "resource.k8s.io/v1",
            "ResourceClaim",
            "allocated",
            "tenant",
            spec=CLAIM_SPEC,
            status={
                "allocation": ALLOCATION,
                "reservedFor": [{"resource": "pods", "name": "running", "uid": "uid-Pod-running"}],
            },
        ),
        document(
            "resource.k8s.io/v1",
            "ResourceClaimTemplate",
            "template",
            "tenant",
            spec={"spec": CLAIM_SPEC},
        ),
        document(
            "resource.k8s.io/v1beta2",
            "DeviceTaintRule",
            "rule",
            spec={
                "deviceSelector": {"driver": "fuzz.example.com", "pool": "fuzz"},
                "taint": {"key": "k", "value": "v", "effect": "NoExecute"},
            },
        ),
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
