"""The plan of a finished cycle, read off its statement and its unschedulable reasons.

Pods placed on idle capacity start, gang by gang; pods placed on future idle capacity are nominated.
Victims are evicted or relocated (``evictions``). Every gang with pods left over is listed with its
reason (``list_unplaced``), every queue with its shares (``queue_shares``), and every object that is
ignored, in full or in part, because of what it contains (``object_problems``).
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kai_py.api.groups import grouped
from kai_py.api.records.core import ObjectMeta
from kai_py.api.references import PodRef
from kai_py.api.texts import count_of
from kai_py.dra.inventory import Inventory
from kai_py.grouping.gang import Owner, pod_owner
from kai_py.grouping.gang_settings import Wording
from kai_py.plan.actions.resume import capacity_holds
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.extensions import step_key
from kai_py.plan.observations import ObjectProblem, QueueShare
from kai_py.plan.placement.next_pods import (
    elastic_pods,
    gated_pods,
    incomplete_subgroup,
    pod_not_ready,
)
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import (
    SHORT_OF_CAPACITY,
    Admission,
    Eviction,
    GangPlacement,
    Nomination,
    Plan,
    Stage,
    Unplaced,
)
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.turns import Turns
from kai_py.plan.state.assignment import Assignment, gang_placement
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.queues import Quota
from kai_py.snapshot.accounting import DEVICE_CLASS
from kai_py.snapshot.gangs import Gang, PodState
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.snapshot import Snapshot


def queue_shares(
    state: CycleState,
    pending_by_queue: Mapping[str, int],
    spares: Mapping[str, tuple[str, ...]],
) -> tuple[QueueShare, ...]:
    """Every queue as this cycle saw it, by name; includes what the cycle placed.

    ``pending_by_queue``: how many gangs are pending; ``spares``: nodes by queue. A queue for which
    this fails is left out.
    """
    quota = state.quota
    queues, usage, divided = quota.queues, quota.usage, quota.shares
    deserved = _amounts_by_queue(quota, queues.deserved)
    maximum = _amounts_by_queue(quota, queues.max)
    fair = _amounts_by_queue(quota, divided.fair)
    allocated = _amounts_by_queue(quota, usage.allocated)
    demand = _amounts_by_queue(quota, quota.demand)
    infeasible = _nonzero_by_queue(quota, quota.infeasible)
    non_preemptible = _amounts_by_queue(quota, usage.non_preemptible)
    owed = _nonzero_by_queue(quota, usage.owed)
    owed_non_preemptible = _nonzero_by_queue(quota, usage.owed_non_preemptible)
    scaled = _marked_by_queue(quota, divided.scaled, divided.deserved)
    absent = [name for name in quota.resources if _is_of_absent_class(state, name)]
    problems = grouped(quota.problems, lambda problem: problem.queue)

    def share_of(name: str, q: int) -> QueueShare:
        return QueueShare(
            queue=name,
            deserved=deserved[q],
            maximum=maximum[q],
            fair_share=fair[q],
            allocated=allocated[q],
            requested=demand[q],
            infeasible=infeasible[q],
            pending_gangs=pending_by_queue.get(name, 0),
            problems=tuple(problems.get(name, ())),
            parent=queues.names[queues.parent[q]] if queues.depth[q] else "",
            scaled_deserved=scaled[q],
            non_preemptible=non_preemptible[q],
            owed=owed[q],
            owed_non_preemptible=owed_non_preemptible[q],
            priority=int(queues.priority[q]),
            api_version=queues.api_versions[q],
            spares=spares.get(name, ()),
            absent_classes=_named_by_bounds(absent, deserved[q], maximum[q]),
            is_open=all(queues.namespaces[above] is None for above in queues.ancestry[q]),
            past_usage=quota.past_usage.get(name),
            evictions=state.eviction_limits.counted_evictions(name),
        )

    shares = []
    for name, q in sorted(queues.positions.items()):
        try:
            shares.append(share_of(name, q))
        except Exception as error:
            state.turns.fail_turn(step_key("queue shares"), error)
    return tuple(shares)


def _named_by_bounds(
    absent: Iterable[str], deserved: Mapping[str, float], maximum: Mapping[str, float]
) -> tuple[str, ...]:
    """Those of the ``absent`` classes that a queue has bounds for, by name."""
    bounded = (each for each in absent if deserved[each] > 0 or maximum[each] < math.inf)
    return tuple(each.removeprefix(DEVICE_CLASS) for each in bounded)


def _is_of_absent_class(state: CycleState, resource: str) -> bool:
    """Whether it stands for the devices of a DeviceClass that does not exist."""
    is_class = resource.startswith(DEVICE_CLASS)
    return is_class and resource.removeprefix(DEVICE_CLASS) not in state.snapshot.devices.classes


def _amounts_by_queue(quota: Quota, amounts: Floats) -> list[dict[str, float]]:
    """For each queue its column of ``amounts`` (resources, queues), by resource name."""
    return [dict(zip(quota.resources, column, strict=True)) for column in amounts.T.tolist()]


def _nonzero_by_queue(quota: Quota, amounts: Floats) -> list[dict[str, float]]:
    """The same without amounts of 0, which most are."""
    return _marked_by_queue(quota, amounts != 0, amounts)


def _marked_by_queue(quota: Quota, marked: Bools, amounts: Floats) -> list[dict[str, float]]:
    """The same, only the ``marked`` (resources, queues) amounts."""
    by_queue: list[dict[str, float]] = [{} for _ in quota.queues.names]
    for row, q in zip(*marked.nonzero(), strict=True):
        by_queue[q][quota.resources[row]] = float(amounts[row, q])
    return by_queue


def _spares(state: CycleState) -> dict[str, tuple[str, ...]]:
    """The names of the spare nodes of each queue."""
    names = state.snapshot.nodes.names
    by_queue = state.placer.reservations.spares.rows
    return {queue: tuple(names[row] for row in rows) for queue, rows in by_queue.items()}


def build_plan(
    state: CycleState,
    memory: CycleMemory,
    *,
    placements: tuple[GangPlacement, ...],
    evictions: tuple[Eviction, ...],
    admissions: tuple[Admission, ...],
    unplaced: tuple[Unplaced, ...],
    problems: tuple[ObjectProblem, ...],
) -> Plan:
    """The decisions of the cycle, in the order of decision; ``problems``: known ones."""
    names, step = state.snapshot.nodes.names, state.turns.step
    later = _placed_for_later(state)
    promised = {row for each in state.placer.reservations.active for row in each.rows}
    promised.update(each.row for each in later)
    found = step("problems", object_problems, state.snapshot, memory.devices.inventory)
    holds = step("holds", capacity_holds, state.snapshot, state.settings.reservation_seconds)
    spares = step("spares", _spares, state) or {}
    shares = step("queue shares", queue_shares, state, memory.pending.by_queue, spares)
    return Plan(
        placements=placements,
        nominations=tuple(
            Nomination(each.gang.key, each.member.pod, names[each.row])
            for each in later
            if each.member.state is not PodState.EXPECTED
        ),
        evictions=evictions,
        unplaced=unplaced,
        queues=shares or (),
        problems=(*(found or ()), *problems),
        admissions=admissions,
        holds=holds or (),
        checkpoints=tuple(state.report.checkpoints),
        at_risk=tuple(state.report.at_risk.values()),
        promised_nodes=tuple(names[row] for row in sorted(promised)),
        starting=tuple(state.report.starting.values()),
        avoided_nodes=state.report.avoided_nodes,
        avoided_devices=state.report.avoided_devices,
        set_aside=tuple(state.turns.failed.values()),
        failed_extensions=tuple(state.turns.extensions.failed.values()),
    )


def with_failures(plan: Plan, turns: Turns) -> Plan:
    """``plan`` with what has failed since it was made."""
    failed = tuple(turns.extensions.failed.values())
    known = len(failed) == len(plan.failed_extensions)
    return plan if known else replace(plan, failed_extensions=failed)


def _placed_for_later(state: CycleState) -> list[Assignment]:
    """The pods whose capacity is promised: they are nominated, or do not exist yet."""
    idle, expected, evicted = Capacity.IDLE, PodState.EXPECTED, state.statement.evicted
    return [
        each
        for uid, each in state.statement.placed.items()
        if (each.capacity is not idle or each.member.state is expected) and uid not in evicted
    ]


def gang_placements(state: CycleState) -> tuple[GangPlacement, ...]:
    """The pods that start now, by gang; a gang for which this fails is set aside."""
    starting: dict[str, list[Assignment]] = {}
    idle, expected, evicted = Capacity.IDLE, PodState.EXPECTED, state.statement.evicted
    for uid, each in state.statement.placed.items():
        if each.capacity is idle and each.member.state is not expected and uid not in evicted:
            starting.setdefault(each.gang.key, []).append(each)
    placements: list[GangPlacement] = []
    volumes = state.statement.volumes
    for pods in starting.values():
        try:
            placements.append(gang_placement(pods, state.snapshot.nodes.names, volumes))
        except Exception as error:
            # Its pods stay pending; the other gangs have been placed beside them.
            state.turns.fail(pods[0].gang, error)
    return tuple(placements)


EXPECTED_PODS_COUNT = SHORT_OF_CAPACITY | {Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE}
"""Stages at which pods that do not exist yet are requested together with those that do."""


def list_unplaced(
    state: CycleState, pending: Sequence[Gang], answers: Mapping[str, Unplaced | None]
) -> tuple[Unplaced, ...]:
    """The gangs with pods that are left over, and why.

    ``answers``: by gang key, what is known already; None: no pod of the gang is unplaced.
    """
    unplaced: list[Unplaced] = []
    placed = state.statement.placed
    for gang in pending:
        if gang.key in answers:
            answer = answers[gang.key]
            unplaced += () if answer is None else (answer,)
            continue
        pods = _unplaced_pods(placed, gang)
        if not pods:
            continue
        try:
            reason = state.unschedulable.get(gang.key) or _default_reason(state, gang)
            elastic = elastic_pods(gang, state.statement, state.can_never_run)
        except Exception as error:
            # A failure for one gang must not cost all others their plan.
            state.turns.fail(gang, error)
            reason, elastic = _failure_reason(state, gang), ()
        counts_expected = reason.stage in EXPECTED_PODS_COUNT
        expected = _expected_text(len(gang.placeholders)) if counts_expected else ""
        unplaced.append(
            Unplaced(
                gang=gang.key,
                owner=gang.owner,
                queue=gang.queue,
                stage=reason.stage,
                message=_message(reason, expected),
                pods=pods,
                marked=gang.settings.mark_unschedulable,
                shortage=reason.shortage,
                protections=reason.protections,
                elastic=elastic,
                ageing_points=state.ageing.points(gang),
                is_infeasible=bool(reason.infeasible),
                without_advice=_message_without_advice(gang, reason, expected),
            )
        )
    return tuple(unplaced)


def _failure_reason(state: CycleState, gang: Gang) -> Unschedulable:
    failed = state.turns.failed[gang.key]
    return Unschedulable(Stage.SCHEDULER_ERROR, f"{failed.message}.")


def _message(reason: Unschedulable, expected: str) -> str:
    """Whether waiting can help, the reason, and the expected pods that had to fit as well."""
    if not (reason.infeasible or reason.hint):
        return _plain_message(reason, expected)
    infeasible = f"Infeasible: {reason.infeasible}. " if reason.infeasible else ""
    message = reason.message_beside_infeasible.rstrip(".")
    hint = f" {reason.hint}" if reason.hint else ""
    return f"{infeasible}{message}.{hint}{expected}"


def _plain_message(reason: Unschedulable, expected: str) -> str:
    return f"{reason.message.rstrip('.')}.{expected}" if expected else reason.message


def _message_without_advice(gang: Gang, reason: Unschedulable, expected: str) -> str:
    """What KAI's wording starts from, unless it has a shortage to start from; "" elsewhere."""
    if gang.settings.wording is Wording.NATIVE or reason.shortage is not None:
        return ""
    return _plain_message(reason, expected) if reason.infeasible or reason.hint else ""


