"""What devices of a DeviceClass count as, and which devices count as GPUs at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from kai_py.api.records.resource import DeviceClass
from kai_py.dra.device_kinds import DeviceKind
from kai_py.snapshot.accounting import MIG_SLICES_PER_GPU

GPU_DRIVERS = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gpu.example.com")

PLUGIN_RESOURCES = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "gpu.intel.com/xe",
}


class GpuDefinition(Struct, frozen=True):
    """Which devices count as GPUs: by driver, or all devices of a class.

    ``mig_slices_per_gpu``: for MIG devices that a device plugin serves.
    """

    drivers: tuple[str, ...] = GPU_DRIVERS
    classes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ("*/gpu",)
    plugin_resources: Mapping[str, str] = msgspec.field(
        default_factory=lambda: dict(PLUGIN_RESOURCES)
    )
    mig_slices_per_gpu: float = MIG_SLICES_PER_GPU

    def counts(self, driver: str, device_class: str) -> bool:
        """Whether devices of a driver count as GPUs where they are claimed through a class."""
        return driver in self.drivers or device_class in self.classes


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """What one device of a DeviceClass counts as; nothing for a class that does not exist.

    ``gpus``: the most that any of them counts as. ``plugin_resource``: by which a device plugin
    reports the same devices, "" if none does. ``weights``: what its kinds of devices count as.
    """

    gpus: float = 0.0
    plugin_resource: str = ""
    drivers: tuple[str, ...] = field(default=(), compare=False)
    """Those of its devices; does not affect what pods cost."""
    weights: frozenset[tuple[str, float]] = frozenset()


NO_CLASS = ClassInfo()


def class_info(
    name: str, device_class: DeviceClass, kinds: Sequence[DeviceKind], definition: GpuDefinition
) -> ClassInfo:
    """What the devices of a class count as; ``kinds`` are those that it selects."""
    drivers = _drivers(device_class, kinds, definition)
    return ClassInfo(
        _gpus(name, kinds, drivers, definition),
        _plugin_resource(device_class, drivers, definition),
        drivers,
        frozenset(
            (kind.row.kind, kind.gpus)
            for kind in kinds
            if definition.counts(kind.row.id.driver, name)
        ),
    )


def _drivers(
    device_class: DeviceClass, kinds: Sequence[DeviceKind], definition: GpuDefinition
) -> tuple[str, ...]:
    """Drivers of the devices a class matches; without any, those its selectors name."""
    if kinds:
        return tuple(sorted({kind.row.id.driver for kind in kinds}))
    texts = [s.cel.expression for s in device_class.spec.selectors if s.cel is not None]
    known = sorted({*definition.drivers, *definition.plugin_resources})
    return tuple(driver for driver in known if any(driver in text for text in texts))


def _gpus(
    name: str, kinds: Sequence[DeviceKind], drivers: Sequence[str], definition: GpuDefinition
) -> float:
    if name in definition.classes:
        return 1.0
    if kinds:
        return max(kind.gpus * (kind.row.id.driver in definition.drivers) for kind in kinds)
    return float(any(driver in definition.drivers for driver in drivers))


def _plugin_resource(
    device_class: DeviceClass, drivers: Sequence[str], definition: GpuDefinition
) -> str:
    if device_class.spec.extended_resource_name:
        return device_class.spec.extended_resource_name
    named = (definition.plugin_resources.get(driver, "") for driver in drivers)
    return next((resource for resource in named if resource), "")
