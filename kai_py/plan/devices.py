"""What placement needs to know of devices, whoever keeps them.

A claim is allocated by the first pod that is placed with it; pods placed later share what was
found. Everything can be undone, in reverse order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kai_py.plan.decisions import ClaimAllocation
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """Devices found for a pod: what to write for claims that had none, and how to undo it."""

    allocate: tuple[ClaimAllocation, ...] = ()
    undo: Undo | None = None


class DeviceTrial(Protocol):
    """Devices of all nodes, as far as decided."""

    def copies(self, shape: Shape, mask: Bools, count: int) -> Ints:
        """(nodes,) int64: how many pods of ``shape``, at most ``count``, find devices where."""

    def take(self, member: Member, row: int) -> Taken | None:
        """Allocate the pod's claims on a node; None when the devices are not there."""

    def give_back(self, member: Member) -> Undo | None:
        """Free what a leaving pod held; claims that others share stay allocated."""

    def why_not(self, shape: Shape, mask: Bools) -> str:
        """One sentence: what keeps the claims of ``shape`` from being allocated in ``mask``."""


class NoDevices:
    """A cluster without claims: every pod without claims fits, no other does."""

    def copies(self, shape: Shape, mask: Bools, count: int) -> Ints:
        """``count`` where no devices are needed."""
        return np.where(mask, 0 if shape.needs_devices else count, 0).astype(np.int64)

    def take(self, member: Member, row: int) -> Taken | None:  # noqa: ARG002
        """Nothing to allocate."""
        return None if member.shape.needs_devices else Taken()

    def give_back(self, member: Member) -> Undo | None:  # noqa: ARG002
        """Nothing was held."""
        return None

    def why_not(self, shape: Shape, mask: Bools) -> str:  # noqa: ARG002
        """There is nothing to allocate from."""
        return "no ResourceSlice publishes any device"
