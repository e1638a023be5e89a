"""The target workload: the pods that are likely to come, and how they see the GPUs of a node.

It consists of shapes of pods with their shares of all pods: the running and pending pods are
assumed to represent future ones.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.node_capacity import WHOLE_GPU
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

COVERED_PODS = 0.95
"""Part of all pods that the target workload stands for, the most frequent shapes first."""

TOLERANCE_MILLI = 1e-6
"""Sums of parts are off by less than this; no request is as small."""


class PodShapes(Struct, frozen=True):
    """Shapes with GPUs, (m,) each: ``cpu`` millicores, ``memory`` bytes, ``devices``, ``milli``.

    ``milli`` is of each device. ``share``: of all pods; what is missing to 1 are pods without GPUs,
    which can use none. ``supply``: the part of all GPUs, 0 to 1, that is on nodes which hold such a
    pod when they are empty. ``accepts``: (nodes, m) bool, by static rules.
    """

    cpu: Floats
    memory: Floats
    devices: Ints
    milli: Floats
    share: Floats
    supply: Floats
    accepts: Bools


class TargetWorkload(Struct, frozen=True, dict=True):
    """What shapes request, (a,) distinct requests, and which nodes each of them accepts.

    ``cpu``, ``memory``, ``devices``, ``milli`` as for shapes. ``node_kind``: (nodes,) a number that
    nodes share which the same shapes accept. ``share``: (kinds, a) of all pods, those with that ask
    which accept the kind; ``weight``: the same by ``scarcity_weights``.
    """

    cpu: Floats
    memory: Floats
    devices: Floats
    milli: Floats
    node_kind: Ints
    share: Floats
    weight: Floats

    @classmethod
    def from_shapes(cls, shapes: PodShapes) -> "TargetWorkload":
        """Shapes that differ only in the nodes they accept are one ask."""
        columns = np.column_stack((shapes.cpu, shapes.memory, shapes.devices, shapes.milli))
        asks, ask_of = np.unique(columns, axis=0, return_inverse=True)
        accepted, kind = _distinct_rows(shapes.accepts)
        cpu, memory, devices, milli = asks.T
        member = np.zeros((len(ask_of), len(asks)))
        member[np.arange(len(ask_of)), ask_of.reshape(-1)] = 1.0
        return cls(
            cpu=cpu,
            memory=memory,
            devices=devices,
            milli=milli,
            node_kind=kind,
            share=(accepted * shapes.share) @ member,
            weight=(accepted * scarcity_weights(shapes.share, shapes.supply)) @ member,
        )

    @cached_property
    def sizes(self) -> Floats:
        """(sizes,) the distinct parts of a GPU that are asked for."""
        return np.unique(self.milli)

    @cached_property
    def size_index(self) -> Ints:
        """(a,) the position of each ask's part in ``sizes``."""
        return np.searchsorted(self.sizes, self.milli).astype(np.int64)


def _distinct_rows(rows: Bools) -> tuple[Bools, Ints]:
    """The distinct ones of (n, m) rows, and (n,) which of them each row is."""
    numbers: dict[bytes, int] = {}
    # Sorting the rows, as ``np.unique`` does, takes seconds for 10,000 nodes and 2,000 shapes.
    packed = np.packbits(rows, axis=1)
    kind = np.array([numbers.setdefault(each.tobytes(), len(numbers)) for each in packed], np.int64)
    return rows[np.unique(kind, return_index=True)[1]], kind


def scarcity_weights(share: Floats, supply: Floats) -> Floats:
    """(m,) share / sqrt(supply), scaled so that pods without GPUs keep their part of the sum of 1.

    A shape that no node holds counts nothing.
    """
    held = supply > 0
    weights = np.where(held, share / np.sqrt(np.where(held, supply, 1.0)), 0.0)
    total = float(weights.sum() + 1.0 - share.sum())
    return np.asarray(weights / total) if held.any() else weights


