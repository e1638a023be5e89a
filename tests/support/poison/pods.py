"""Pods of every way to form a gang, and their Jobs."""

from tests.support.cluster.api import Document
from tests.support.poison.document import TEAM, document

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
PLAIN: Document = {"resourceClaims": [], "volumes": [], "affinity": {}, "nodeSelector": {}}
PLAIN |= {"topologySpreadConstraints": []}
PLAIN["containers"] = [
    {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {}}}
]
RUNNING: Document = {
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
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-Job-job"}
OWNED = {"ownerReferences": [OWNER | {"controller": True}]}


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


def pods() -> list[Document]:
    """Pods by themselves, of a Job, of a group, with a part of a GPU."""
    return [
        _pod("pending", {}),
        _pod("simple", {}, PLAIN),
        _pod("running", {}, PLAIN | {"nodeName": "n0"}, RUNNING),
        _pod("of-job", OWNED, PLAIN),
        _pod("suspended", OWNED, PLAIN),
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
            PLAIN,
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
            PLAIN | {"nodeName": "n0", "containers": [{"name": "main", "resources": {}}]},
            RUNNING,
        ),
    ]


def pods_of_dialects() -> list[Document]:
    """Pods with the marks of other schedulers."""
    return [
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
            PLAIN,
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
            PLAIN,
        ),
        _pod("of-native", {}, PLAIN | {"schedulingGroup": {"podGroupName": "native-group"}}),
        _pod(
            "of-kueue",
            {
                "labels": {"kueue.x-k8s.io/pod-group-name": "k"},
                "annotations": TEAM | {"kueue.x-k8s.io/pod-group-total-count": "2"},
            },
            PLAIN,
        ),
    ]


def jobs() -> list[Document]:
    """A RUNNING Job and a suspended one."""
    return [
        document(
            "batch/v1",
            "Job",
            "job",
            "tenant",
            meta=_annotated() | {"annotations": TEAM | {"scheduling.kai.io/min-available": "1"}},
            spec={"parallelism": 2, "completions": 4, "template": {"spec": PLAIN}},
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
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC | PLAIN},
            },
        ),
    ]
