"""Devices in a cycle: what is free given everything decided so far."""

import numpy as np

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.devices import Taken, Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape


class CycleDevices:
    def __init__(self, devices: ClusterDevices) -> None:
        self._devices = devices

    def copies(self, shape: Shape, mask: Bools, count: int) -> Ints:
        return np.where(mask, 0 if shape.needs_devices else count, 0).astype(np.int64)

    def take(self, member: Member, row: int) -> Taken | None:
        return None if member.shape.needs_devices else Taken()

    def give_back(self, member: Member) -> Undo | None:
        return None

    def why_not(self, shape: Shape, mask: Bools) -> str:
        return "no ResourceSlice publishes any device"
