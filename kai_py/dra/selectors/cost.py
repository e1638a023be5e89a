"""The static cost estimate of a selector, above which the API server rejects it.

A device's driver and domains have at most 63 characters, a name 32, a value 64; there are at most
32 attributes or capacities. The scheduler does not need this: what it reads has been admitted.
Source: resource.k8s.io/v1; k8s.io/dynamic-resource-allocation/cel for the limits it assumes.
"""

from kai_py.cel.estimate.calls import Path, Size
from kai_py.cel.estimate.cost import estimate
from kai_py.cel.expression import Expression

MAX_COST = 1_000_000
"""Kubernetes refuses a selector that may cost more."""
DRIVER_LENGTH, DOMAIN_LENGTH, NAME_LENGTH, VALUE_LENGTH, MAP_SIZE = 63, 63, 32, 64, 32


def max_cost(expression: Expression) -> int:
    """The greatest cost of evaluating an expression on any device."""
    return estimate(expression.checked, device_limit)


def device_limit(path: Path) -> Size | None:
    """The size of the value at a path under ``device``."""
    match path:
        case ("device", "driver"):
            return Size(0, DRIVER_LENGTH)
        case ("device", "attributes" | "capacity") | (
            "device",
            "attributes" | "capacity",
            "@values",
        ):
            return Size(0, MAP_SIZE)
        case ("device", "attributes" | "capacity", "@keys"):
            return Size(0, DOMAIN_LENGTH)
        case ("device", "attributes" | "capacity", "@values", "@keys"):
            return Size(0, NAME_LENGTH)
        case ("device", "attributes", "@values", _):
            return Size(0, VALUE_LENGTH)
        case _:
            return None
