"""What a scrape tells of the cluster: who has waited longest, how broken up free room is, and which
claim, gang and queue hold which device, or how many of those that have no names.

Computed when it is asked for, from the last cycle, so that cycles pay nothing. Series are bounded:
by queues, by topology levels, and by devices in use, of which at most ``MOST_DEVICES`` are told.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kai_py.api.gpu_share import is_gpu_resource
from kai_py.dra.explain.device_list import Holder, device_holders
from kai_py.dra.identity import DeviceID
from kai_py.observe.cluster_view import ClusterView, NodeUsage
from kai_py.policy.score.fragmented_gpus import fragmented_gpus

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
    """Metrics of the cycle that ``view`` gives; none before the first."""

    def __init__(self, registry: CollectorRegistry, view: Callable[[], ClusterView | None]) -> None:
        self._view = view
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: asking for it would build the metrics at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics of now."""
        view = self._view()
        if view is None:
            return
        yield from pending_ages(view)
        yield from free_capacity(view)
        yield from fragmentation(view)
        yield device_claims(view)
        yield pod_gpus(view)


def pending_ages(view: ClusterView) -> Iterator[Metric]:
    """Per queue the gangs that wait by age, and the age of the oldest; 0 where nobody waits."""
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
        found = Tally(map(age_label, ages))
        for label in (*(label for _, label in AGE_BUCKETS), OLDEST_BUCKET):
            counts.add_metric((queue, label), found[label])
        oldest.add_metric((queue,), max(ages, default=0.0))
    yield counts
    yield oldest


def age_label(seconds: float) -> str:
    """The age of a gang as a label: a bounded set."""
    return next((label for below, label in AGE_BUCKETS if seconds < below), OLDEST_BUCKET)


def _pending_ages(view: ClusterView) -> dict[str, list[float]]:
    ages: dict[str, list[float]] = {share.queue: [] for share in view.plan.queues}
    for unplaced in view.plan.unplaced:
        gang = view.snapshot.gangs.get(unplaced.gang)
        if gang is not None and unplaced.queue in ages:
            ages[unplaced.queue].append(max(view.snapshot.now - gang.created, 0.0))
    return ages


def free_capacity(view: ClusterView) -> Iterator[Metric]:
    """Nodes by state, and the most GPUs that are free together per level of the topology."""
    uses = [use for domain in view.domains.values() for use in domain]
    nodes = GaugeMetricFamily(
        "kai_py_nodes", "Nodes by how many of their GPUs are held.", labels=("state",)
    )
    states = [node_state(use) for use in uses]
    for state in NODE_STATES:
        nodes.add_metric((state,), states.count(state))
    yield nodes
    largest = GaugeMetricFamily(
        "kai_py_largest_free_gpus",
        "Most GPUs free in one domain of a level: the largest gang that fits there.",
        labels=("level",),
    )
    for level, amount in largest_free(view).items():
        largest.add_metric((level,), amount)
    yield largest


def fragmentation(view: ClusterView) -> Iterator[Metric]:
    """Free GPUs that are of no use to pods to come; nothing where no device plugin reports GPUs."""
    fragmented = fragmented_gpus(view.snapshot)
    if fragmented is None:
        return
    metric = GaugeMetricFamily(
        "kai_py_fragmented_gpus",
        "Free GPUs that pods like those that run and wait could not use.",
    )
    metric.add_metric((), fragmented)
    yield metric


def node_state(usage: NodeUsage) -> str:
    """One of ``NODE_STATES``."""
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
        for use in domain:
            free = max(use.gpus - use.used, 0.0) if use.usable else 0.0
            places = {NODE: use.name, CLUSTER: ""}
            path = ""
            for level, column in columns:
                path = f"{path}/{column.values[column.codes[use.row]]}"
                places[level] = path
            for level, place in places.items():
                sums[level][place] = sums[level].get(place, 0.0) + free
    return {level: max(found.values(), default=0.0) for level, found in sums.items()}


def device_claims(view: ClusterView) -> Metric:
    """A series of value 1 per device and claim that holds it."""
    metric = GaugeMetricFamily(
        "kai_device_claim_info",
        "1 for every device that a claim holds; join on uuid with metrics of the device.",
        labels=DEVICE_LABELS,
    )
    objects = view.snapshot.devices
    held = device_holders(objects.claims.values(), view.snapshot.gangs)
    known = dict(_published_devices(view, held)) if held else {}
    told = 0
    for device in sorted(held):
        node, uuid = known.get(device, ("", ""))
        for holder in held[device]:
            if told < MAX_DEVICES and not holder.admin:
                metric.add_metric(_labels(device, node, uuid, holder), 1.0)
                told += 1
    return metric


def pod_gpus(view: ClusterView) -> Metric:
    """GPUs and MIG devices that pods hold through a device plugin, which names none of them."""
    metric = GaugeMetricFamily(
        "kai_device_pod_gpus",
        "GPUs or MIG devices that a pod holds through a device plugin; join on namespace and pod.",
        labels=POD_LABELS,
    )
    held = islice(_plugin_devices(view), MAX_DEVICES)
    for labels, count in held:
        metric.add_metric(labels, count)
    return metric


def _plugin_devices(view: ClusterView) -> Iterator[tuple[tuple[str, ...], float]]:
    """(``POD_LABELS``, count); on nodes where the plugin offers nothing, claims stand for them."""
    nodes = view.snapshot.nodes
    for name, row in sorted(view.snapshot.resources.positions.items()):
        if not is_gpu_resource(name):
            continue
        for place in np.flatnonzero(nodes.allocatable[row] > 0):
            node = nodes.names[place]
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
    for piece in view.snapshot.devices.slices.values():
        spec = piece.spec
        for device in spec.devices:
            identity = DeviceID(spec.driver, spec.pool.name, device.name)
            if identity in names:
                uuid = device.attributes.get("uuid")
                yield identity, (spec.node_name, (uuid.string_value or "") if uuid else "")


def _labels(device: DeviceID, node: str, uuid: str, holder: Holder) -> tuple[str, ...]:
    namespace, _, claim = holder.claim.partition("/")
    pod = holder.pods[0] if holder.pods else ""
    place = (node, device.driver, device.pool, device.device, uuid)
    return (*place, claim, namespace, pod, holder.gang, holder.queue)
