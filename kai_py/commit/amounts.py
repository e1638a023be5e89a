"""How is an amount of a resource written into a status?"""

import math

from kai_py.api.quantity import NANO, Quantity, QuantityFormat

BYTES = ("memory", "ephemeral-storage")
MICRO = NANO // 1_000_000


def written(name: str, amount: float) -> Quantity:
    """Rounded to millionths, below which sums of fractions are noise; never negative.

    An amount without bounds is written as nothing: a Quantity cannot say it.
    """
    millionths = round(amount * 1_000_000) if math.isfinite(amount) else 0
    form = QuantityFormat.BINARY_SI if name in BYTES else QuantityFormat.DECIMAL_SI
    return Quantity(max(millionths, 0) * MICRO, form)
