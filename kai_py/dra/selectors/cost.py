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
    size: int | None = None
    match path:
        case ("device", "driver"):
            size = DRIVER_LENGTH
        case ("device", "attributes" | "capacity") | (
            "device",
            "attributes" | "capacity",
            "@values" | "@items",
        ):
            size = MAP_SIZE
        case ("device", "attributes" | "capacity", "@keys"):
            size = DOMAIN_LENGTH
        case ("device", "attributes" | "capacity", "@values", "@keys"):
            size = NAME_LENGTH
        case ("device", "capacity", "@values", "@values" | "@items"):
            size = 0
        case ("device", "attributes", "@values", _):
            size = VALUE_LENGTH
    return None if size is None else Size(0, size)
