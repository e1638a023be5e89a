"""Metrics of the cluster's state: pending gangs, free and fragmented capacity, allocated devices.

Computed per scrape from the last cycle, at no cost to cycles. The number of series is bounded: by
queues, by topology levels, and by allocated devices, of which at most ``MAX_DEVICES`` are reported.
"""

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kai_py.api.gpu_share import is_gpu_resource
from kai_py.dra.explain.device_list import Holder, device_holders
from kai_py.dra.identity import DeviceID
from kai_py.observe.cluster_view import ClusterView, NodeUsage
from kai_py.policy.score.fragmentation import fragmented_gpus

log = logging.getLogger(__name__)

MAX_DEVICES = 50_000
NODE, CLUSTER = "node", "cluster"
AGE_BUCKETS = ((60.0, "under 1m"), (600.0, "1m-10m"), (3600.0, "10m-1h"), (86400.0, "1h-1d"))
OLDEST_BUCKET = "over 1d"
NODE_STATES = ("free", "partial", "full", "unusable", "without_gpus")
POD_LABELS = ("node", "resource", "namespace", "pod", "gang", "queue")
DEVICE_LABELS = (
    "node", "driver", "pool", "device", "uuid", "claim", "namespace", "pod", "gang", "queue",
)  # fmt: skip


