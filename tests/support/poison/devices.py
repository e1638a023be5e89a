"""Devices and claims for them."""

from tests.support.cluster.api import Document
from tests.support.poison.document import GPU, document

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


def slices() -> list[Document]:
    """A class and a slice of GPUs with every field."""
    return [
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
                "driver": GPU,
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
    ]


def claims() -> list[Document]:
    """Claims, their template, and a rule that taints their devices."""
    return [
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
    ]
