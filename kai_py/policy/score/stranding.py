"""Stranding: whether pods of these shapes could leave GPUs free that no pod can use any more.

Where none can, bin-packing without a score packs as well, and faster. A shape can if it

    requests a part of a GPU, or no GPU where a node with GPUs takes it
    requests more CPU or memory per GPU than a node has free per free GPU
    accepts other nodes with GPUs than another shape does

Pods with claims have devices that scores do not see, and don't count. O(nodes x shapes).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import is_

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.policy.fit import StaticFit, StaticFits
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

COMPARED = ("cpu", "memory")
"""Resources that a node may run out of before its GPUs."""


@dataclass
class Stranding:
    """The last answer of ``could_strand``, kept as long as it is asked for the same."""

    _inputs: tuple[object, ...] = ()
    _found: bool = False

    def is_possible(
        self, shapes: Mapping[int, Shape], snapshot: Snapshot, static_fits: StaticFits
    ) -> bool:
        """``could_strand`` for these shapes by number, a mapping that does not change."""
        shares = bool(snapshot.gpu_sharing.rows.size)
        inputs = shapes, snapshot.nodes, snapshot.used, shares
        if not (self._inputs and all(map(is_, inputs, self._inputs))):
            self._inputs = inputs
            self._found = could_strand(shapes.values(), snapshot, static_fits)
        return self._found


def could_strand(shapes: Iterable[Shape], snapshot: Snapshot, static_fits: StaticFits) -> bool:
    """Whether pods of ``shapes`` could, on the nodes of ``snapshot``."""
    if snapshot.gpu_sharing.rows.size:
        return True
    card = snapshot.resources.positions.get(GPU_RESOURCE)
    plain = [shape for shape in shapes if not shape.has_claims]
    if card is None:
        return False
    if any(shape.gpu_share is not None for shape in plain):
        return True
    having = snapshot.nodes.allocatable[card] > 0
    free = {name: _free(snapshot, name) for name in (GPU_RESOURCE, *COMPARED)}
    accepted_by: dict[StaticFit, Bools | None] = {}
    has_free = free[GPU_RESOURCE].any()
    accepted: Bools | None = None
    for shape in plain:
        static = static_fits.of(shape, snapshot.nodes)
        if static not in accepted_by:
            accepted_by[static] = _accepted(having, static)
        accepts = accepted_by[static]
        if accepts is None:
            continue
        if GPU_RESOURCE not in shape.requests or (
            has_free and _exhausts_node_first(shape, free, accepts)
        ):
            return True
        if accepted is None:
            accepted = accepts
        if accepts is not accepted and not np.array_equal(accepts, accepted):
            return True
    return False


def _accepted(having: Bools, static: StaticFit) -> Bools | None:
    """(nodes,) bool: the nodes of ``having`` that admit pods; None if there are none."""
    accepts: Bools = static.mask & having
    return accepts if accepts.any() else None


def _exhausts_node_first(shape: Shape, free: Mapping[str, Floats], accepts: Bools) -> bool:
    """Whether pods of the shape alone fill the CPU or memory of a node before its GPUs.

    ``free``: (nodes,) how much of a resource is free, by its name.
    """
    asked = [name for name in COMPARED if name in shape.requests]
    if not asked:
        return False
    needed = free[GPU_RESOURCE] / shape.requests[GPU_RESOURCE]
    short = ((free[name] < shape.requests[name] * needed) & accepts for name in asked)
    return any(bool(each.any()) for each in short)


def _free(snapshot: Snapshot, name: str) -> Floats:
    """(nodes,) how much of a resource is free."""
    row = snapshot.resources.positions[name]
    free: Floats = np.maximum(snapshot.nodes.allocatable[row] - snapshot.used[row], 0.0)
    return free
