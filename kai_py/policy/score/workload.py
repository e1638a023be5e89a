"""Which pods are likely to come, and how do they see the GPUs of a node?

The *target workload* is shapes of pods with their shares of all pods: those that run and wait are
taken for those to come.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kai_py.snapshot.resources import Bools, Floats, Ints

TOLERANCE_MILLI = 1e-6
"""Sums of parts are off by less than this; no request is as small."""


@dataclass(frozen=True)
class PodShapes:
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


@dataclass(frozen=True)
class TargetWorkload:
    """What shapes ask for, (a,) distinct asks, and who of those that ask accepts which nodes.

    ``cpu``, ``memory``, ``devices``, ``milli`` as for shapes. ``kind``: (nodes,) a number that
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
        accepted, kind = np.unique(shapes.accepts, axis=0, return_inverse=True)
        cpu, memory, devices, milli = asks.T
        member = np.zeros((len(ask_of), len(asks)))
        member[np.arange(len(ask_of)), ask_of.reshape(-1)] = 1.0
        return cls(
            cpu=cpu,
            memory=memory,
            devices=devices,
            milli=milli,
            node_kind=kind.reshape(-1).astype(np.int64),
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


def scarcity_weights(share: Floats, supply: Floats) -> Floats:
    """(m,) share / sqrt(supply), scaled so that pods without GPUs keep their part of the sum of 1.

    A shape that no node holds counts nothing.
    """
    held = supply > 0
    weights = np.where(held, share / np.sqrt(np.where(held, supply, 1.0)), 0.0)
    total = float(weights.sum() + 1.0 - share.sum())
    return np.asarray(weights / total) if held.any() else weights


@dataclass(frozen=True)
class FreeGpus:
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


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """What n nodes have left: ``rows``, ``cpu`` millicores, ``memory`` bytes: (n,); ``parts``."""

    rows: Ints
    cpu: Floats
    memory: Floats
    gpus: FreeGpus
