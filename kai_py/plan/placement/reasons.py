"""Unschedulable reasons: one sentence for people, with the stage that stops the gang.

The wording follows kube-scheduler's ("0/8 nodes are available: ..."), because people and alerts
search for it; it is preceded by how many pods a gang needs and for how many there was capacity.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.plan import Protection, Shortage, Stage
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFit, requests_where_reported
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.gpus import MEMORY_LABEL


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The stage that stops a gang, and one sentence that explains it.

    ``infeasible``: why it could not run even if nothing else did, as nodes and queues are now.
    ``hint``: what is probably wrong with the manifest, a sentence.
    """

    stage: Stage
    message: str
    shortage: Shortage | None = None
    protections: tuple[Protection, ...] = ()
    infeasible: str = ""
    hint: str = ""


UNEXPLAINED = Unschedulable(Stage.RESOURCES, "")
"""The reason of an attempt made with ``explain=False``."""


def insufficient_capacity(
    statement: Statement,
    shape: Shape,
    static: StaticFit,
    *,
    replicas: Ints,
    needed: int,
    found: int,
) -> Unschedulable:
    """The reason why only ``found`` of ``needed`` pods of ``shape`` fit.

    ``replicas``: (nodes,) int64, pods that fit by resources alone. Every node is in exactly one of
    the groups that are counted, that of the first check which it fails.
    """
    nodes = len(statement.snapshot.nodes)
    reasons = [f"{count} {reason}" for reason, count in static.removed]
    stage = Stage.NODE_FILTERS if not static.mask.any() else Stage.RESOURCES
    shortages, rest = _insufficient_resources(statement, shape, static, replicas, found=found)
    reasons += shortages
    # Pods with devices are counted on nodes that may have none of these.
    counted = np.zeros_like(replicas) if shape.needs_devices else replicas
    refused, rest = statement.limits.shortages(shape, rest, counted)
    reasons += refused
    taken, rest = _refused_claims(statement, shape, rest)
    reasons += taken
    tried = rest & (replicas > 0)
    if shape.needs_devices and tried.any():
        stage = Stage.DEVICES
        reasons.append(statement.devices.unschedulable_reason(shape, tried))
        rest = rest & ~tried
    if rest.any():
        reasons.append(f"{np.count_nonzero(rest)} not available to this gang")
    head = (
        f"0/{nodes} nodes are available"
        if needed == 1
        else f"{needed} pods must start together but only {found} can be scheduled"
    )
    unspecific = "no feasible node" if nodes else "the cluster has no nodes"
    message = f"{head}: {', '.join(reasons) or unspecific}."
    return Unschedulable(stage, message, Shortage(found, needed, tuple(reasons)))


def for_gang(
    reason: Unschedulable, gang: Gang, members: Sequence[Member], placed: Container[str]
) -> Unschedulable:
    """The ``reason`` of ``members`` with what it means for their gang; ``placed``: uids of pods.

    Replaces what it said of another gang with an equal request. O(pods of the gang).
    """
    shortage = reason.shortage
    if shortage is None:
        return reason
    if len(gang.members) == 1 and not gang.placeholders:
        if shortage.pod is None:
            return reason
        return replace(reason, shortage=Shortage(shortage.found, shortage.needed, shortage.causes))
    first = members[min(shortage.found, len(members) - 1)]
    requested = {member.pod.uid for member in members}
    others = [m for m in gang.members if m.pod.uid in placed and m.pod.uid not in requested]
    leaves = gang.tree.leaves()
    min_members = next((leaf.min_members for leaf in leaves if leaf.name == first.subgroup), 0)
    present = sum(member.subgroup == first.subgroup for member in (*gang.bound, *others))
    needs_one = present >= min_members or all(leaf.min_members <= 1 for leaf in leaves)
    detailed = replace(
        shortage,
        pod=first.pod,
        subgroup=first.subgroup,
        min_members=0 if needs_one else min_members,
        others=len(others),
    )
    return replace(reason, shortage=detailed)


def with_reserved_nodes(reason: Unschedulable, nodes: int, replicas: int) -> Unschedulable:
    """The reason of a gang that is kept from ``nodes`` nodes; ``replicas`` pods would fit there."""
    note = f"{nodes} nodes are reserved for gangs that have waited longer"
    shortage = reason.shortage
    reserved = shortage is not None and shortage.found + replicas >= shortage.needed
    stage = Stage.RESERVED if reserved else reason.stage
    return replace(reason, stage=stage, message=f"{reason.message.rstrip('.')}; {note}.")


def with_spares(reason: Unschedulable, nodes: int) -> Unschedulable:
    """``reason`` with the number of spares that are closed to the gang."""
    if not reason.message:
        return reason
    note = f"{nodes} nodes are spares that only repairs of their queues use (spec.spares)"
    return replace(reason, message=f"{reason.message.rstrip('.')}; {note}.")


MAX_REFUSALS_SHOWN = 3


def with_refusals(reason: Unschedulable, gang: Gang) -> Unschedulable:
    """The reason of a gang that is kept from nodes whose kubelets refused pods of it."""
    if not reason.message:
        return reason
    listed = [
        f"node {each.node} refused a pod of it ({each.reason}) and is left out for "
        f"{each.seconds:g} s"
        for each in gang.refusals[:MAX_REFUSALS_SHOWN]
    ]
    more = len(gang.refusals) - len(listed)
    listed += [f"so are {more} more nodes"] if more else []
    return replace(reason, message=f"{reason.message.rstrip('.')}; {'; '.join(listed)}.")


