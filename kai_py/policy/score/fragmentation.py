"""Fragmentation: free GPU capacity that the pods likely to come cannot use, and scores against it.

``Stranding`` says whether there can be any.

A pod goes where a measure of waste grows least:

    score = floor(levels / (1 + exp(growth / 1000)))        growth in milli-GPU

Only this many levels, and ties by the stable order of the nodes: both matter, an exact gradient
packs worse. Amounts are rounded to 1e-6 milli before they are compared, so that equal ones tie.
Nodes before and after go through the measure as one array: O(sizes x devices + shapes) per node
and distinct GPU. There are two measures, each O(nodes x shapes).

*Fragmentation gradient descent* (FGD). Of a node n with free CPU c and free GPU parts R_g the shape
m of the target workload M can't use

    F_n(m) = sum of R_g over the GPUs too full for m    if m fits: enough CPU, enough such GPUs
             sum of all R_g                             if it doesn't, or asks for no GPU
    F_n    = sum over M of p_m F_n(m)                   p: share of all pods

Measure and strategy are those of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023), memory
is left out as there. ``fragmented_gpus`` is the sum of F over the nodes that take pods, in GPUs:
those that are free but useless to pods like the running and pending ones. Only GPUs of the device
plugin are seen, not those of claims.

*Frugal* is specific to this project: the free GPU capacity lost to pods likely to come, weighted by
scarcity. It differs from FGD in the measure of what M can use of a node n (A is that of FGD):

    A_n(m) = free milli of the GPUs with enough for m   if one pod of m fits, else 0
    B_n(m) = milli that pods of m alone would fill:     as many as CPU, memory and GPUs hold
    U_n(m) = (9 A_n(m) + B_n(m)) / 10
    w_m    = p_m / sqrt(s_m), scaled to the sum of p    p: share of all pods, s: supply
    waste  = sum of free milli - sum over M of w_m U_n(m)

- *B* sees what A does not: GPUs beside too few cores or too little memory for all of them, and
  parts of which a multiple of a shape leaves something over. A alone counts a node as whole until
  its last core is gone; B alone follows every single pod and packs multi-GPU pods worse.
- *Supply* s_m is the part of all GPUs that is on nodes which hold such a pod when they are empty.
  A pod that accepts any GPU can go elsewhere, one that needs a rare model cannot: its share counts
  more, so that the rare model is left to pods that request it. The square root is half-way between
  counting pods and counting pods per GPU they may use.

The weights of A and B and the root were chosen on the openb lists of docs/packing.md, and held on
orders of arrival that were not used for it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import is_

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.policy.fit import StaticFit, StaticFits
from kai_py.policy.score.node_capacity import (
    ANY_DEVICE,
    DECIMALS,
    MAX_SCORE,
    WHOLE_GPU,
    GpuRequest,
    NodeCapacity,
    NodeScores,
    free_milli_by_node,
)
from kai_py.policy.score.workload import (
    FreeCapacity,
    FreeGpus,
    TargetWorkload,
    frequent_shapes,
    target_workload,
)
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


def fragmentation(workload: TargetWorkload, free: FreeCapacity) -> Floats:
    """(n,) F in milli-GPU."""
    size, parts = workload.size_index, free.gpus
    fits = free.cpu[:, None] >= workload.cpu
    fits &= parts.gpus_fitting[:, size] >= workload.devices
    usable = parts.milli_fitting[:, size] * fits
    used = np.einsum("na,na->n", usable, workload.share[workload.node_kind[free.rows]])
    return np.asarray((parts.total - used).round(DECIMALS))


def fragmented_gpus(snapshot: Snapshot) -> float | None:
    """GPUs that are free and of no use; None where no device plugin reports any."""
    positions, sharing = snapshot.resources.positions, snapshot.gpu_sharing
    if GPU_RESOURCE not in positions:
        return None
    free = snapshot.nodes.allocatable - snapshot.used
    most = int(snapshot.nodes.allocatable[positions[GPU_RESOURCE]].max(initial=0.0))
    part = 1.0 - sharing.used / sharing.memory[sharing.rows]
    parts = free_milli_by_node(sharing.rows, part, free[positions[GPU_RESOURCE]], most)
    workload = target_workload(frequent_shapes(snapshot), snapshot, StaticFits())
    open_nodes = np.flatnonzero(snapshot.nodes.ready & ~snapshot.nodes.unschedulable)
    left = FreeCapacity(
        open_nodes,
        free[positions["cpu"], open_nodes],
        free[positions["memory"], open_nodes],
        FreeGpus(workload, parts[open_nodes]),
    )
    return float(fragmentation(workload, left).sum() / WHOLE_GPU)


def stranded(workload: TargetWorkload, free: FreeCapacity) -> Floats:
    """(n,) waste in milli-GPU."""
    size, parts = workload.size_index, free.gpus
    copies = np.floor(parts.shares_fitting[:, size] / workload.devices)
    _limit_replicas(copies, free.cpu, workload.cpu)
    _limit_replicas(copies, free.memory, workload.memory)
    fits = (copies > 0) & (parts.gpus_fitting[:, size] >= workload.devices)
    usable = parts.milli_fitting[:, size] * fits
    usable *= 9.0
    copies *= workload.devices * workload.milli
    usable += copies
    used = np.einsum("na,na->n", usable, workload.weight[workload.node_kind[free.rows]]) / 10.0
    return np.asarray((parts.total - used).round(DECIMALS))


def _limit_replicas(replicas: Floats, free: Floats, requested: Floats) -> None:
    """At most as many (n, m) replicas as ``free`` (n,) holds of ``requested`` (m,), in place."""
    some = requested > 0
    held = np.floor(free[:, None] / np.where(some, requested, 1.0))
    np.minimum(replicas, held, out=replicas, where=some)


Waste = Callable[[TargetWorkload, FreeCapacity], Floats]
"""(n,) milli-GPU of nodes that a workload can't use."""