class ClusterMetrics(Collector):
    """Metrics of the cycle that ``view`` returns; none before the first cycle."""

    def __init__(self, registry: CollectorRegistry, view: Callable[[], ClusterView | None]) -> None:
        self._view = view
        self._failed: set[str] = set()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the default would compute the metrics at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics of the last cycle."""
        view = self._view()
        if view is None:
            return
        for name, families in FAMILIES.items():
            try:
                found = tuple(families(view))
            except Exception:
                if name not in self._failed:
                    self._failed.add(name)
                    log.exception("metrics of %s failed; the others are served", name)
            else:
                yield from found


def pending_ages(view: ClusterView) -> Iterator[Metric]:
    """Pending gangs by queue and age, and the age of the oldest, 0 where none is pending."""
    counts = GaugeMetricFamily(
        "kai_py_pending_gangs_by_age",
        "Gangs that stay pending, by queue and by the time since they were created.",
        labels=("queue", "age"),
    )
    oldest = GaugeMetricFamily(
        "kai_py_oldest_pending_seconds",
        "Age of the oldest gang that stays pending, by queue.",
        labels=("queue",),
    )
    for queue, ages in _pending_ages(view).items():
        counts_by_age = Tally(map(age_label, ages))
        for label in (*(label for _, label in AGE_BUCKETS), OLDEST_BUCKET):
            counts.add_metric((queue, label), counts_by_age[label])
        oldest.add_metric((queue,), max(ages, default=0.0))
    yield counts
    yield oldest


def age_label(seconds: float) -> str:
    """The age of a gang as a label value of a bounded set."""
    return next((label for below, label in AGE_BUCKETS if seconds < below), OLDEST_BUCKET)


def _pending_ages(view: ClusterView) -> dict[str, list[float]]:
    ages: dict[str, list[float]] = {share.queue: [] for share in view.plan.queues}
    for unplaced in view.plan.unplaced:
        gang = view.snapshot.gangs.get(unplaced.gang)
        if gang is not None:
            queue = unplaced.queue if unplaced.queue in ages else ""
            ages.setdefault(queue, []).append(max(view.snapshot.now - gang.created, 0.0))
    return ages


def free_capacity(view: ClusterView) -> Iterator[Metric]:
    """Nodes by state, and the most GPUs free in one domain, per level of the topology."""
    usages = [usage for domain in view.domains.values() for usage in domain]
    nodes = GaugeMetricFamily(
        "kai_py_nodes", "Nodes by how many of their GPUs are allocated.", labels=("state",)
    )
    states = [node_state(usage) for usage in usages]
    for state in NODE_STATES:
        nodes.add_metric((state,), states.count(state))
    yield nodes
    largest = GaugeMetricFamily(
        "kai_py_largest_free_gpus",
        "Maximum of idle GPUs in one domain of a level: the largest gang that fits there.",
        labels=("level",),
    )
    for level, amount in largest_free(view).items():
        largest.add_metric((level,), amount)
    yield largest


def fragmentation(view: ClusterView) -> Iterator[Metric]:
    """Free GPUs that no typical pod could use; nothing where no device plugin reports GPUs."""
    fragmented = fragmented_gpus(view.snapshot)
    if fragmented is None:
        return
    metric = GaugeMetricFamily(
        "kai_py_fragmented_gpus",
        "Idle GPUs that pods like the running and pending ones cannot use.",
    )
    metric.add_metric((), fragmented)
    yield metric


def node_state(usage: NodeUsage) -> str:
    """State of a node, one of ``NODE_STATES``."""
    if not usage.usable:
        return "unusable"
    if not usage.gpus:
        return "without_gpus"
    if not usage.used:
        return "free"
    return "full" if usage.used >= usage.gpus else "partial"


def largest_free(view: ClusterView) -> dict[str, float]:
    """Most free GPUs on one node, in one domain of each level, and in the cluster."""
    sums: dict[str, dict[str, float]] = {level: {} for level in (NODE, *view.levels, CLUSTER)}
    columns = [(level, view.snapshot.nodes.label(level)) for level in view.levels]
    for domain in view.domains.values():
        for usage in domain:
            free = max(usage.gpus - usage.used, 0.0) if usage.usable else 0.0
            domains = {NODE: usage.name, CLUSTER: ""}
            path = ""
            for level, column in columns:
                path = f"{path}/{column.values[column.codes[usage.row]]}"
                domains[level] = path
            for level, level_domain in domains.items():
                sums[level][level_domain] = sums[level].get(level_domain, 0.0) + free
    return {
        level: max(free_by_domain.values(), default=0.0) for level, free_by_domain in sums.items()
    }


def device_claims(view: ClusterView) -> Metric:
    """A series of value 1 per allocated device and claim."""
    metric = GaugeMetricFamily(
        "kai_device_claim_info",
        "1 for every device allocated to a claim; join on uuid with metrics of the device.",
        labels=DEVICE_LABELS,
    )
    objects = view.snapshot.devices
    holders = device_holders(objects.claims.values(), view.snapshot.gangs)
    known = dict(_published_devices(view, holders)) if holders else {}
    # A claim may have several shares of a device; a scrape may not have a series twice.
    allocated = dict.fromkeys(
        _labels(device, *known.get(device, ("", "")), holder)
        for device in sorted(holders)
        for holder in holders[device]
        if not holder.admin_access
    )
    for labels in islice(allocated, MAX_DEVICES):
        metric.add_metric(labels, 1.0)
    return metric


def pod_gpus(view: ClusterView) -> Metric:
    """GPUs and MIG devices that pods are allocated through a device plugin, which names none."""
    metric = GaugeMetricFamily(
        "kai_device_pod_gpus",
        "GPUs or MIG devices allocated to a pod by a device plugin; join on namespace and pod.",
        labels=POD_LABELS,
    )
    allocated = islice(_plugin_devices(view), MAX_DEVICES)
    for labels, count in allocated:
        metric.add_metric(labels, count)
    return metric


def _plugin_devices(view: ClusterView) -> Iterator[tuple[tuple[str, ...], float]]:
    """(``POD_LABELS``, count); only for nodes whose device plugin reports the resource."""
    nodes = view.snapshot.nodes
    for name, row in sorted(view.snapshot.resources.positions.items()):
        if not is_gpu_resource(name):
            continue
        for index in np.flatnonzero(nodes.allocatable[row] > 0):
            node = nodes.names[index]
            for gang, member in view.members_on.get(node, ()):
                count = member.shape.requests.get(name, 0.0)
                if count:
                    pod = member.pod
                    yield (node, name, pod.namespace, pod.name, gang.key, gang.queue), count


def _published_devices(
    view: ClusterView, wanted: Iterable[DeviceID]
) -> Iterator[tuple[DeviceID, tuple[str, str]]]:
    """Node and uuid of the devices in ``wanted`` that slices list."""
    names = set(wanted)
    for resource_slice in view.snapshot.devices.slices.values():
        spec = resource_slice.spec
        for device in spec.devices:
            identity = DeviceID(spec.driver, spec.pool.name, device.name)
            if identity in names:
                uuid = device.attributes.get("uuid")
                yield identity, (spec.node_name, (uuid.string_value or "") if uuid else "")


def _labels(device: DeviceID, node: str, uuid: str, holder: Holder) -> tuple[str, ...]:
    namespace, _, claim = holder.claim.partition("/")
    pod = holder.pods[0] if holder.pods else ""
    location = (node, device.driver, device.pool, device.device, uuid)
    return (*location, claim, namespace, pod, holder.gang, holder.queue)


FAMILIES: Mapping[str, Callable[[ClusterView], Iterable[Metric]]] = {
    "pending gangs": pending_ages,
    "free capacity": free_capacity,
    "fragmentation": fragmentation,
    "devices of claims": lambda view: (device_claims(view),),
    "GPUs of pods": lambda view: (pod_gpus(view),),
}
"""The metrics that fail independently of each other."""
