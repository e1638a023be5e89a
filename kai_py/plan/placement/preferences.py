"""The preference tiers: why a pod is placed on one feasible node rather than on another.

Tiers are compared in the order of ``TIERS``; each decides only among nodes that are equal in all
tiers before it. A tier is an integer per node, higher is better, and no amount of a later tier
outweighs an earlier one. Among nodes that are equal in every tier the score decides, or the fill
strategy. docs/placement.md has the list as a table.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from kai_py.api.node_departures import DepartureStage
from kai_py.api.resource_names import BASE_RESOURCES
from kai_py.api.spot import SpotUse
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFit, replicas_that_fit
from kai_py.snapshot.nodes import spot_nodes
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape


class PreferenceTier(Struct, frozen=True, eq=False):
    """One tier. ``meaning``: what is preferred; ``source``: by what or why."""

    name: str
    meaning: str
    source: str


STATED = PreferenceTier(
    "stated",
    "more weight of preferred node affinity and preferred pod (anti-)affinity, "
    "minus the number of `PreferNoSchedule` taints that are not tolerated",
    "the pod, as in kube-scheduler; weights add up",
)
STEADY = PreferenceTier(
    "steady",
    "nodes without a sign that they may go or are faulty",
    "`nodeDepartures` in the configuration, stage `suspect`",
)
SPOT = PreferenceTier(
    "spot",
    "spot nodes, for gangs that prefer them or fell back from them",
    "`spot` of the queue or the workload",
)
GPU_NODES = PreferenceTier(
    "gpu-nodes",
    "for pods that request no devices: nodes that report none",
    "keeps GPU nodes free for pods that need them",
)
NEAR_GANG = PreferenceTier(
    "near-gang",
    "nodes near another gang, where not all pods have capacity there",
    "the gang's affinity to another gang",
)
DOMAIN = PreferenceTier(
    "domain",
    "domains with pods of the gang, then those with more capacity, from the coarsest level down; "
    "of nested subgroups the outer one first",
    "the gang's preferred topology",
)
DEVICE_PLUGIN = PreferenceTier(
    "device-plugin",
    "for extended resources that a DeviceClass can serve: nodes whose device plugin does",
    "keeps devices that claims can have for claims",
)
ALTERNATIVES = PreferenceTier(
    "alternatives",
    "nodes whose devices fit earlier alternatives of `firstAvailable`",
    "the claim",
)
NUMA_ZONES = PreferenceTier(
    "numa-zones",
    "nodes on which the pod needs fewer NUMA zones",
    "*least NUMA nodes* of NodeResourceTopologyMatch",
)
IDLE = PreferenceTier(
    "idle",
    "nodes whose capacity is idle now, before those that must be waited for",
    "starts sooner",
)

# Users ask for domains and nearness, so these come before DEVICE_PLUGIN, which only saves
# devices. GPU_NODES comes before both: a gang that is too large for the nodes near another one
# should not spread over nodes with GPUs.
TIERS = (
    STATED,
    STEADY,
    SPOT,
    GPU_NODES,
    NEAR_GANG,
    DOMAIN,
    DEVICE_PLUGIN,
    ALTERNATIVES,
    NUMA_ZONES,
    IDLE,
)
"""In the order in which they decide."""

Preferences = Mapping[PreferenceTier, Ints | Bools]
"""Values by tier, (nodes,) each, higher is better; tiers without values decide nothing."""

NO_PREFERENCES: Preferences = MappingProxyType({})

MAX_SPAN = 2**52
"""Ranks stay below it, so that they are still exact as floats (``score_nodes``)."""


def rank_nodes(preferences: Preferences, nodes: int) -> Ints:
    """(nodes,) int64, one rank that orders nodes like all tiers together; higher is better.

    The tiers are the digits of a number, the first tier the highest digit. A tier of shape (k, 1)
    or (k, nodes) makes the ranks (k, nodes). O(nodes), and O(nodes log nodes) if tiers differ so
    widely that the number would be too long.
    """
    rank = np.zeros(nodes, dtype=np.int64)
    if not nodes:
        return rank
    span = 1
    for tier in TIERS:
        values = preferences.get(tier)
        if values is None:
            continue
        low, high = int(values.min()), int(values.max())
        if low == high:
            continue
        if span * (high - low + 1) >= MAX_SPAN:
            rank, values = _dense(rank), _dense(values)
            span, low, high = int(rank.max()) + 1, 0, int(values.max())
        rank = rank * (high - low + 1) + (values.astype(np.int64) - low)
        span *= high - low + 1
    return rank


def inside_domain(preferences: Preferences, domain: Ints | None) -> Preferences:
    """``preferences`` with the order of domains of a subgroup, after that of an outer subgroup.

    ``domain``: (nodes,) rank of each node's domain, higher is better; None for no order.
    """
    if domain is None:
        return preferences
    outer = preferences.get(DOMAIN)
    if outer is not None:
        domain = _dense(outer) * (int(domain.max(initial=0)) + 1) + domain
    return {**preferences, DOMAIN: domain}


def with_idle(rank: Ints, *, idle: Bools | bool) -> Ints:
    """``rank`` (nodes,) of all tiers but the last, with the last: whether capacity is idle now."""
    return rank * 2 + idle


def idle_of(rank: Ints) -> Ints:
    """(nodes,) 0 or 1: the last tier of ranks made by ``with_idle``."""
    return rank % 2


def static_preferences(statement: Statement, shape: Shape, static: StaticFit) -> Preferences:
    """The preferences that stay the same during a cycle, whatever is placed."""
    preferences: dict[PreferenceTier, Ints | Bools] = {STATED: static.preference}
    nodes = statement.snapshot.nodes
    if nodes.departures:
        preferences[STEADY] = ~nodes.departing(DepartureStage.SUSPECT)
    if shape.spot is not None and shape.spot.use is SpotUse.PREFER:
        preferences[SPOT] = spot_nodes(shape.spot.labels, nodes)
    if not requests_devices(shape):
        preferences[GPU_NODES] = ~device_nodes(statement)
    elif static.served_by_plugin is not None:
        preferences[DEVICE_PLUGIN] = static.served_by_plugin
    return preferences


def requests_devices(shape: Shape) -> bool:
    """Whether a pod of the shape requests anything beyond the base resources."""
    extended = any(name not in BASE_RESOURCES for name in shape.requests)
    return bool(shape.claims) or extended or shape.gpu_share is not None


def device_nodes(statement: Statement) -> Bools:
    """(nodes,) bool: the node reports anything beyond the base resources."""
    return np.asarray(statement.snapshot.nodes.allocatable[len(BASE_RESOURCES) :].any(axis=0))


def nodes_without_devices(statement: Statement, static: StaticFit) -> Bools:
    """(nodes,) bool: nodes without devices that admit the pod; none if it states preferences."""
    if static.preference.min(initial=0) != static.preference.max(initial=0):
        return np.zeros(len(static.mask), dtype=np.bool_)
    return static.mask & ~device_nodes(statement)


def idle_nodes(statement: Statement, shape: Shape, mask: Bools, capacity: Capacity) -> Preferences:
    """Tier ``IDLE`` for pods of a shape; empty if no capacity is about to become idle.

    ``mask``: (nodes,) bool, where pods may be placed.
    """
    if capacity is Capacity.IDLE or not (statement.future_idle > statement.idle).any():
        return NO_PREFERENCES
    allocatable, resources = statement.snapshot.nodes.allocatable, statement.snapshot.resources
    idle = statement.free(Capacity.IDLE)
    return {IDLE: replicas_that_fit(shape, resources, idle, mask, allocatable) > 0}


def _dense(values: Ints | Bools) -> Ints:
    """``values`` replaced by the integers from 0 up, in the same order."""
    ranks = np.unique(values, return_inverse=True)[1]
    return np.asarray(ranks, dtype=np.int64).reshape(values.shape)
