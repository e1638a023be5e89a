"""A gang whose pods have claims reclaims GPUs that Jobs with claims have borrowed."""

from benchmarks.core.cluster import Cluster, counts
from benchmarks.core.objects import queue
from benchmarks.dra.gang import claiming_gang
from benchmarks.dra.objects import gpu_class, gpu_slice, nodes
from benchmarks.dra.waiting import running_job
from benchmarks.row import Measured
from benchmarks.timing import median_seconds, peak_resident_mb


def measure_reclaiming(node_count: int, gpus: int, pods: int) -> Measured:
    """Time the cycle in which victims are found for a gang of ``pods``, one GPU each."""
    machines = nodes(node_count)
    names = [node.metadata.name for node in machines]
    deserved = node_count * gpus / 2
    cluster = Cluster(
        machines,
        [gpu_class(), *(gpu_slice(name, gpus) for name in names)],
        [queue("borrows", deserved), queue("reclaims", deserved)],
        (each for name in names for each in running_job(name, gpus, "borrows")),
        claiming_gang(pods, 1, "reclaims", "reclaims"),
    )
    cluster.decide(cluster.snapshot())
    snapshot = cluster.snapshot()
    seconds, plan = median_seconds(lambda: cluster.decide(snapshot))
    return Measured(seconds=seconds, outcome=counts(plan), peak_mb=peak_resident_mb())
