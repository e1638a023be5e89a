"""Answers of the API for readers with limited rights: the objects of others only as sums.

Each function takes the whole answer and what the reader sees, and gives an answer of the same form.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from kai_py.dra.explain.device_list import DeviceEntry, DeviceStatus, Holder
from kai_py.observe.cluster_state import (
    MAX_PENDING,
    NO_OWNER,
    ClusterState,
    Domain,
    OtherGangs,
    PendingGang,
    QueueRow,
    pending_gangs,
)
from kai_py.observe.cluster_view import OTHER_SCHEDULERS, ClusterView
from kai_py.observe.gang_rows import GangRow
from kai_py.observe.kept_history import ShareSample
from kai_py.observe.node_details import NodeDetails, Occupant
from kai_py.observe.visibility import Visibility
from kai_py.snapshot.accounting import GPU

OTHERS = "(others)"
"""The name of the sum of other tenants' devices; no device has such a name."""


def as_json(answer: object) -> Any:
    """An answer as the API writes it."""
    return msgspec.json.decode(msgspec.json.encode(answer))


def other_gangs(view: ClusterView, seen: Visibility) -> OtherGangs:
    """The gangs that are not shown, as sums."""
    pending = {unplaced.gang for unplaced in view.plan.unplaced}
    hidden = [gang for key, gang in view.snapshot.gangs.items() if not seen.sees(key)]
    return OtherGangs(
        running=sum(bool(gang.bound) for gang in hidden),
        pending=sum(gang.key in pending for gang in hidden),
        pods=sum(len(gang.members) for gang in hidden),
        gpus=sum(gang.allocated.get(GPU, 0.0) for gang in hidden),
    )


def tenant_state(state: ClusterState, view: ClusterView, seen: Visibility) -> ClusterState:
    """The state with own gangs and queues; GPUs of other queues belong to none."""
    rows = tuple(tenant_queues(state.queues, seen))
    owners = (*(row.queue for row in rows), OTHER_SCHEDULERS)
    positions = {owner: position for position, owner in enumerate(owners)}
    others = positions[OTHER_SCHEDULERS]
    moved = [positions.get(owner, others) for owner in state.owners]
    pending = [_pending(gang, seen) for gang in pending_gangs(view) if seen.sees(gang.gang)]
    return replace(
        state,
        queues=rows,
        owners=owners,
        domains=tuple(_domain(domain, moved, seen) for domain in state.domains),
        pending=tuple(pending[:MAX_PENDING]),
        others=other_gangs(view, seen),
    )


def _pending(gang: PendingGang, seen: Visibility) -> PendingGang:
    """The gang, without the number of gangs of a queue that may not be seen."""
    shown = replace(gang, message=seen.text(gang.message))
    if seen.counts_gangs_of(gang.queue):
        return shown
    return replace(shown, queue_position=0, queue_length=0)


def _domain(domain: Domain, moved: Sequence[int], seen: Visibility) -> Domain:
    by_queue: dict[str, float] = {}
    for queue, gpus in domain.by_queue.items():
        shown = queue if queue in seen.queues else OTHER_SCHEDULERS
        by_queue[shown] = by_queue.get(shown, 0.0) + gpus
    owners = tuple(NO_OWNER if owner == NO_OWNER else moved[owner] for owner in domain.owners)
    return replace(domain, by_queue=by_queue, owners=owners)


def tenant_queues(rows: Iterable[QueueRow], seen: Visibility) -> Iterator[QueueRow]:
    """The queues that are shown; one below a hidden queue begins a tree."""
    for row in rows:
        if row.queue in seen.queues:
            parent = row.parent if row.parent in seen.queues else ""
            yield replace(row, parent=parent, problems=tuple(map(seen.text, row.problems)))


def other_queues(rows: Sequence[QueueRow], seen: Visibility) -> dict[str, float]:
    """By resource, the sum of what each hidden queue has allocated without the queues below it."""
    found: dict[str, float] = {}

    def add(queue: str, amounts: Mapping[str, float], sign: float) -> None:
        if queue and queue not in seen.queues:
            for resource, amount in amounts.items():
                found[resource] = found.get(resource, 0.0) + sign * amount

    for row in rows:
        add(row.queue, row.allocated, 1.0)
        add(row.parent, row.allocated, -1.0)
    return {resource: max(amount, 0.0) for resource, amount in sorted(found.items())}


