"""Sizes of memory as frameworks on the JVM write them: ``4g``, ``1024 mb``, ``2147483648b``.

Units are powers of 1024 and have no case; what a number without a unit counts is the framework's
choice. Anything else is a quantity of Kubernetes, in any case and with or without a ``b``, as
Flink's operator reads it: ``2Gi``, ``1.5GB``.

Source: Spark's JavaUtils.byteStringAs; Flink's MemorySize and its operator's ResourceConfigUtils.
"""

import re

from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.grouping.gang_template import InvalidWorkloadError

MAX_BYTES = 2**63 - 1
_SIZE = re.compile(r"([0-9]{1,19})\s*([a-z]*)", re.ASCII)
_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_NAMES = {"bytes": 0, "kibibytes": 10, "mebibytes": 20, "gibibytes": 30, "tebibytes": 40}
_UNITS = _POWERS | {f"{unit}b": power for unit, power in _POWERS.items() if power} | _NAMES


def parse_memory_size(text: object, location: str, *, default_unit: str) -> int:
    """Bytes, at most ``MAX_BYTES``; raises InvalidWorkloadError, naming ``location``."""
    written = str(text).strip().lower()
    found = _SIZE.fullmatch(written)
    if found is not None and (found[2] or default_unit) in _UNITS:
        return min(int(found[1]) << _UNITS[found[2] or default_unit], MAX_BYTES)
    number = "".join(written.split()).removesuffix("b")
    quantity = f"{number[:-1].upper()}i" if number.endswith("i") else number.upper()
    try:
        size = parse_quantity(quantity).value()
    except QuantityError:
        size = -1
    if size < 0:
        raise InvalidWorkloadError(f"{location} must be a size as for a JVM, for example 4g")
    return min(size, MAX_BYTES)
