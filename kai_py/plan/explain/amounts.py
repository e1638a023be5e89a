"""Amounts of resources as people write them in manifests: 2Ti, 500m, 8.

Rounded to three significant digits, as they are read and not calculated with.
"""

BYTES = ("memory", "ephemeral-storage", "hugepages-")
BINARY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def amount_text(resource: str, amount: float) -> str:
    """``amount`` in the unit of its row (``ResourceIndex``) as a quantity."""
    if resource == "cpu":
        cores = amount / 1000.0
        return f"{amount:.0f}m" if 0 < cores < 1 else _rounded(cores)
    if not resource.startswith(BYTES):
        return _rounded(amount)
    unit = 0
    while amount >= 1024 and unit < len(BINARY_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{_rounded(amount)}{BINARY_UNITS[unit]}"


def _rounded(amount: float) -> str:
    if amount >= 1000:
        return f"{amount:.0f}"
    text = f"{amount:.3g}"
    return text if "e" not in text else f"{amount:.3f}".rstrip("0").rstrip(".")
