"""Device funnel of a claim: counts from all devices that exist to those that are free.

One record per request, or alternative of one: how many devices each condition of a selector
rejects, how many are allocated, tainted, out of counters or too small, which pools are unusable,
and which device comes nearest and what it has instead. Allocated claims list their devices.
"""

import numpy as np
from msgspec import Struct

from kai_py.api.records.resource import ResourceClaim
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.explain.diagnosis import AllocationDiagnosis, OptionDiagnosis, diagnose_allocation
from kai_py.dra.explain.diagnosis_message import diagnosis_message
from kai_py.dra.identity import AllocationError
from kai_py.snapshot.quarantine import Quarantine, ignore_failure
from kai_py.snapshot.snapshot import Snapshot


class RejectedDevices(Struct, frozen=True):
    """Devices that a check rejected; ``reason`` is the selector and condition, or the taint."""

    check: str
    reason: str
    devices: int


class NearestDevice(Struct, frozen=True):
    """The device that fails the fewest conditions, the first of these, and its actual values."""

    device: str
    condition: str
    actual: dict[str, str]


class RequestFunnel(Struct, frozen=True):
    """A request, or one alternative of it; ``count`` is 0 for allocation mode All.

    Of the ``matching`` devices some are ``free``, of which a single node has at most
    ``max_per_node``.
    """

    request: str
    device_class: str
    count: int
    matching: int
    free: int
    max_per_node: int
    rejected: tuple[RejectedDevices, ...]
    nearest: NearestDevice | None


class ClaimFunnel(Struct, frozen=True):
    """A claim and the devices in the cluster; ``unusable_pools`` are incomplete or invalid.

    ``allocated`` are the devices of the claim, ``driver/pool/device``.
    """

    claim: str
    message: str = ""
    allocated: tuple[str, ...] = ()
    nodes: int = 0
    devices: int = 0
    unusable_pools: tuple[str, ...] = ()
    requests: tuple[RequestFunnel, ...] = ()


def claim_funnel(snapshot: Snapshot, namespace: str, name: str) -> ClaimFunnel | None:
    """The funnel of a claim; None if it does not exist."""
    claim = snapshot.devices.claims.get((namespace, name))
    if claim is None:
        return None
    title = f"{namespace}/{name}"
    allocation = claim.status.allocation
    if claim.metadata.deletion_timestamp is not None and allocation is None:
        return ClaimFunnel(title, message="it is being deleted, so no device is allocated for it")
    if allocation is not None:
        results = allocation.devices.results
        allocated = tuple(f"{each.driver}/{each.pool}/{each.device}" for each in results)
        return ClaimFunnel(title, allocated=allocated)
    diagnosis = _funnel(snapshot, claim)
    if isinstance(diagnosis, AllocationError):
        return ClaimFunnel(title, message=str(diagnosis))
    return ClaimFunnel(
        title,
        message=diagnosis_message(diagnosis, [claim]) if _is_insufficient(diagnosis) else "",
        nodes=diagnosis.nodes,
        devices=diagnosis.devices,
        unusable_pools=tuple(
            f"{pool.id} {pool.status.value} ({pool.detail})" for pool in diagnosis.faulty
        ),
        requests=tuple(_request(each) for each in diagnosis.options),
    )


def _funnel(snapshot: Snapshot, claim: ResourceClaim) -> AllocationDiagnosis | AllocationError:
    devices = ClusterDevices(quarantine=Quarantine(ignore_failure))
    devices.sync(snapshot.devices)
    nodes = snapshot.nodes.records
    all_nodes = np.arange(len(nodes), dtype=np.int64)
    return diagnose_allocation(devices.allocator, [claim], nodes, devices.state, all_nodes)


def _is_insufficient(funnel: AllocationDiagnosis) -> bool:
    """Whether some request finds too few devices on every node, with each of its alternatives."""
    is_sufficient: dict[int, bool] = {}
    for each in funnel.options:
        is_sufficient[each.option.request] = (
            is_sufficient.get(each.option.request, False) or each.is_sufficient
        )
    return not all(is_sufficient.values())


def _request(found: OptionDiagnosis) -> RequestFunnel:
    nearest = found.closest
    return RequestFunnel(
        request=found.option.name,
        device_class=found.option.device_class.metadata.name,
        count=0 if found.option.is_all_mode else found.option.count,
        matching=found.matching,
        free=found.free,
        max_per_node=found.max_on_one_node,
        rejected=tuple(
            RejectedDevices(each.check.value, each.cause, each.devices) for each in found.rejected
        ),
        nearest=None
        if nearest is None
        else NearestDevice(str(nearest.device), nearest.condition, dict(nearest.values)),
    )
