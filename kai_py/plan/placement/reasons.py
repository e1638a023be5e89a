"""Unschedulable reasons: one sentence for people, with the stage that stops the gang.

The wording follows kube-scheduler's ("0/8 nodes are available: ..."), because people and alerts
search for it. For a gang it begins with the number of pods that must start together and the number
that can be scheduled.
"""

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.texts import count_of, is_or_are
from kai_py.plan.plan import Protection, Shortage, Stage
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFit, requests_where_reported
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.shared_gpus import MEMORY_LABEL


class ShortageCause(NamedTuple):
    """How many nodes are not available and why; ``detail``: what is wrong with a claim there."""

    text: str
    detail: str = ""

    def __str__(self) -> str:
        """Both."""
        return f"{self.text}: {self.detail}" if self.detail else self.text


class Unschedulable(Struct, frozen=True):
    """The stage that stops a gang, and the message that explains it.

    ``summary``: a sentence, or what comes before ``causes``; ``notes``: what follows both.
    ``infeasible``: why the gang could not run even if no other did, with the nodes
    and queues as they are now; "" if it could. ``hint``: a sentence on what is probably wrong in
    the manifest.
    """

    stage: Stage
    summary: str
    shortage: Shortage | None = None
    protections: tuple[Protection, ...] = ()
    infeasible: str = ""
    hint: str = ""
    causes: tuple[ShortageCause, ...] = ()
    notes: str = ""

    @property
    def message(self) -> str:
        """One or more sentences."""
        return self._text(map(str, self.causes))

    @property
    def message_beside_infeasible(self) -> str:
        """The message without the detail that ``infeasible`` says as well."""
        said = self.infeasible
        return self._text(each.text if each.detail == said else str(each) for each in self.causes)

    def with_clause(self, clause: str) -> "Unschedulable":
        """The reason with a clause at the end of its last sentence."""
        return replace(self, notes=f"{self.notes.rstrip('.')}; {clause}.")

    def with_sentence(self, sentence: str) -> "Unschedulable":
        """The reason with another sentence."""
        return replace(self, notes=f"{self.notes} {sentence}")

    def _text(self, causes: Iterable[str]) -> str:
        text = self.summary
        if self.causes:
            others = self.shortage.others if self.shortage is not None else 0
            fit = f"; {count_of(others, 'other pod')} of the gang would fit" if others else ""
            text = f"{self.summary}: {', '.join(causes)}{fit}."
        if self.notes:
            text = text.rstrip(".") + ("" if self.notes.startswith(";") else ".")
        return text + self.notes


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

    ``replicas``: (nodes,) int64, pods that fit by resources alone. Each node is counted once, with
    the first check that it fails.
    """
    nodes = len(statement.snapshot.nodes)
    causes = [ShortageCause(f"{count} {reason}") for reason, count in static.removed]
    stage = Stage.RESOURCES if np.count_nonzero(static.mask) else Stage.NODE_FILTERS
    shortages, rest = _insufficient_resources(statement, shape, static, replicas, found=found)
    causes += map(ShortageCause, shortages)
    if np.count_nonzero(rest):
        others, by_devices = _other_causes(statement, shape, rest, replicas)
        causes += others
        stage = Stage.DEVICES if by_devices else stage
    head = f"0/{nodes} nodes are available" if needed == 1 else _start_together(needed, found)
    if not causes:
        head += (
            ": no feasible node." if nodes else ": the node pool of this scheduler has no nodes."
        )
    shortage = Shortage(found, needed, tuple(map(str, causes)))
    return Unschedulable(stage, head, shortage, causes=tuple(causes))


def _start_together(needed: int, found: int) -> str:
    return f"{needed} pods must start together but only {found} can be scheduled"


def for_more_pods(reason: Unschedulable, failed: int, needed: int) -> Unschedulable:
    """The reason of a request for ``failed`` pods, for one of ``needed`` such pods or more."""
    shortage = reason.shortage
    if shortage is None or shortage.needed != failed or needed == failed:
        return reason
    _, colon, rest = reason.summary.partition(":")
    head = _start_together(needed, shortage.found)
    return replace(
        reason, summary=f"{head}{colon}{rest}", shortage=replace(shortage, needed=needed)
    )


def _other_causes(
    statement: Statement, shape: Shape, rest: Bools, replicas: Ints
) -> tuple[list[ShortageCause], bool]:
    """Why the nodes of ``rest``, which have the resources, take no pod; whether for devices."""
    # The replicas of a pod with devices are on nodes whose devices may not suffice.
    counted = np.zeros_like(replicas) if shape.needs_devices else replicas
    refused, rest = statement.limits.shortages(shape, rest, counted)
    taken, rest = _refused_claims(statement, shape, rest)
    causes = [ShortageCause(text) for text in (*refused, *taken)]
    tried = rest & (replicas > 0) if shape.needs_devices else np.zeros_like(rest)
    if by_devices := bool(tried.any()):
        why = statement.devices.unschedulable_reasons(shape, tried)
        causes += [ShortageCause(*each) for each in why]
        rest = rest & ~tried
    if rest.any():
        causes.append(ShortageCause(f"{np.count_nonzero(rest)} not available to this gang"))
    return causes, by_devices


def out_of_budget(probes: int | None, *, backs_off: bool) -> Unschedulable:
    """The reason of a gang whose search for victims spent its budget of trial placements."""
    tried = f"no preemption victims found within {probes} trial placements"
    again = "once a pod has ended or a node has been added" if backs_off else "in the next cycle"
    return Unschedulable(Stage.SEARCH_BUDGET, f"{tried}; the search is repeated {again}.")


def for_gang(
    reason: Unschedulable, gang: Gang, members: Sequence[Member], placed: Container[str]
) -> Unschedulable:
    """``reason`` with the details of this gang: the first pod that did not fit, its subgroup.

    The reason may be that of another gang with an equal request. ``members``: the requested pods;
    ``placed``: uids of all placed pods. O(pods of the gang).
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
    """``reason`` with the number of nodes that are reserved for others.

    ``replicas``: how many of the gang's pods would fit there; if enough, the stage is RESERVED.
    """
    note = (
        f"{count_of(nodes, 'node')} {is_or_are(nodes)} reserved for gangs that have waited longer"
    )
    shortage = reason.shortage
    reserved = shortage is not None and shortage.found + replicas >= shortage.needed
    stage = Stage.RESERVED if reserved else reason.stage
    return replace(reason.with_clause(note), stage=stage)


