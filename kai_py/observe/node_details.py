"""Pods and devices of nodes, a page of nodes at a time.

Only the slices and claims of the page's nodes are indexed, so that a page of a large cluster costs
little more than finding them: O(slices + claims) and the devices of the page.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from kai_py.api.groups import grouped
from kai_py.api.records.node import taint_text
from kai_py.api.records.resource import ResourceClaim
from kai_py.dra.device_state import DeviceState
from kai_py.dra.explain.device_list import DeviceEntry, list_devices
from kai_py.dra.inventory import Inventory
from kai_py.observe.cluster_view import ClusterView, NodeUsage
from kai_py.snapshot.gangs import PodState

MAX_NODES = 200


class Occupant(Struct, frozen=True):
    """Pods of a gang on a node, of which some are ``terminating``."""

    gang: str
    queue: str
    priority: int
    pods: int
    terminating: int
    gpus: float


class NodeDetails(Struct, frozen=True):
    """A node; ``other_schedulers``: GPUs that their pods have through a device plugin."""

    node: str
    gpus: float
    allocated: float
    other_schedulers: float
    ready: bool
    cordoned: bool
    taints: tuple[str, ...]
    occupants: tuple[Occupant, ...]
    devices: tuple[DeviceEntry, ...]


class NodePage(Struct, frozen=True):
    """Nodes of a domain, which has ``total``; the page begins at ``offset``."""

    cycle: int
    domain: str
    offset: int
    total: int
    nodes: tuple[NodeDetails, ...]


def node_page(
    view: ClusterView,
    domain: str,
    *,
    offset: int,
    limit: int,
    shows: Callable[[str], bool] = lambda _node: True,
) -> NodePage | None:
    """At most ``limit`` of the nodes of a domain that ``shows`` lets pass; None without it."""
    if domain not in view.domains:
        return None
    usages = [usage for usage in view.domains[domain] if shows(usage.name)]
    shown = usages[offset : offset + min(limit, MAX_NODES)]
    devices = grouped(_devices(view, shown), lambda entry: entry.node)
    return NodePage(
        cycle=view.number,
        domain=domain,
        offset=offset,
        total=len(usages),
        nodes=tuple(_node(view, usage, devices.get(usage.name, ())) for usage in shown),
    )


def place_of(
    view: ClusterView, node: str, shows: Callable[[str], bool] = lambda _node: True
) -> tuple[str, int] | None:
    """The domain of a node and its place among those shown there; None without such a node."""
    for domain, usages in view.domains.items():
        if shows(node) and any(usage.name == node for usage in usages):
            names = [usage.name for usage in usages if shows(usage.name)]
            return domain, names.index(node)
    return None


def _node(view: ClusterView, usage: NodeUsage, devices: Sequence[DeviceEntry]) -> NodeDetails:
    nodes = view.snapshot.nodes
    return NodeDetails(
        node=usage.name,
        gpus=usage.gpus,
        allocated=usage.used,
        other_schedulers=usage.by_queue.get("", 0.0),
        ready=bool(nodes.ready[usage.row]),
        cordoned=bool(nodes.unschedulable[usage.row]),
        taints=tuple(map(taint_text, nodes.records[usage.row].spec.taints)),
        occupants=tuple(_occupants(view, usage.name)),
        devices=tuple(devices),
    )  # fmt: skip


def _occupants(view: ClusterView, node: str) -> Iterator[Occupant]:
    found: dict[str, Occupant] = {}
    for gang, member in view.members_on.get(node, ()):
        before = found.get(gang.key)
        found[gang.key] = Occupant(
            gang=gang.key,
            queue=gang.queue,
            priority=gang.priority,
            pods=1 + (before.pods if before else 0),
            terminating=(member.state is PodState.RELEASING)
            + (before.terminating if before else 0),
            gpus=member.charged_gpus + (before.gpus if before else 0.0),
        )
    yield from found.values()


def _devices(view: ClusterView, shown: Sequence[NodeUsage]) -> Sequence[DeviceEntry]:
    names = {usage.name for usage in shown}
    objects = view.snapshot.devices
    all_slices = objects.slices.values()
    pools = {(s.spec.driver, s.spec.pool.name) for s in all_slices if s.spec.node_name in names}
    slices = [s for s in all_slices if (s.spec.driver, s.spec.pool.name) in pools]
    claims = [claim for claim in objects.claims.values() if _uses_pools(claim, pools)]
    rules = [objects.taint_rules[name] for name in sorted(objects.taint_rules)]
    inventory = Inventory.of(slices, rules=rules)
    allocations = [c.status.allocation for c in claims if c.status.allocation is not None]
    state = DeviceState.of(inventory.device, allocations)
    records = [view.snapshot.nodes.records[usage.row] for usage in shown]
    entries = list_devices(inventory, state, records, claims, view.snapshot.gangs)
    return [entry for entry in entries if entry.node]


def _uses_pools(claim: ResourceClaim, pools: set[tuple[str, str]]) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(
        (result.driver, result.pool) in pools for result in allocation.devices.results
    )