def _insufficient_resources(
    statement: Statement, shape: Shape, static: StaticFit, replicas: Ints, *, found: int
) -> tuple[list[str], Bools]:
    """How many nodes lack which resource first for one more pod; (nodes,) bool: which lack none."""
    free = statement.free(Capacity.IDLE)
    texts: list[str] = []
    rest = static.mask
    where_reported = dict(requests_where_reported(shape))
    for name, request in sorted({**where_reported, **shape.requests}.items()):
        row = statement.snapshot.resources.positions.get(name)
        lacking = rest
        by_plugin = name in where_reported and name not in shape.reported_requests
        if by_plugin:
            lacking = lacking & _has_device_plugin(statement, row)
        if row is not None:
            placed = 0 if shape.needs_devices and not by_plugin else replicas
            lacking = lacking & (free[row] < (placed + 1) * request)
        count = int(np.count_nonzero(lacking))
        if not count:
            continue
        rest = rest & ~lacking
        if name == "pods":
            texts.append(f"{count} Too many pods")
            continue
        detail = f"{amount_text(name, request)} requested"
        if row is not None and not found:
            best = int(np.argmax(np.where(lacking, free[row], -np.inf)))
            most = amount_text(name, max(0.0, float(free[row, best])))
            detail = f"{detail}, most free {most} on {statement.snapshot.nodes.names[best]}"
        texts.append(f"{count} Insufficient {name} ({detail})")
    shares, rest = _insufficient_gpu_shares(statement, shape, rest)
    return [*texts, *shares], rest


def _refused_claims(statement: Statement, shape: Shape, rest: Bools) -> tuple[list[str], Bools]:
    """Nodes that have the devices but not what these take of the node's own resources."""
    if not shape.has_claims:
        return [], rest
    counts: dict[str, int] = {}
    left = rest.copy()
    for row in np.flatnonzero(rest).tolist():
        text = statement.claim_shortages.get((shape.number, row), "")
        text = text or statement.devices.node_claim_problem(shape, row)
        if text:
            counts[text] = counts.get(text, 0) + 1
            left[row] = False
    return [f"{count} {text}" for text, count in counts.items()], left


def _has_device_plugin(statement: Statement, row: int | None) -> Bools:
    """(nodes,) bool: a device plugin of the node reports the resource of this row."""
    nodes = statement.snapshot.nodes
    return np.zeros(len(nodes), np.bool_) if row is None else nodes.allocatable[row] > 0


def _insufficient_gpu_shares(
    statement: Statement, shape: Shape, rest: Bools
) -> tuple[list[str], Bools]:
    """How many nodes have no GPU with a sufficient free part, or no known GPU memory."""
    share, parts = shape.gpu_share, statement.gpu_share_replicas(shape, Capacity.IDLE, 1)
    if share is None or parts is None:
        return [], rest
    row = statement.snapshot.resources.positions.get(GPU_RESOURCE)
    claimed = statement.gpu_parts.claimed(shape)
    by_claim = rest & (False if claimed is None else claimed)
    without = rest & ~_has_device_plugin(statement, row) & ~by_claim
    with_plugin = rest & ~without & ~by_claim
    unknown = with_plugin & np.isinf(statement.gpu_parts.shared.required_mib(share))
    insufficient = with_plugin & ~unknown & (parts.total < 1)
    texts: list[str] = []
    if without.any():
        drivers = (
            f"nor is a DRA driver's claimed: no webhook of kai-py has seen the pod, or no "
            f"DeviceClass serves {GPU_RESOURCE}"
            if claimed is None
            else "nor GPUs of a DRA driver that allow multiple allocations, have capacity and, for "
            "parts of several GPUs, a uuid"
        )
        count = np.count_nonzero(without)
        texts.append(f"{count} have no GPUs of a device plugin to share, {drivers}")
    if insufficient.any():
        count = np.count_nonzero(insufficient)
        texts.append(f"{count} Insufficient GPU fraction ({share} requested)")
    if unknown.any():
        label = f"label {MEMORY_LABEL} is missing"
        texts.append(f"{int(unknown.sum())} report no GPU memory ({label})")
    return texts, rest & ~without & ~unknown & ~insufficient


BYTES = ("memory", "ephemeral-storage", "hugepages-")


BINARY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def amount_text(resource: str, amount: float) -> str:
    """``amount`` in the unit of its row (``ResourceIndex``) as a quantity."""
    if resource == "cpu":
        cores = amount / 1000.0
        return f"{amount:.0f}m" if 0 < cores < 1 else _rounded(cores)
    if not resource.startswith(BYTES):
        return _rounded(amount)
    unit = 0
    while amount >= 1024 and unit < len(BINARY_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{_rounded(amount)}{BINARY_UNITS[unit]}"


def _rounded(amount: float) -> str:
    if amount >= 1000:
        return f"{amount:.0f}"
    text = f"{amount:.3g}"
    return text if "e" not in text else f"{amount:.3f}".rstrip("0").rstrip(".")