def _expected_text(count: int) -> str:
    if not count:
        return ""
    pods = f"{count} pods that are" if count > 1 else "a pod that is"
    return f" Capacity is also needed for {pods} not created yet."


def _unplaced_pods(placed: Mapping[str, Assignment], gang: Gang) -> tuple[PodRef, ...]:
    """The pods of the gang that are on no node and do not start now."""
    left: list[PodRef] = []
    future_idle = Capacity.FUTURE_IDLE
    for member in gang.members:
        assignment = placed.get(member.pod.uid)
        if assignment is None:
            left += () if member.node else (member.pod,)
        elif assignment.capacity is future_idle:
            left.append(member.pod)
    return tuple(left)


def _default_reason(state: CycleState, gang: Gang) -> Unschedulable:
    if gang.settings.attempts_exhausted:
        hint = "see its condition for the reason"
        return Unschedulable(Stage.BACKOFF, f"its only scheduling attempt has been made; {hint}.")
    if gang.key in state.snapshot.in_backoff:
        reason = state.snapshot.in_backoff[gang.key] or "see the gang's events"
        return Unschedulable(
            Stage.SCHEDULER_ERROR, f"the last attempts to start it failed: {reason}."
        )
    not_ready = next((m for m in gang.pending if m.waiting_for), None)
    if not_ready is not None and not_ready.pod.uid not in state.statement.placed:
        return pod_not_ready(gang, not_ready)
    placed = state.statement.placed
    assignments = [placed[m.pod.uid] for m in gang.pending if m.pod.uid in placed]
    nominated = [each for each in assignments if each.capacity is Capacity.FUTURE_IDLE]
    incomplete = None if nominated else incomplete_subgroup(gang)
    if incomplete is not None:
        return incomplete
    waiting = len(nominated) or len(gang.pending) - len(assignments)
    if not waiting:
        return Unschedulable(Stage.SCHEDULING_GATED, f"{gated_pods(gang)}.")
    return Unschedulable(
        Stage.NOMINATED,
        f"capacity is being freed for {count_of(waiting, 'pod')}; "
        f"{'it starts' if waiting == 1 else 'they start'} when the terminating pods have ended.",
    )