def with_spares(reason: Unschedulable, nodes: int) -> Unschedulable:
    """``reason`` with the number of spare nodes that the gang may not use."""
    if not reason.message:
        return reason
    what = "1 node is a spare" if nodes == 1 else f"{nodes} nodes are spares"
    note = f"{what} that only repairs of their queues use (spec.spares)"
    return reason.with_clause(note)


MAX_REFUSALS_SHOWN = 3


def with_refusals(reason: Unschedulable, gang: Gang) -> Unschedulable:
    """``reason`` with the nodes that are left out as their kubelets refused pods of the gang."""
    if not reason.message:
        return reason
    listed = [
        f"node {each.node} refused a pod of this gang ({each.reason}) and is not used for "
        f"{each.seconds:g} s"
        for each in gang.refusals[:MAX_REFUSALS_SHOWN]
    ]
    more = len(gang.refusals) - len(listed)
    listed += [f"so {is_or_are(more)} {count_of(more, 'more node')}"] if more else []
    return reason.with_clause("; ".join(listed))


def _insufficient_resources(
    statement: Statement, shape: Shape, static: StaticFit, replicas: Ints, *, found: int
) -> tuple[list[str], Bools]:
    """How many nodes lack which resource for one more pod, and (nodes,) bool the others.

    Nodes count for the first resource, by name, that they lack. ``found``: pods that did fit.
    """
    free = statement.free(Capacity.IDLE)
    texts: list[str] = []
    rest = static.mask
    one_more = replicas + 1 if np.count_nonzero(replicas) else 1
    where_reported = dict(requests_where_reported(shape))
    for name, request in sorted({**where_reported, **shape.requests}.items()):
        if not np.count_nonzero(rest):
            break
        row = statement.snapshot.resources.positions.get(name)
        lacking = rest
        by_plugin = name not in shape.reported_requests
        if by_plugin:
            lacking = lacking & _has_device_plugin(statement, row)
        if row is not None:
            lacking = lacking & (free[row] < one_more * request)
            if shape.needs_devices and np.any(enough := lacking & (free[row] >= request)):
                limited = by_plugin and _has_devices_for_more(statement, shape, enough, replicas)
                lacking = lacking & (~enough | limited)
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
            wanted, most = amount_texts(name, request, max(0.0, float(free[row, best])))
            node = statement.snapshot.nodes.names[best]
            detail = f"{wanted} requested, most free {most} on {node}"
        texts.append(f"{count} Insufficient {name} ({detail})")
    shares, rest = _insufficient_gpu_shares(statement, shape, rest)
    return [*texts, *shares], rest


