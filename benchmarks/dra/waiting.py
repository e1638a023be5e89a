"""Pods with claims that wait because all devices are allocated.

All GPUs are in use by Jobs with a claim for each pod. The waiting pods of another queue accept two
GPUs or one (``firstAvailable``). In each cycle that is timed, a pod of another scheduler has come.
"""

from collections.abc import Iterator
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.core.cluster import Cluster, counts
from benchmarks.core.objects import pod_spec, queue
from benchmarks.dra.gang import claiming_gang
from benchmarks.dra.objects import DRIVER, gpu_class, gpu_slice, nodes
from benchmarks.row import Measured
from benchmarks.timing import median_seconds, peak_resident_mb
from kai_py.api.records.core import ObjectMeta, Pod, PodStatus
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import DeviceRequest, ResourceClaim, ResourceClaimStatus

ALTERNATIVES = {
    "name": "gpus",
    "firstAvailable": [
        {"name": f"of-{devices}", "deviceClassName": DRIVER, "count": devices} for devices in (2, 1)
    ],
}


def measure_waiting(node_count: int, gpus: int, waiting: int) -> Measured:
    """Time a cycle in which nothing can start."""
    machines = nodes(node_count)
    names = [node.metadata.name for node in machines]
    cluster = Cluster(
        machines,
        [gpu_class(), *(gpu_slice(name, gpus) for name in names)],
        [queue("full", node_count * gpus), queue("waits")],
        (each for name in names for each in running_job(name, gpus, "full")),
        (each for i in range(waiting) for each in _waiting(f"waits-{i}")),
    )
    cluster.decide(cluster.snapshot())
    numbers = count()
    snapshots = []

    def another_pod() -> None:
        number = next(numbers)
        cluster.tell([_foreign(f"other-{number}", names[number % len(names)])])
        snapshots[:] = [cluster.snapshot()]

    seconds, plan = median_seconds(lambda: cluster.decide(snapshots[0]), prepare=another_pod)
    stages = ", ".join(sorted({each.stage.value for each in plan.unplaced}))
    outcome = f"{counts(plan)}; {len(plan.unplaced)} {stages}"
    return Measured(seconds=seconds, outcome=outcome, peak_mb=peak_resident_mb())


def running_job(node: str, gpus: int, queue_name: str) -> Iterator[Struct]:
    """A Job with a pod for each GPU of the node."""
    number = count()
    for each in claiming_gang(gpus, 1, f"runs-{node}", queue_name):
        if isinstance(each, ResourceClaim):
            yield _allocated(each, node, f"gpu-{next(number)}")
        elif isinstance(each, Pod):
            status = replace(each.status, phase="Running")
            yield replace(each, spec=replace(each.spec, node_name=node), status=status)
        else:
            yield each


def _allocated(claim: ResourceClaim, node: str, device: str) -> ResourceClaim:
    result = {"request": "gpus", "driver": DRIVER, "pool": node, "device": device}
    pod = claim.metadata.owner_references[0]
    document = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}],
    }
    return replace(claim, status=convert_record(document, ResourceClaimStatus))


def _waiting(name: str) -> Iterator[Struct]:
    """A Job of one pod, whose claim lists two alternatives."""
    request = convert_record(ALTERNATIVES, DeviceRequest)
    for each in claiming_gang(1, 1, name, "waits"):
        if isinstance(each, ResourceClaim):
            devices = replace(each.spec.devices, requests=(request,))
            yield replace(each, spec=replace(each.spec, devices=devices))
        else:
            yield each


def _foreign(name: str, node: str) -> Pod:
    """A running pod of another scheduler."""
    meta = ObjectMeta(name=name, namespace="kube-system", uid=f"pod-{name}")
    spec = replace(pod_spec(0, scheduler="default-scheduler"), node_name=node)
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Running"))