def tenant_gangs(rows: Iterable[GangRow], seen: Visibility) -> list[GangRow]:
    """The rows of own gangs."""
    return [replace(row, message=seen.text(row.message)) for row in rows if seen.sees(row.gang)]


def tenant_devices(entries: Iterable[DeviceEntry], seen: Visibility) -> list[DeviceEntry]:
    """Devices of own claims, then the number of the others by product, kind and status.

    Readers who may list nodes see every device, with its own claims.
    """
    own: list[DeviceEntry] = []
    sums: dict[tuple[str, str, DeviceStatus], DeviceEntry] = {}
    for entry in chain.from_iterable(_by_owner(each, seen) for each in entries):
        if entry.claims or seen.nodes:
            own.append(entry)
            continue
        key = (entry.product, entry.kind, entry.status)
        before = sums.get(key)
        sums[key] = replace(
            entry,
            node="",
            driver="",
            pool="",
            device=OTHERS,
            parent="",
            detail="",
            claims=(),
            count=entry.count + (before.count if before else 0),
        )
    return [*own, *sums.values()]


def _by_owner(entry: DeviceEntry, seen: Visibility) -> Iterator[DeviceEntry]:
    """The entry with its own holders; of device plugins the own units, and those of others."""
    claims = tuple(_holders(entry, seen))
    units = min(entry.count, sum(each.units for each in claims))
    if not units:
        yield replace(entry, claims=claims)
        return
    yield replace(entry, claims=claims, count=units)
    if entry.count > units:
        yield replace(entry, claims=(), count=entry.count - units)


def _holders(entry: DeviceEntry, seen: Visibility) -> Iterator[Holder]:
    """The own holders of a device; those of a device plugin have a gang and no claim."""
    for holder in entry.claims:
        if seen.sees(holder.gang or holder.claim):
            yield replace(holder, queue=holder.queue if holder.queue in seen.queues else "")


def shows_node(view: ClusterView, seen: Visibility | None) -> Callable[[str], bool]:
    """Whether a node is shown: one with own pods, or any if their names may be seen."""
    if seen is None or seen.nodes:
        return lambda _node: True
    return lambda node: any(seen.sees(gang.key) for gang, _ in view.members_on.get(node, ()))


def tenant_nodes(nodes: Iterable[NodeDetails], seen: Visibility) -> list[NodeDetails]:
    """The nodes with own pods by name; pods of others are one sum."""
    return [
        replace(
            node,
            occupants=tuple(_occupants(node.occupants, seen)),
            devices=tuple(
                replace(each, claims=tuple(_holders(each, seen))) for each in node.devices
            ),
        )
        for node in nodes
    ]


def _occupants(occupants: Sequence[Occupant], seen: Visibility) -> Iterator[Occupant]:
    hidden = [each for each in occupants if not seen.sees(each.gang)]
    yield from (each for each in occupants if seen.sees(each.gang))
    if hidden:
        yield Occupant(
            gang=OTHERS,
            queue="",
            priority=0,
            pods=sum(each.pods for each in hidden),
            terminating=sum(each.terminating for each in hidden),
            gpus=sum(each.gpus for each in hidden),
        )


def tenant_comparison(answer: Any, seen: Visibility) -> Any:
    """The effect of a change on own gangs and queues, and on how many others."""
    if not isinstance(answer, dict):
        return answer
    lists = {name: rows for name, rows in answer.items() if isinstance(rows, list)}
    shown = seen.redacted(answer)
    for name, rows in lists.items():
        if name != "queues" and len(rows) > len(shown[name]):
            shown.setdefault("others", {})[name] = len(rows) - len(shown[name])
    return shown


def tenant_samples(samples: Iterable[ShareSample], seen: Visibility) -> Iterator[ShareSample]:
    """GPUs of own queues over time."""
    for sample in samples:
        yield replace(
            sample,
            allocated={q: gpus for q, gpus in sample.allocated.items() if q in seen.queues},
            fair_share={q: gpus for q, gpus in sample.fair_share.items() if q in seen.queues},
        )