def _refused_claims(statement: Statement, shape: Shape, rest: Bools) -> tuple[list[str], Bools]:
    """How many nodes lack resources of their own that the devices would take, and the others."""
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


def _has_devices_for_more(
    statement: Statement, shape: Shape, among: Bools, replicas: Ints
) -> Bools:
    """(nodes,) bool: devices suffice for more pods than the ``replicas`` that fit by resources."""
    limit = int(replicas[among].max(initial=0)) + 1
    return statement.devices.replicas(shape, among, limit, Capacity.IDLE) > replicas


def _has_device_plugin(statement: Statement, row: int | None) -> Bools:
    """(nodes,) bool: a device plugin of the node reports the resource of this row."""
    nodes = statement.snapshot.nodes
    return np.zeros(len(nodes), np.bool_) if row is None else nodes.allocatable[row] > 0


def _insufficient_gpu_shares(
    statement: Statement, shape: Shape, rest: Bools
) -> tuple[list[str], Bools]:
    """How many nodes have no GPU to share, too small GPUs, no sufficient part or unknown memory.

    And (nodes,) bool: the others of ``rest``.
    """
    share, parts = shape.gpu_share, statement.gpu_share_replicas(shape, Capacity.IDLE, 1)
    if share is None or parts is None:
        return [], rest
    row = statement.snapshot.resources.positions.get(GPU_RESOURCE)
    claimed = statement.gpu_parts.claimed(shape)
    by_claim = rest & (False if claimed is None else claimed)
    without = rest & ~_has_device_plugin(statement, row) & ~by_claim
    with_plugin = rest & ~without & ~by_claim
    unknown = with_plugin & np.isinf(statement.gpu_parts.shared.required_mib(share))
    gpu_mib = statement.gpu_parts.shared.gpu_mib
    small = with_plugin & ~unknown & (share.memory > gpu_mib)
    insufficient = with_plugin & ~unknown & ~small & (parts.total < 1)
    texts: list[str] = []
    if without.any():
        drivers = (
            "and the pod claims none of a DRA driver: no webhook of kai-py has seen the pod, or "
            f"no DeviceClass serves {GPU_RESOURCE}"
            if claimed is None
            else "nor GPUs of a DRA driver that allow multiple allocations, have capacity and, for "
            "parts of several GPUs, a uuid"
        )
        count = np.count_nonzero(without)
        texts.append(f"{count} have no GPUs of a device plugin to share, {drivers}")
    if small.any():
        most = f"{share} requested, a GPU has at most {np.max(gpu_mib[small]):.0f} MiB"
        texts.append(f"{np.count_nonzero(small)} Insufficient GPU memory ({most})")
    if insufficient.any():
        count = np.count_nonzero(insufficient)
        texts.append(f"{count} Insufficient GPU fraction ({share} requested)")
    if unknown.any():
        label = f"label {MEMORY_LABEL} is missing"
        texts.append(f"{int(unknown.sum())} report no GPU memory ({label})")
    return texts, rest & ~without & ~unknown & ~small & ~insufficient


BYTES = ("memory", "ephemeral-storage", "hugepages-")
BINARY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def amount_text(resource: str, amount: float) -> str:
    """``amount``, in the unit of the resource's row (``ResourceIndex``), as a quantity."""
    if resource == "cpu":
        cores = amount / 1000.0
        return f"{amount:.0f}m" if 0 < cores < 1 else _rounded(cores)
    if not resource.startswith(BYTES):
        return _rounded(amount)
    unit = 0
    while amount >= 1024 and unit < len(BINARY_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{_rounded(amount)}{BINARY_UNITS[unit]}"


def amount_texts(resource: str, wanted: float, present: float) -> tuple[str, str]:
    """The texts of two amounts, not rounded where they would seem to be the same."""
    texts = amount_text(resource, wanted), amount_text(resource, present)
    if texts[0] != texts[1] or wanted == present:
        return texts
    unit = "m" if resource == "cpu" else ""
    return f"{wanted:.15g}{unit}", f"{present:.15g}{unit}"


def _rounded(amount: float) -> str:
    if amount >= 1000:
        return f"{amount:.0f}"
    text = f"{amount:.3g}"
    return text if "e" not in text else f"{amount:.3f}".rstrip("0").rstrip(".")