MAX_MISNAMED = 64
"""How many pods with a misspelt scheduler name are reported."""


def object_problems(snapshot: Snapshot, inventory: Inventory) -> tuple[ObjectProblem, ...]:
    """Problems of nodes by name, of their NUMA reports, of pools by driver and name, of pods.

    Nodes with negative or unreadable amounts, and incomplete or contradictory device pools, are not
    used for placement; a pool is reported at its first slice. Pods that name several groups belong
    to one of them. Of a NUMA report only the readable part counts. Pods whose ``schedulerName`` is
    a misspelling of this scheduler's are scheduled by none. Objects of any kind that could not be
    processed are set aside.
    """
    nodes = snapshot.nodes
    faulty_nodes = [
        ObjectProblem(_owner("v1", "Node", nodes.records[nodes.positions[name]].metadata), text)
        for name, text in sorted(nodes.problems.items())
    ]
    faulty_reports = [
        ObjectProblem(_owner("v1", "Node", nodes.records[nodes.positions[name]].metadata), text)
        for name, node in sorted(snapshot.numa.items())
        if name in nodes.positions and (text := node.problem)
    ]
    faulty_pools = [
        ObjectProblem(_owner("resource.k8s.io/v1", "ResourceSlice", resource_slice.metadata), text)
        for resource_slice, text in inventory.faults()
    ]
    ambiguous_pods = [
        ObjectProblem(
            pod_owner(each.pod), f"belongs to gang {each.gang}; ignored: {', '.join(each.markers)}"
        )
        for each in snapshot.ignored_markers
    ]
    misnamed = [
        ObjectProblem(pod_owner(each.pod), each.message)
        for each in snapshot.misnamed_schedulers[:MAX_MISNAMED]
    ]
    set_aside = [ObjectProblem(each.object, each.message) for each in snapshot.invalid_objects]
    pods = (*ambiguous_pods, *misnamed)
    return (*faulty_nodes, *faulty_reports, *faulty_pools, *pods, *set_aside)


def _owner(api_version: str, kind: str, meta: ObjectMeta) -> Owner:
    return Owner(api_version=api_version, kind=kind, namespace="", name=meta.name, uid=meta.uid)
