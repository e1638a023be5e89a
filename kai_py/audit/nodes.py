"""Pods without a node, and nodes with less than their pods request: amounts, GPUs, parts of GPUs.

A pod may be bound to a node that does not exist. Amounts are compared with what the node offers to
pods; of extended resources with all that it has, since a device that becomes unhealthy leaves
``allocatable`` while its pod still runs. Pods bound a moment ago do not count: the kubelet may
still refuse them. A GPU that pods share is counted as one whole GPU of the device plugin. An
extended resource that a claim serves takes nothing of the plugin's.

A reservation pod keeps a shared GPU from the device plugin (``kai_py.api.gpu_reservation``).
Without it the plugin may give the GPU to another pod as well; one that no pod needs keeps a GPU
from all. Pods without the annotation for visible GPUs were given none, so nothing is expected for
them.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from kai_py.api.gpu_reservation import (
    MANAGED_BY,
    MANAGER,
    RESERVED_GPU,
    VISIBLE_GPUS,
    GpuGroup,
    is_live,
    reserved_group,
)
from kai_py.api.gpu_share import GPU_RESOURCE, UNKNOWN_INDEX, GpuShare, readable_share
from kai_py.api.pod_phases import is_finished
from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.resource_names import BASE_RESOURCES
from kai_py.api.texts import count_of, first_of
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    condition_of,
    is_unfinished,
    name_of,
)
from kai_py.grouping.admitted import RESIZABLE, shared_groups
from kai_py.policy.queue_limits import display_unit
from kai_py.snapshot.accounting import total
from kai_py.snapshot.extended_resources import classes_by_resource
from kai_py.snapshot.pod_usage import assigned_gpus
from kai_py.snapshot.requests import as_resized, claimed_amounts, pod_requests
from kai_py.snapshot.resources import amounts
from kai_py.snapshot.shared_gpus import MEMORY_LABEL, parse_gpu_memory

TOLERANCE = 1e-6


class _Card(Struct):
    """A GPU that pods share: the sum of their parts."""

    index: int = UNKNOWN_INDEX
    fraction: float = 0.0
    mib: float = 0.0
    pods: list[str] = field(default_factory=list)


class _Load(Struct):
    """What settled pods request of one node."""

    amounts: dict[str, float] = field(default_factory=dict)
    cards: dict[str, _Card] = field(default_factory=dict)


def pods_without_nodes(cluster: AuditedCluster) -> Steps:
    """Pods that are bound to nodes that do not exist."""
    nodes = {node.metadata.name for node in cluster.nodes}
    for pod in cluster.pods:
        # Without any node, nodes were not read.
        is_lost = nodes and is_unfinished(pod) and pod.spec.node_name not in nodes
        if not is_lost or not cluster.is_settled(bound_since(pod)):
            yield None
            continue
        name = name_of(pod.metadata.namespace, pod.metadata.name)
        yield AuditFinding(
            FindingKind.POD_WITHOUT_NODE,
            (f"Pod {name}", f"Node {pod.spec.node_name}"),
            f"pod {name} is bound to node {pod.spec.node_name}, which does not exist: it keeps "
            "its claims and counts towards its gang, but does not run",
        )


def nodes_over_capacity(cluster: AuditedCluster) -> Steps:
    """Nodes whose pods request more than the node has."""
    nodes = {node.metadata.name: node for node in cluster.nodes}
    classes = classes_by_resource(cluster.classes)
    loads: dict[str, _Load] = {}
    for pod in cluster.pods:
        node = nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        if node is not None and _counts(cluster, pod):
            _add(loads.setdefault(node.metadata.name, _Load()), pod, node, classes)
        yield None
    for name in sorted(loads):
        yield from _findings(cluster, nodes[name], loads[name])
        yield None


def _counts(cluster: AuditedCluster, pod: Pod) -> bool:
    ended = is_finished(pod)
    return not ended and cluster.is_settled(bound_since(pod))


def _add(load: _Load, pod: Pod, node: Node, classes: Mapping[str, str]) -> None:
    try:
        requests = total((pod_requests(as_resized(pod)), claimed_amounts(pod)))
    except QuantityError:
        return
    share = readable_share(pod)
    gpus = assigned_gpus(pod, share)
    reserves = share is None and len(gpus) == 1 and requests.get(GPU_RESOURCE) == 1
    if share is not None or reserves:
        for gpu in gpus:
            _add_part(load.cards.setdefault(gpu.group, _Card()), pod, gpu.index, share)
    ignored = {*_claimed(pod, node, classes), *_resized(pod), *([GPU_RESOURCE] if reserves else ())}
    for resource, amount in requests.items():
        if resource not in ignored:
            load.amounts[resource] = load.amounts.get(resource, 0.0) + amount


def _add_part(card: _Card, pod: Pod, index: int, share: GpuShare | None) -> None:
    card.index = max(card.index, index)
    if share is not None:
        card.fraction += share.fraction
        card.mib += share.memory
        card.pods.append(name_of(pod.metadata.namespace, pod.metadata.name))


def _claimed(pod: Pod, node: Node, classes: Mapping[str, str]) -> Iterator[str]:
    """Extended resources of the pod that a claim serves."""
    status = pod.status.extended_resource_claim_status
    if status is not None:
        yield from (each.resource_name for each in status.request_mappings)
    reported = {*node.status.allocatable, *node.status.capacity}
    yield from (resource for resource in classes if resource not in reported)


def _resized(pod: Pod) -> tuple[str, ...]:
    """Amounts that are wanted but not given yet: a resize in place that waits for capacity."""
    pending = condition_of(pod.status.conditions, "PodResizePending")
    return RESIZABLE if pending is not None and pending.status == "True" else ()


def _findings(cluster: AuditedCluster, node: Node, load: _Load) -> Iterator[AuditFinding]:
    if not node.status.allocatable:
        return
    name = node.metadata.name
    limits = _limits(node)
    if load.cards:
        gpus = load.amounts.get(GPU_RESOURCE, 0.0) + len(load.cards)
        load.amounts[GPU_RESOURCE] = gpus
    over = [
        text
        for resource, amount in sorted(load.amounts.items())
        if (text := _excess(cluster, node, resource, amount, limits))
    ]
    if over:
        message = f"node {name} is over its capacity: its pods request {'; '.join(over)}"
        yield AuditFinding(FindingKind.NODE_OVER_CAPACITY, (f"Node {name}",), message)
    yield from _cards_over(node, load.cards)
    yield from _cards_given_twice(node, load.cards)


def _limits(node: Node) -> Mapping[str, float]:
    try:
        allocatable, capacity = amounts(node.status.allocatable), amounts(node.status.capacity)
    except QuantityError:
        return dict.fromkeys((*node.status.allocatable, *node.status.capacity), float("inf"))
    extended = {name: most for name, most in capacity.items() if name not in BASE_RESOURCES}
    return allocatable | {
        name: max(most, allocatable.get(name, 0.0)) for name, most in extended.items()
    }


def _excess(
    cluster: AuditedCluster,
    node: Node,
    resource: str,
    amount: float,
    limits: Mapping[str, float],
) -> str:
    limit = limits.get(resource)
    if limit is None and resource in BASE_RESOURCES:
        return ""
    most = limit or 0.0
    if amount <= most * (1 + TOLERANCE) + TOLERANCE:
        return ""
    if not most and not _is_ready(cluster, node):
        # A kubelet that starts reports no extended resources before their plugins have come.
        return ""
    noun, unit = display_unit(resource)
    return f"{amount / unit:g} {noun} of {most / unit:g}"


def _is_ready(cluster: AuditedCluster, node: Node) -> bool:
    """Whether the node has been ready for a while; one that says nothing counts as ready."""
    ready = condition_of(node.status.conditions, "Ready")
    if ready is None:
        return True
    since = ready.last_transition_time
    return ready.status == "True" and (since is None or cluster.is_settled(since.timestamp()))


def _cards_over(node: Node, cards: Mapping[str, _Card]) -> Iterator[AuditFinding]:
    memory = parse_gpu_memory(node.metadata.labels.get(MEMORY_LABEL, ""))
    for group, card in sorted(cards.items()):
        parts = card.fraction + (card.mib / memory if memory else 0.0)
        if parts > 1 + TOLERANCE:
            shown = first_of(sorted(card.pods))
            text = f"GPU {group} of node {node.metadata.name} is shared beyond its memory: "
            yield AuditFinding(
                FindingKind.NODE_OVER_CAPACITY,
                (f"Node {node.metadata.name}", f"GPU {group}"),
                f"{text}the parts of pods {shown} add up to {count_of(parts, 'GPU')}",
            )


def _cards_given_twice(node: Node, cards: Mapping[str, _Card]) -> Iterator[AuditFinding]:
    by_index: dict[int, list[str]] = {}
    for group, card in sorted(cards.items()):
        if card.index != UNKNOWN_INDEX and card.pods:
            by_index.setdefault(card.index, []).append(group)
    for index, groups in sorted(by_index.items()):
        pods = first_of(sorted(pod for group in groups for pod in cards[group].pods))
        if len(groups) > 1:
            yield AuditFinding(
                FindingKind.DEVICE_USED_TWICE,
                (f"Node {node.metadata.name}", *(f"GPU {group}" for group in groups)),
                f"GPU {index} of node {node.metadata.name} was chosen for several groups, "
                f"{', '.join(groups)}: pods {pods} use it",
            )


Reservations = dict[GpuGroup, list[Pod]]


def shared_gpus_reserved(cluster: AuditedCluster) -> Steps:
    """Pods whose shared GPU is not reserved, reservations of one GPU, and for no pod."""
    reservations: Reservations = {}
    shared: set[GpuGroup] = set()
    for pod in cluster.pods:
        gpu = reserved_group(pod)
        if gpu is not None and is_live(pod):
            reservations.setdefault(gpu, []).append(pod)
        elif gpu is None and pod.spec.node_name:
            shared.update(shared_groups(pod))
        yield None
    for pod in cluster.pods:
        yield from _not_reserved(cluster, pod, reservations)
    yield from _reserved_twice(reservations)
    for gpu in sorted(reservations):
        if gpu not in shared:
            yield from _for_no_pod(cluster, gpu, reservations[gpu])


def _not_reserved(
    cluster: AuditedCluster, pod: Pod, reservations: Reservations
) -> Iterator[AuditFinding]:
    visible = pod.metadata.annotations.get(VISIBLE_GPUS, "")
    ours = pod.spec.scheduler_name in cluster.scheduler_names
    if not (visible and ours and is_unfinished(pod) and cluster.is_settled(bound_since(pod))):
        return
    given = visible.split(",")
    for gpu in dict.fromkeys(shared_groups(pod)):
        uuids = [_uuid(each) for each in reservations.get(gpu, ())]
        if not any(uuid and text.endswith(uuid) for uuid in uuids for text in given):
            name = name_of(pod.metadata.namespace, pod.metadata.name)
            yield AuditFinding(
                FindingKind.GPU_NOT_RESERVED,
                (f"Pod {name}", f"Node {gpu.node}"),
                f"pod {name} uses {visible} on node {gpu.node}, which no reservation pod keeps for "
                f"group {gpu.group}: the device plugin may give it to another pod",
            )


def _reserved_twice(reservations: Reservations) -> Iterator[AuditFinding]:
    groups: dict[tuple[str, str], list[str]] = {}
    for gpu in sorted(reservations):
        for uuid in {_uuid(each): None for each in reservations[gpu]}:
            groups.setdefault((gpu.node, uuid), []).append(gpu.group)
    for (node, uuid), names in groups.items():
        if uuid and len(names) > 1:
            yield AuditFinding(
                FindingKind.DEVICE_USED_TWICE,
                (f"Node {node}", f"GPU {uuid}"),
                f"{uuid} of node {node} is reserved for groups {', '.join(names)}",
            )


def _for_no_pod(cluster: AuditedCluster, gpu: GpuGroup, pods: list[Pod]) -> Iterator[AuditFinding]:
    for pod in pods:
        started = pod.status.start_time
        since = started.timestamp() if started else 0.0
        ours = pod.metadata.labels.get(MANAGED_BY) == MANAGER
        if ours and _uuid(pod) and cluster.is_settled(since):
            name = name_of(pod.metadata.namespace, pod.metadata.name)
            yield AuditFinding(
                FindingKind.RESERVATION_WITHOUT_POD,
                (f"Pod {name}",),
                f"reservation pod {name} keeps {_uuid(pod)} of node {gpu.node} for group "
                f"{gpu.group}, of which no pod is there",
            )


def _uuid(pod: Pod) -> str:
    return pod.metadata.annotations.get(RESERVED_GPU, "")