def least_growth(
    request: GpuRequest, capacity: NodeCapacity, workload: TargetWorkload, waste: Waste
) -> tuple[Floats, Ints]:
    """(n,) how much the waste grows with the ask on each node, and the GPU by which least."""
    nodes = np.arange(len(capacity.rows))
    shared = request.devices == 1 and bool((request.milli < WHOLE_GPU).any())
    at, device = _distinct_gpus(capacity.free_milli, request.milli) if shared else (nodes, None)
    after = _free_after(capacity.free_milli[at], request, at, device)
    both = FreeCapacity(
        np.concatenate((capacity.rows, capacity.rows[at])),
        np.concatenate((capacity.cpu, capacity.cpu[at] - request.cpu)),
        np.concatenate((capacity.memory, capacity.memory[at] - request.memory)),
        FreeGpus(workload, np.concatenate((capacity.free_milli, after))),
    )
    wasted = waste(workload, both)
    growth = (wasted[len(nodes) :] - wasted[at]).round(DECIMALS)
    if device is None:
        return growth, np.full(len(nodes), ANY_DEVICE, dtype=np.int64)
    return _least_by_node(len(nodes), at, device, growth)


def _free_after(free_milli: Floats, request: GpuRequest, at: Ints, device: Ints | None) -> Floats:
    """(p, devices) what is free once the ask has its part of ``device``, or its emptiest GPUs."""
    if device is not None:
        free_milli[np.arange(len(at)), device] -= request.milli[at]
        return free_milli
    emptiest_last: Floats = np.sort(free_milli, axis=1)
    emptiest_last[:, free_milli.shape[1] - request.devices :] -= request.milli[at, None]
    return emptiest_last


def sigmoid_scores(growth: Floats) -> Floats:
    """Scores 0 to 100, of the shape of ``growth``, which is in milli."""
    return np.asarray(np.floor(np.round(MAX_SCORE / (1.0 + np.exp(growth / 1000.0)), 9)))


def least_growth_score(
    workload: TargetWorkload, waste: Waste
) -> Callable[[GpuRequest, NodeCapacity], NodeScores]:
    """The score by a measure of waste for a target workload."""

    def score(request: GpuRequest, capacity: NodeCapacity) -> NodeScores:
        growth, device = least_growth(request, capacity, workload, waste)
        return NodeScores(sigmoid_scores(growth), device)

    return score


def _distinct_gpus(free_milli: Floats, milli: Floats) -> tuple[Ints, Ints]:
    """(pairs,) nodes and GPUs that fit ``milli``, of equal GPUs of a node only the first."""
    equal = free_milli[:, :, None] == free_milli[:, None, :]
    first = equal.argmax(axis=2) == np.arange(free_milli.shape[1])
    at, device = np.nonzero(first & (free_milli >= milli[:, None]))
    return at, device


def _least_by_node(nodes: int, at: Ints, device: Ints, growth: Floats) -> tuple[Floats, Ints]:
    """The least growth of every node, and the first GPU that has it; ``at`` is ascending."""
    order = np.lexsort((device, growth, at))
    first = order[np.unique(at[order], return_index=True)[1]]
    least, chosen = np.full(nodes, np.inf), np.full(nodes, ANY_DEVICE, dtype=np.int64)
    least[at[first]], chosen[at[first]] = growth[first], device[first]
    return least, chosen


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
    """Whether pods of ``shapes`` could leave GPUs free that no pod can use any more.

    Where none can, bin-packing without a score packs as well, and faster. A shape can if it

        requests a part of a GPU, or no GPU where a node with GPUs takes it
        requests more CPU or memory per GPU than a node has free per free GPU
        accepts other nodes with GPUs than another shape does

    Pods with claims have devices that scores do not see, and don't count. O(nodes x shapes).
    """
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
