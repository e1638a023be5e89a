"""What tenants edit of a claim that is allocated gains them no device."""

import pytest

from kai_py.grouping.admitted import ADMITTED_KEY, Terms
from tests.support.admitted_work import OWNER, QUEUES, TENANT, owned_by, pod, write
from tests.support.cluster.api import Document
from tests.support.poison.document import QUEUE, document
from tests.support.poison.process import Process

GPU_CLASS = "gpu.nvidia.com"


def claim(name: str, pod_name: str, *, device: str = "") -> Document:
    """A claim for a GPU, of a pod by a template; allocated if ``device`` is named."""
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU_CLASS, "count": 1}}
    made = document(
        "resource.k8s.io/v1",
        "ResourceClaim",
        name,
        TENANT,
        meta=owned_by("v1", "Pod", pod_name),
        spec={"devices": {"requests": [request]}},
    )
    if device:
        result = {"request": "gpu", "driver": GPU_CLASS, "pool": "n0", "device": device}
        user = {"resource": "pods", "name": pod_name, "uid": f"uid-Pod-{pod_name}"}
        made["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    return made


def claiming(each: Document, name: str) -> Document:
    each["spec"]["containers"] = [{"name": "main"}]
    each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    each["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]
    return each


def devices(count: int) -> list[Document]:
    selector = {"cel": {"expression": f"device.driver == '{GPU_CLASS}'"}}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    return [
        document("v1", "Node", "n0", status={"allocatable": amounts, "conditions": ready}),
        document("resource.k8s.io/v1", "DeviceClass", GPU_CLASS, spec={"selectors": [selector]}),
        document(
            "resource.k8s.io/v1",
            "ResourceSlice",
            "n0",
            spec={
                "driver": GPU_CLASS,
                "nodeName": "n0",
                "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}}}
                    for n in range(count)
                ],
            },
        ),
        document(QUEUES, "Queue", TENANT, spec={"deservedGPUs": 2, "maxGPUs": 2}),
        document(QUEUES, "Queue", OWNER, spec={"deservedGPUs": 2}),
    ]


CLAIM_EDITS = {
    "no owner": ("metadata.ownerReferences", None),
    "another pod": ("metadata.ownerReferences", owned_by("v1", "Pod", "c-1")["ownerReferences"]),
    "owner of no kind": (
        "metadata.ownerReferences",
        owned_by("v1", "ConfigMap", "x")["ownerReferences"],
    ),
    "finalizer": ("metadata.finalizers", ["example.com/keep"]),
    "label": ("metadata.labels", {"kai.scheduler/queue": OWNER}),
    "annotation": (f"metadata.annotations|{QUEUE}", OWNER),
    "leaving": ("metadata.deletionTimestamp", "2027-01-01T00:00:00Z"),
}


@pytest.mark.parametrize("name", CLAIM_EDITS)
@pytest.mark.parametrize("restart", [False, True])
def test_no_edit_of_a_claim_gains_devices(name, restart):
    pods = [claiming(pod(f"c-{n}", TENANT, nodeName="n0"), f"claim-{n}") for n in range(2)]
    for each in pods:
        terms = Terms(queue=TENANT, minimums={"": 1}, fragile=False)
        each["metadata"]["annotations"][ADMITTED_KEY] = terms.text()
        each["status"]["phase"] = "Running"
    claims = [claim(f"claim-{n}", f"c-{n}", device=f"gpu-{n}") for n in range(2)]
    process = Process()
    process.put(*devices(3), *pods, *claims)
    if not restart:
        process.cycle()
    write(claims[0], *CLAIM_EDITS[name])
    process.put(claims[0])
    late = claiming(pod("late", TENANT), "claim-late")
    due = [claiming(pod(f"due-{n}", OWNER), f"claim-due-{n}") for n in range(2)]
    theirs = [claim(f"claim-due-{n}", f"due-{n}") for n in range(2)]
    for each in theirs:
        each["metadata"]["namespace"] = OWNER
    process.put(late, claim("claim-late", "late"), *due, *theirs)
    plan = process.cycle()
    snapshot = process.planner.freeze(process.now)
    assert snapshot.queue_allocated[TENANT]["gpu"] == 2
    given = [
        result.device
        for gang in plan.placements
        for each in gang.pods
        for allocation in each.allocate
        for result in allocation.allocation.devices.results
    ]
    assert given == ["gpu-2"]
