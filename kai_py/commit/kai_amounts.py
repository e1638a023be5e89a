"""Amounts as KAI writes them into statuses: resource lists with GPUs as ``nvidia.com/gpu``."""

import math
from collections.abc import Mapping

from kai_py.api.quantity import NANO, Quantity, QuantityFormat
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.queue_objects import in_api_units
from kai_py.snapshot.queue_specs import DEVICE_ATTRIBUTE

GPU_RESOURCE = "nvidia.com/gpu"
BYTES = ("memory", "ephemeral-storage")
MICRO = NANO // 1_000_000


def resource_list(amounts: Mapping[str, float]) -> dict[str, str]:
    """Finite amounts above nothing, rounded to millionths, by name.

    Devices by class are left out: KAI's statuses count GPUs, whatever they were asked for by.
    """
    shown = in_api_units(
        {
            name: amount
            for name, amount in amounts.items()
            if not name.startswith((DEVICE_CLASS, DEVICE_ATTRIBUTE))
        }
    )
    named = {GPU_RESOURCE if name == GPU else name: amount for name, amount in shown.items()}
    return {
        name: str(Quantity(round(named[name] * 1_000_000) * MICRO, _format(name)))
        for name in sorted(named)
        if math.isfinite(named[name]) and round(named[name] * 1_000_000) > 0
    }


def _format(name: str) -> QuantityFormat:
    return QuantityFormat.BINARY_SI if name in BYTES else QuantityFormat.DECIMAL_SI
