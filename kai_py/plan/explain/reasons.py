"""Why pods could not be placed, in one sentence, with the stage that stops them.

The shape of the text follows kube-scheduler's ("0/8 nodes are available: ..."), because people and
alerts search for it; in front stands what a gang needs and how much of it found room.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kai_py.plan.plan import Protection, Shortage, Stage
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFit
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.gpus import MEMORY_LABEL


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The stage that stops a gang and the sentence for people."""

    stage: Stage
    message: str
    shortage: Shortage | None = None
    protections: tuple[Protection, ...] = ()


UNEXPLAINED = Unschedulable(Stage.RESOURCES, "")
"""Of an attempt that nobody asks why it failed."""


def insufficient_capacity(
    statement: Statement,
    shape: Shape,
    static: StaticFit,
    *,
    replicas: Ints,
    needed: int,
    found: int,
) -> Unschedulable:
    """Why only ``found`` of ``needed`` pods of ``shape`` have room.

    ``copies``: (nodes,) int64, pods that fit by resources alone.
    """
    nodes = len(statement.snapshot.nodes)
    reasons = [f"{count} {reason}" for reason, count in static.removed]
    stage = Stage.NODE_FILTERS if not static.mask.any() else Stage.RESOURCES
    short, lacking = _insufficient_resources(statement, shape, static, replicas)
    reasons += short
    if shape.needs_devices and replicas.any():
        stage = Stage.DEVICES
        reasons.append(statement.devices.unschedulable_reason(shape, np.asarray(replicas > 0)))
    elif stage is Stage.RESOURCES and not lacking:
        reasons += statement.limits.shortages(shape, static.mask)
    head = (
        f"0/{nodes} nodes are available"
        if needed == 1
        else f"{needed} pods must start together but room was found for {found}"
    )
    message = f"{head}: {', '.join(reasons) or 'no node fits'}."
    return Unschedulable(stage, message, Shortage(found, needed, tuple(reasons)))


def for_gang(
    reason: Unschedulable, gang: Gang, members: Sequence[Member], placed: Container[str]
) -> Unschedulable:
    """``obstacle`` of ``members``, with what it means for their gang; ``placed``: uids of pods.

    Whatever it meant for another gang that asked the same is gone. O(pods of the gang).
    """
    short = reason.shortage
    if short is None:
        return reason
    if len(gang.members) == 1 and not gang.placeholders:
        if short.pod is None:
            return reason
        return replace(reason, shortage=Shortage(short.found, short.needed, short.causes))
    first = members[min(short.found, len(members) - 1)]
    asked = {member.pod.uid for member in members}
    others = [m for m in gang.members if m.pod.uid in placed and m.pod.uid not in asked]
    leaves = gang.tree.leaves()
    floor = next((leaf.min_members for leaf in leaves if leaf.name == first.subgroup), 0)
    have = sum(member.subgroup == first.subgroup for member in (*gang.bound, *others))
    single = have >= floor or all(leaf.min_members <= 1 for leaf in leaves)
    told = replace(
        short,
        pod=first.pod,
        subgroup=first.subgroup,
        min_members=0 if single else floor,
        others=len(others),
    )
    return replace(reason, shortage=told)


def with_reserved_nodes(reason: Unschedulable, nodes: int, replicas: int) -> Unschedulable:
    """The obstacle of a gang from which so many nodes are kept; ``copies`` pods would fit there."""
    kept = f"{nodes} nodes are kept for gangs that have waited longer"
    short = reason.shortage
    reserved = short is not None and short.found + replicas >= short.needed
    stage = Stage.RESERVED if reserved else reason.stage
    return replace(reason, stage=stage, message=f"{reason.message.rstrip('.')}; {kept}.")


def _insufficient_resources(
    statement: Statement, shape: Shape, static: StaticFit, replicas: Ints
) -> tuple[list[str], bool]:
    """Per resource, how many of the nodes that passed the filters can't take one more for it."""
    free = statement.free(Capacity.IDLE)
    texts: list[str] = []
    for name, request in sorted(shape.requests.items()):
        row = statement.snapshot.resources.positions.get(name)
        lacking = static.mask
        if name in shape.extended.resources:
            lacking = lacking & _has_device_plugin(statement, row)
        if row is not None:
            taken = 0 if shape.needs_devices else replicas
            lacking = lacking & (free[row] < (taken + 1) * request)
        count = int(np.count_nonzero(lacking))
        if count:
            texts.append(
                f"{count} Insufficient {name}" if name != "pods" else f"{count} Too many pods"
            )
    texts += _insufficient_gpu_shares(statement, shape, static)
    return texts, bool(texts)


def _has_device_plugin(statement: Statement, row: int | None) -> Bools:
    """(nodes,) bool: the node has a device plugin for the resource in this row."""
    nodes = statement.snapshot.nodes
    return np.zeros(len(nodes), np.bool_) if row is None else nodes.allocatable[row] > 0


def _insufficient_gpu_shares(statement: Statement, shape: Shape, static: StaticFit) -> list[str]:
    """How many nodes have no GPU with room for a part of it, and how many can't say."""
    share, parts = shape.gpu_share, statement.gpu_share_replicas(shape, Capacity.IDLE, 1)
    if share is None or parts is None:
        return []
    unknown = static.mask & np.isinf(statement.shared_gpus.required_mib(share))
    short = int(np.count_nonzero(static.mask & ~unknown & (parts.total < 1)))
    texts = [f"{short} Insufficient GPU fraction ({share} is asked of a GPU)"] if short else []
    if unknown.any():
        label = f"label {MEMORY_LABEL} is missing"
        texts.append(f"{int(unknown.sum())} don't say how much memory a GPU has ({label})")
    return texts
