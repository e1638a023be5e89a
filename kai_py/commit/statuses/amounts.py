"""Resource amounts in statuses: quantities, and resource lists as KAI writes them.

KAI's lists count GPUs as ``nvidia.com/gpu``.
"""

import math
from collections.abc import Mapping

from kai_py.api.quantity import NANO, Quantity, QuantityFormat
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.tables.queue_objects import in_api_units
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE

BYTES = ("memory", "ephemeral-storage")
NANOS_PER_MILLIONTH = NANO // 1_000_000


def quantity_of(name: str, amount: float) -> Quantity:
    """The quantity of an amount, rounded to millionths, never negative.

    Below that, sums of fractions are noise. Infinity becomes 0: a Quantity cannot express it.
    """
    millionths = round(amount * 1_000_000) if math.isfinite(amount) else 0
    form = QuantityFormat.BINARY_SI if name in BYTES else QuantityFormat.DECIMAL_SI
    return Quantity(max(millionths, 0) * NANOS_PER_MILLIONTH, form)


GPU_RESOURCE = "nvidia.com/gpu"


def kai_resource_list(amounts: Mapping[str, float]) -> dict[str, str]:
    """Finite positive amounts by name, rounded to millionths.

    Devices by class are left out: KAI's statuses count GPUs, however they are requested.
    """
    shown = in_api_units(
        {
            name: amount
            for name, amount in amounts.items()
            if not name.startswith((DEVICE_CLASS, DEVICE_ATTRIBUTE))
        }
    )
    named = {GPU_RESOURCE if name == GPU else name: amount for name, amount in shown.items()}
    quantities = {name: quantity_of(name, named[name]) for name in sorted(named)}
    return {name: str(quantity) for name, quantity in quantities.items() if quantity}