class FreeGpus(Struct, frozen=True, dict=True):
    """GPUs of n nodes by the sizes of a workload; ``free``: (n, devices) milli free of each."""

    workload: TargetWorkload
    free: Floats

    @cached_property
    def fits_size(self) -> Bools:
        """(n, devices, sizes) whether a GPU has so much free."""
        return self.free[:, :, None] >= self.workload.sizes

    @cached_property
    def gpus_fitting(self) -> Floats:
        """(n, sizes) how many GPUs have so much free."""
        return np.asarray(self.fits_size.sum(axis=1, dtype=np.float64))

    @cached_property
    def milli_fitting(self) -> Floats:
        """(n, sizes) milli free on the GPUs that have so much free."""
        return np.asarray(np.einsum("nd,nds->ns", self.free, self.fits_size))

    @cached_property
    def shares_fitting(self) -> Floats:
        """(n, sizes) how many parts of that size all GPUs have free."""
        pieces = np.floor((self.free[:, :, None] + TOLERANCE_MILLI) / self.workload.sizes)
        return np.asarray(pieces.sum(axis=1))

    @cached_property
    def total(self) -> Floats:
        """(n,) milli free on all GPUs."""
        return np.asarray(self.free.sum(axis=1))


class FreeCapacity(Struct, frozen=True):
    """What n nodes have left: ``rows``, ``cpu`` millicores, ``memory`` bytes: (n,); ``gpus``."""

    rows: Ints
    cpu: Floats
    memory: Floats
    gpus: FreeGpus


def frequent_shapes(snapshot: Snapshot) -> list[tuple[Shape, int]]:
    """Shapes and their pods, the most frequent first, until ``COVERED_PODS`` of all pods."""
    shapes: dict[int, Shape] = {}
    counts: Counter[int] = Counter()
    for gang in snapshot.gangs.values():
        for member in gang.members:
            shapes[member.shape.number] = member.shape
            counts[member.shape.number] += 1
    taken: list[tuple[Shape, int]] = []
    covered, enough = 0, COVERED_PODS * counts.total()
    for number, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= enough:
            break
        taken.append((shapes[number], count))
        covered += count
    return taken


def target_workload(
    counted: Sequence[tuple[Shape, int]], snapshot: Snapshot, static_fits: StaticFits
) -> TargetWorkload:
    """Shapes and how many pods have them, as a target workload on the nodes of ``snapshot``."""
    total = sum(count for _, count in counted)
    smallest = snapshot.gpu_sharing.smallest
    asked = [(shape, *_gpu_request(shape, smallest), count) for shape, count in counted]
    asked = [each for each in asked if each[1]]
    accepts = np.zeros((len(snapshot.nodes), len(asked)), dtype=np.bool_)
    for position, (shape, *_) in enumerate(asked):
        accepts[:, position] = static_fits.of(shape, snapshot.nodes).mask
    cpu, memory = (_requests_of([shape for shape, *_ in asked], name) for name in ("cpu", "memory"))
    devices = np.array([devices for _, devices, _, _ in asked], dtype=np.int64)
    shapes = PodShapes(
        cpu=cpu,
        memory=memory,
        devices=devices,
        milli=np.array([milli for _, _, milli, _ in asked], dtype=np.float64),
        share=np.array([count / total for *_, count in asked], dtype=np.float64),
        supply=_supply(snapshot, cpu, memory, devices.astype(np.float64), accepts),
        accepts=accepts,
    )
    return TargetWorkload.from_shapes(shapes)


def _requests_of(shapes: Sequence[Shape], resource: str) -> Floats:
    return np.array([shape.requests.get(resource, 0.0) for shape in shapes], dtype=np.float64)


def _supply(
    snapshot: Snapshot, cpu: Floats, memory: Floats, devices: Floats, accepts: Bools
) -> Floats:
    """(m,) the part of all GPUs that is on nodes which hold such a pod when they are empty."""
    positions, amounts = snapshot.resources.positions, snapshot.nodes.allocatable
    if GPU_RESOURCE not in positions:
        return np.zeros(len(cpu))
    gpus = np.floor(amounts[positions[GPU_RESOURCE]])
    holds = accepts & (gpus[:, None] >= devices)
    holds &= amounts[positions["cpu"]][:, None] >= cpu
    holds &= amounts[positions["memory"]][:, None] >= memory
    return np.asarray(gpus @ holds / max(gpus.sum(), 1.0))


def _gpu_request(shape: Shape, smallest: float) -> tuple[int, float]:
    """GPUs that a shape asks for, and milli of each; memory as a part of the smallest GPU."""
    share = shape.gpu_share
    if share is None:
        return int(shape.requests.get(GPU_RESOURCE, 0.0)), WHOLE_GPU
    return share.devices, WHOLE_GPU * share.gpus(smallest) / share.devices
