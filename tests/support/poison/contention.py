"""A cluster in use: what is evicted, waited for, partitioned, shared and about to go.

The objects of ``objects`` have one of each kind, most of which stay pending by themselves. Here the
nodes and devices are in use, so that the code runs which weighs one workload against another. The
nodes are apart from those of the canary.
"""

from tests.support.cluster.api import Document
from tests.support.poison.document import GPU, document
from tests.support.poison.used_devices import used_claims, used_groups, used_slices, used_volumes
from tests.support.poison.used_pods import OWN, STARTED, gang_notes, used_pod

READY = {"type": "Ready", "status": "True"}


def in_use() -> list[Document]:
    """Nodes that are full or about to go, and the gangs that run there and want to."""
    return [
        *_queues(),
        *_nodes(),
        *used_slices(),
        *_borrowers(),
        *_reclaimers(),
        *_on_the_going_node(),
        *_shares(),
        *_unready(),
        *used_claims(),
        *used_volumes(),
        *used_groups(),
    ]


def _queues() -> list[Document]:
    kind = ("scheduling.kai.io/v1alpha1", "Queue")
    usage = {"observedAt": STARTED, "used": {"gpus": "1"}, "capacity": {"gpus": "8"}}
    usage["halfLife"] = "1h"
    return [
        document(
            *kind,
            "owner",
            spec={
                "deservedGPUs": 12,
                "reserveAfter": "1s",
                "ageing": "1m",
                "preemptMinRuntime": "1m",
                "reclaimMinRuntime": "1m",
            },
            status={"usage": usage},
        ),
        document(
            *kind,
            "borrower",
            spec={"weight": 0, "resources": {"cpu": {"deserved": "1", "max": "400"}}},
            status={"usage": usage},
        ),
        document("scheduling.k8s.io/v1", "PriorityClass", "urgent", value=1000),
    ]


def _node(name: str, labels: Document | None = None, mig: int = 0, **more: object) -> Document:
    amounts = {
        "cpu": "64",
        "memory": "256Gi",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "hugepages-2Mi": "1Gi",
    }
    if mig:
        amounts |= {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": str(mig)}
    named = {"kubernetes.io/hostname": name, "pool": "used", "zone": f"of-{name}"}
    return document(
        "v1",
        "Node",
        name,
        meta={"labels": named | (labels or {})},
        spec={"taints": more.pop("taints", [])},
        status={"allocatable": amounts, "capacity": amounts, "conditions": [READY]} | more,
    )


def _nodes() -> list[Document]:
    memory = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "8"}
    zone = {"resources": [{"name": "cpu", "allocatable": "32", "available": "20"}], "type": "Node"}
    return [
        _node("full", memory | {"nvidia.com/gpu.replicas": "1"}),
        _node("shared", memory),
        _node("mig", memory | {"nvidia.com/mig.strategy": "mixed"}, mig=7),
        _node("spot", memory | {"karpenter.sh/capacity-type": "spot"}),
        _node(
            "going",
            memory,
            taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}],
            conditions=[READY, {"type": "KernelDeadlock", "status": "True"}],
        ),
        document(
            "topology.node.k8s.io/v1alpha2",
            "NodeResourceTopology",
            "shared",
            attributes=[
                {"name": "topologyManagerPolicy", "value": "single-numa-node"},
                {"name": "topologyManagerScope", "value": "container"},
            ],
            zones=[
                zone
                | {
                    "name": f"node-{number}",
                    "resources": [
                        *zone["resources"],
                        {"name": "memory", "allocatable": "128Gi", "available": "64Gi"},
                        {"name": "nvidia.com/gpu", "allocatable": "4", "available": "4"},
                    ],
                }
                for number in range(2)
            ],
        ),
    ]


def _borrowers() -> list[Document]:
    """Pods beyond what their queue deserves, on a full node."""
    declared = {
        "expected_runtime": "2h",
        "checkpoint_interval": "7m",
        "preemptibility": "semi-preemptible",
        "ageing": "1m",
        "on_pod_loss": "restart",
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "borrowers",
        "uid": "borrowers",
        "controller": True,
    }
    budget = document(
        "policy/v1",
        "PodDisruptionBudget",
        "of-borrowers",
        "tenant",
        spec={"selector": {"matchLabels": {"budget": "yes"}}},
        status={"disruptionsAllowed": 4, "currentHealthy": 5, "desiredHealthy": 1},
    )
    return [
        budget,
        *(
            used_pod(
                f"borrower-{number}",
                "borrower",
                "full",
                runs=True,
                notes=gang_notes(f"borrower-{number // 3}", 2, **(declared if number < 3 else {})),
                meta={"labels": {"budget": "yes"}, "ownerReferences": [owner]},
                priority=number,
                nodeSelector={"kubernetes.io/hostname": "full"} if number > 4 else {},
            )
            for number in range(8)
        ),
    ]


