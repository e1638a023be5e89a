"""What becomes of the devices that a claim might have? Counts from all that exist to what is free.

One record per request, or alternative of one: how many devices each condition of a selector turns
down, how many are taken, tainted, out of counters or too small, which pools are of no use, and
which device comes nearest and what it has instead. Claims that hold devices say which.
"""

from dataclasses import dataclass

import numpy as np

from kai_py.api.records.resource import ResourceClaim
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.errors import AllocationError
from kai_py.dra.explain.diagnosis import AllocationDiagnosis, OptionDiagnosis, diagnose_allocation
from kai_py.dra.explain.diagnosis_message import diagnosis_message
from kai_py.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RejectedDevices:
    """Devices that a check turned down; ``cause`` is the selector and condition, or the taint."""

    check: str
    cause: str
    devices: int


@dataclass(frozen=True, slots=True)
class NearestDevice:
    """The device that fails the fewest conditions, the first of them, and what it has instead."""

    device: str
    condition: str
    has: dict[str, str]


@dataclass(frozen=True, slots=True)
class RequestFunnel:
    """A request, or one alternative of it; ``wanted`` is 0 for all devices.

    The devices that exist are those ``turned_down`` and those ``free`` together, of which one node
    has at most ``most_on_a_node``.
    """

    request: str
    device_class: str
    wanted: int
    matching: int
    free: int
    most_on_a_node: int
    turned_down: tuple[RejectedDevices, ...]
    nearest: NearestDevice | None


@dataclass(frozen=True, slots=True)
class ClaimFunnel:
    """A claim and the devices there are; ``unusable_pools`` are incomplete or invalid."""

    claim: str
    message: str = ""
    held: tuple[str, ...] = ()
    nodes: int = 0
    devices: int = 0
    unusable_pools: tuple[str, ...] = ()
    requests: tuple[RequestFunnel, ...] = ()


def claim_funnel(snapshot: Snapshot, namespace: str, name: str) -> ClaimFunnel | None:
    """The record of a claim; None if there is none."""
    claim = snapshot.devices.claims.get((namespace, name))
    if claim is None:
        return None
    title = f"{namespace}/{name}"
    allocation = claim.status.allocation
    if allocation is not None:
        results = allocation.devices.results
        held = tuple(f"{each.driver}/{each.pool}/{each.device}" for each in results)
        return ClaimFunnel(title, held=held)
    found = _funnel(snapshot, claim)
    if isinstance(found, AllocationError):
        return ClaimFunnel(title, message=str(found))
    return ClaimFunnel(
        title,
        message=diagnosis_message(found, [claim]) if _is_insufficient(found) else "",
        nodes=found.nodes,
        devices=found.devices,
        unusable_pools=tuple(
            f"{pool.id} {pool.status.value} ({pool.detail})" for pool in found.faulty
        ),
        requests=tuple(_request(each) for each in found.options),
    )


def _funnel(snapshot: Snapshot, claim: ResourceClaim) -> AllocationDiagnosis | AllocationError:
    devices = ClusterDevices()
    devices.sync(snapshot.devices)
    nodes = snapshot.nodes.records
    everywhere = np.arange(len(nodes), dtype=np.int64)
    return diagnose_allocation(devices.allocator, [claim], nodes, devices.state, everywhere)


def _is_insufficient(funnel: AllocationDiagnosis) -> bool:
    """Whether some request finds too few devices on every node, whatever alternative it takes."""
    enough: dict[int, bool] = {}
    for each in funnel.options:
        enough[each.option.request] = enough.get(each.option.request, False) or each.is_sufficient
    return not all(enough.values())


def _request(found: OptionDiagnosis) -> RequestFunnel:
    nearest = found.closest
    return RequestFunnel(
        request=found.option.name,
        device_class=found.option.device_class.metadata.name,
        wanted=0 if found.option.is_all_mode else found.option.count,
        matching=found.matching,
        free=found.free,
        most_on_a_node=found.max_on_one_node,
        turned_down=tuple(
            RejectedDevices(each.check.value, each.cause, each.devices) for each in found.rejected
        ),
        nearest=None
        if nearest is None
        else NearestDevice(str(nearest.device), nearest.condition, dict(nearest.values)),
    )
