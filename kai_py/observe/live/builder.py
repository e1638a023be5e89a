"""Builds the live view from a mirror and the newest plan.

A GPU that a driver publishes is attributed to the claim that it is allocated to, and the claim to
the first pod in its ``reservedFor``. A device plugin's GPUs have no names in the API: a pod keeps
the lowest free slots of its node for as long as it exists and the node has them.

O(pods + claims + devices) per view.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from kai_py.api.groups import grouped
from kai_py.api.pod_phases import is_finished
from kai_py.api.quantity import parse_quantity
from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.records.resource import ResourceClaim
from kai_py.grouping.gang import GangSpec
from kai_py.observe.cluster_state import in_tree_order
from kai_py.observe.cluster_view import natural_order
from kai_py.observe.live.cluster import (
    MAX_SLOTS,
    GpuSlot,
    GpuState,
    LiveCluster,
    LiveGang,
    LiveNode,
    LiveQueue,
)
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.pod_claims import POD_GROUPS, pod_group_of
from kai_py.snapshot.requests import pod_requests
from kai_py.watch.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kai_py.watch.mirror import Mirror

RACK_LABELS = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
PLUGIN_RESOURCE = re.compile(r"^[^/]+/gpu$")


class LiveClusterBuilder:
    """Builds views; the only state kept is the slots of plugin pods.

    GPUs of pods of other schedulers are shown as used.
    """

    def __init__(
        self,
        mirror: Mirror,
        gang_of: Callable[[Pod], GangSpec | None],
    ) -> None:
        """``gang_of``: the gang of a pod, None for pods of other schedulers."""
        self._mirror = mirror
        self._gang_of = gang_of
        self._plugin_places: dict[str, tuple[int, ...]] = {}

    def build(self, plan: Plan) -> LiveCluster:
        """The cluster as mirrored now; shares and reasons are those of ``plan``."""
        pods = list(self._mirror.objects(PODS).values())
        gangs = {pod.metadata.uid: self._gang_of(pod) for pod in pods}
        keys = {uid: gang.key if gang is not None else "" for uid, gang in gangs.items()}
        queues = {gang.key: gang.queue for gang in gangs.values() if gang is not None}
        return LiveCluster(
            nodes=self._nodes(pods, keys),
            queues=tuple(_queue(share, depth) for depth, share in in_tree_order(plan.queues)),
            gangs=_gangs(
                [pod for pod in pods if keys[pod.metadata.uid]],
                keys,
                queues,
                {each.gang: each.stage.value for each in plan.unplaced},
            ),
        )

    def _nodes(self, pods: Iterable[Pod], keys: Mapping[str, str]) -> tuple[LiveNode, ...]:
        self._plugin_places = {
            uid: places for uid, places in self._plugin_places.items() if uid in keys
        }
        slots_by_device = _allocated_devices(
            self._mirror.objects(RESOURCE_CLAIMS).values(), pods, keys
        )
        published: dict[str, list[tuple[str, str]]] = {}
        for resource_slice in self._mirror.objects(RESOURCE_SLICES).values():
            for device in resource_slice.spec.devices:
                kind = device.attributes.get("type")
                if resource_slice.spec.node_name and (kind is None or kind.string_value == "gpu"):
                    names = published.setdefault(resource_slice.spec.node_name, [])
                    names.append((resource_slice.spec.pool.name, device.name))
        on_node = grouped(pods, lambda pod: pod.spec.node_name)
        live_nodes = []
        for node in self._mirror.objects(NODES).values():
            name = node.metadata.name
            devices = sorted(published.get(name, ()), key=lambda d: (d[0], natural_order(d[1])))
            slots = [slots_by_device.get(device, GpuSlot()) for device in devices]
            slots += self._plugin_slots(node, on_node.get(name, ()), keys)
            live_nodes.append(LiveNode(name=name, rack=_rack(node), slots=tuple(slots)))
        return tuple(sorted(live_nodes, key=lambda view: (view.rack, natural_order(view.name))))

    def _plugin_slots(
        self, node: Node, pods: Iterable[Pod], keys: Mapping[str, str]
    ) -> list[GpuSlot]:
        slots = [GpuSlot()] * int(min(_gpus(node.status.allocatable), MAX_SLOTS))
        gpu_pods = [
            (pod, int(min(count, MAX_SLOTS)))
            for pod in pods
            if slots and not is_finished(pod) and (count := _gpus(pod_requests(pod))) >= 1
        ]
        for pod, _ in gpu_pods:
            for index in self._places(pod, slots):
                slots[index] = GpuSlot(_state(pod), keys[pod.metadata.uid])
        for pod, count in sorted(gpu_pods, key=lambda pod_count: pod_count[0].metadata.name):
            places = self._places(pod, slots)
            free = (index for index, slot in enumerate(slots) if slot.state is GpuState.FREE)
            added = list(islice(free, max(count - len(places), 0)))
            self._plugin_places[pod.metadata.uid] = (*places, *added)
            for index in added:
                slots[index] = GpuSlot(_state(pod), keys[pod.metadata.uid])
        return slots

    def _places(self, pod: Pod, slots: Sequence[GpuSlot]) -> list[int]:
        """The slots that a pod keeps; a node has fewer when a GPU of it fails."""
        places = self._plugin_places.get(pod.metadata.uid, ())
        return [index for index in places if index < len(slots)]


def _allocated_devices(
    claims: Iterable[ResourceClaim], pods: Iterable[Pod], keys: Mapping[str, str]
) -> dict[tuple[str, str], GpuSlot]:
    by_uid = {pod.metadata.uid: pod for pod in pods}
    by_group = {
        group: pod
        for pod in by_uid.values()
        if (group := pod_group_of(pod)) is not None and pod.spec.node_name and not is_finished(pod)
    }
    slots_by_device: dict[tuple[str, str], GpuSlot] = {}
    for claim in claims:
        if claim.status.allocation is None:
            continue
        consumers = (
            by_group.get((claim.metadata.namespace, ref.name))
            if ref.resource == POD_GROUPS
            else by_uid.get(ref.uid)
            for ref in claim.status.reserved_for
        )
        consumer = next((pod for pod in consumers if pod is not None), None)
        slot = GpuSlot(GpuState.STARTING)
        if consumer is not None:
            slot = GpuSlot(_state(consumer), keys[consumer.metadata.uid])
        for result in claim.status.allocation.devices.results:
            slots_by_device[result.pool, result.device] = slot
    return slots_by_device


def _gangs(
    pods: Iterable[Pod],
    keys: Mapping[str, str],
    queues: Mapping[str, str],
    why: Mapping[str, str],
) -> tuple[LiveGang, ...]:
    members = grouped(pods, lambda pod: keys[pod.metadata.uid])
    ordered = sorted(members.items(), key=lambda item: (min(map(_created, item[1])), item[0]))
    return tuple(_gang(key, queues[key], found, why.get(key, "")) for key, found in ordered)


def _gang(key: str, queue: str, members: Sequence[Pod], why: str) -> LiveGang:
    staying = [pod for pod in members if pod.metadata.deletion_timestamp is None]
    bound = [pod for pod in staying if pod.spec.node_name and not is_finished(pod)]
    return LiveGang(
        key=key,
        queue=queue,
        pods=len(staying),
        bound=len(bound),
        running=sum(pod.status.phase == "Running" for pod in bound),
        terminating=len(members) - len(staying),
        finished=sum(map(is_finished, staying)),
        pending_reason=why,
    )


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else math.inf


def _queue(share: QueueShare, depth: int) -> LiveQueue:
    maximum = share.maximum.get(GPU, math.inf)
    return LiveQueue(
        name=share.queue,
        deserved=share.deserved.get(GPU, 0.0),
        fair_share=share.fair_share.get(GPU, 0.0),
        allocated=share.allocated.get(GPU, 0.0),
        maximum=None if math.isinf(maximum) else maximum,
        depth=depth,
    )


def _state(pod: Pod) -> GpuState:
    if pod.metadata.deletion_timestamp is not None:
        return GpuState.TERMINATING
    return GpuState.RUNNING if pod.status.phase == "Running" else GpuState.STARTING


def _gpus(amounts: Mapping[str, str | int | float]) -> float:
    return sum(
        parse_quantity(amount).as_float()
        for name, amount in amounts.items()
        if PLUGIN_RESOURCE.match(name)
    )


def _rack(node: Node) -> str:
    labels = node.metadata.labels
    return next((labels[key] for key in RACK_LABELS if key in labels), "")