def _reclaimers() -> list[Document]:
    """Gangs that can only start in place of others."""
    delayed = gang_notes("waits", 3, preemption_delay="1s", expected_runtime="10m")
    return [
        *(
            used_pod(f"reclaims-{number}", "owner", "full", notes=gang_notes("reclaims", 2))
            for number in range(3)
        ),
        *(
            used_pod(f"waits-{number}", "owner", "full", notes=delayed, priorityClassName="urgent")
            for number in range(3)
        ),
        used_pod(
            "preempts", "borrower", "full", priority=1000, preemptionPolicy="PreemptLowerPriority"
        ),
        used_pod("resumes", "owner", "full", status={"nominatedNodeName": "full"}),
        used_pod("large", "owner", "spot", resources={"limits": {"nvidia.com/gpu": "8"}}),
    ]


def _on_the_going_node() -> list[Document]:
    saving = {"checkpoint_grace": "1m", "checkpoint_interval": "5m"}
    asked = {f"{OWN}/checkpoint-by": "2027-01-15T08:01:00Z", f"{OWN}/checkpointed": "x"}
    return [
        used_pod(
            f"going-{treatment}-{number}",
            "owner",
            "going",
            runs=True,
            notes=gang_notes(f"going-{treatment}", 2, on_node_departure=treatment, **saving)
            | (asked if number else {}),
        )
        for treatment in ("checkpoint", "move", "shrink", "go-down")
        for number in range(2)
    ] + [
        used_pod(
            "on-spot",
            "borrower",
            "spot",
            notes=gang_notes("on-spot", 1, spot="prefer", spot_fallback_after="10m"),
            nodeSelector={"pool": "used"},
        )
    ]


def _shares() -> list[Document]:
    """Parts of GPUs, MIG devices, and whole CPUs of NUMA zones."""
    whole = {"cpu": "4", "memory": "8Gi"}
    part: Document = {"resources": {"requests": {"cpu": "1"}}}
    groups = {"runai-gpu-group": "g1"}
    observed = '[{"zone": "node-0", "amount": {"cpu": "3"}}]'
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    return [
        used_pod(
            "has-part",
            "tenant",
            "shared",
            runs=True,
            notes={"gpu-fraction": "0.5", f"{OWN}/gpu-index": "0"},
            meta={"labels": groups},
            **part,
        ),
        used_pod("wants-part", "tenant", "shared", notes={"gpu-fraction": "0.25"}, **part),
        used_pod(
            "wants-memory",
            "tenant",
            "shared",
            notes={"gpu-memory": "20000", "gpu-fraction-num-devices": "2"},
            **part,
        ),
        used_pod(
            "wants-mig",
            "tenant",
            "mig",
            resources={"limits": {"nvidia.com/mig-1g.5gb": "2"}},
        ),
        used_pod(
            "named-mig", "tenant", "mig", runs=True, notes={"nvidia.com/mig-1g.5gb": "1"}, **part
        ),
        used_pod(
            "aligned",
            "tenant",
            "shared",
            runs=True,
            resources={"limits": whole, "requests": whole},
            notes={"kai.scheduler/numa-placement-observed": observed},
        ),
        used_pod("to-align", "tenant", "shared", resources={"limits": whole, "requests": whole}),
        used_pod(
            "resized",
            "tenant",
            "shared",
            runs=True,
            status={
                "resources": {"requests": {"cpu": "3"}},
                "allocatedResources": {"cpu": "4"},
                "conditions": [pending],
            },
        ),
        used_pod(
            "pod-level",
            "tenant",
            "shared",
            runs=True,
            resources={"limits": {"hugepages-2Mi": "2Mi", "memory": "1Gi"}},
            overhead={"cpu": "10m"},
        ),
    ]


def _unready() -> list[Document]:
    """A gang that has started and does not get ready."""
    fails = {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": STARTED},
            {"type": "Ready", "status": "False", "lastTransitionTime": STARTED},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 7,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"reason": "Error", "exitCode": 137}},
                "allocatedResourcesStatus": [
                    {
                        "name": "nvidia.com/gpu",
                        "resources": [{"resourceID": "GPU-1", "health": "Unhealthy"}],
                    },
                    {
                        "name": "claim:gpu/gpu",
                        "resources": [{"resourceID": GPU, "health": "Unhealthy"}],
                    },
                ],
            }
        ],
    }
    return [
        used_pod(
            f"unready-{number}",
            "borrower",
            "spot",
            runs=True,
            notes=gang_notes("unready", 2, ready_timeout="5m"),
            status=fails,
        )
        for number in range(2)
    ]
