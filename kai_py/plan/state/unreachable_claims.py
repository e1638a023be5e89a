"""Why nodes can't use claims that were allocated in this cycle, or whose devices are freed."""

from collections.abc import Callable, Mapping

from kai_py.api.records.resource import AllocationResult
from kai_py.dra.identity import DeviceID
from kai_py.snapshot.shape import Shape


def unreachable_reason(
    shape: Shape,
    allocations: Mapping[str, AllocationResult],
    is_reassigned: Callable[[str], bool],
) -> str:
    """What keeps nodes from the first such claim of ``shape``.

    ``allocations``: of this cycle, by uid of the claim. ``is_reassigned``: whether a claim, by its
    uid, loses its devices to others.
    """
    for meta in (use.claim.metadata for use in shape.claims if use.claim is not None):
        name = f"claim {meta.namespace}/{meta.name}"
        if is_reassigned(meta.uid):
            devices = "its devices were allocated to other claims"
            return f"cannot use {name}: it is being deallocated and {devices}"
        allocation = allocations.get(meta.uid)
        if allocation is not None and allocation.node_selector is not None:
            first = allocation.devices.results[0]
            device = DeviceID(first.driver, first.pool, first.device)
            return f"cannot access {device}, which {name} has for other pods"
    return "cannot access the devices of all claims"
