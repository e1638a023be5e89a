"""What does an expression see of a device?

``device.driver``, ``device.attributes[domain][name]``, ``device.capacity[domain][name]`` and
``device.allowMultipleAllocations``. A name without a domain belongs to the driver's; an unknown
domain is an empty map, an unknown name an error.

Source: k8s.io/dynamic-resource-allocation/cel, ``Device``; resource.k8s.io/v1 ``DeviceAttribute``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kai_py.dra.cel.library.versions import Semver, parse_semver
from kai_py.dra.cel.values import AttributeList, CELRuntimeError, DefaultMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai_py.api.quantity import Quantity

AttributeValue = bool | int | str | Semver | AttributeList

MAPS = ("attributes", "capacity")


@dataclass(frozen=True, slots=True)
class BadAttribute:
    """An attribute whose value cannot be read; every expression on its device fails."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class CELDevice:
    """A device as expressions see it.

    ``attributes`` and ``capacity`` are keyed by name, with or without a domain
    (``gpu.example.com/model`` or ``model``).
    """

    driver: str
    attributes: Mapping[str, AttributeValue | BadAttribute] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allow_multiple_allocations: bool = False
    fields: dict[str, Any] = field(init=False, repr=False)
    """What ``device`` is in an expression."""
    fault: str | None = field(init=False, default=None)
    """Why no expression can be evaluated on this device."""

    def __post_init__(self) -> None:
        for name in sorted(self.attributes):
            value = self.attributes[name]
            if isinstance(value, BadAttribute):
                object.__setattr__(self, "fault", f"attribute {name}: {value.reason}")
                break
        fields: dict[str, Any] = {
            "driver": self.driver,
            "attributes": _by_domain(self.attributes, self.driver),
            "capacity": _by_domain(self.capacity, self.driver),
            "allowMultipleAllocations": self.allow_multiple_allocations,
        }
        object.__setattr__(self, "fields", fields)

    def require_sound(self) -> None:
        """Check that all attributes could be read.

        :raises CELRuntimeError: one could not.
        """
        if self.fault is not None:
            raise CELRuntimeError(self.fault)


def attribute_value(
    *,
    int_: int | None = None,
    bool_: bool | None = None,
    string: str | None = None,
    version: str | None = None,
    ints: tuple[int, ...] | None = None,
    bools: tuple[bool, ...] | None = None,
    strings: tuple[str, ...] | None = None,
    versions: tuple[str, ...] | None = None,
) -> AttributeValue | BadAttribute:
    """Make the value of a ``DeviceAttribute`` from its one field that is set."""
    for scalar in (int_, bool_, string):
        if scalar is not None:
            return scalar
    for kind, elements in (("ints", ints), ("bools", bools), ("strings", strings)):
        if elements is not None:
            return AttributeList(kind, elements)
    try:
        if version is not None:
            return parse_semver(version)
        if versions is not None:
            return AttributeList("versions", map(parse_semver, versions))
    except ValueError as fault:
        return BadAttribute(f"parse semantic version: {fault}")
    return BadAttribute("unsupported attribute value")


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Split a qualified name into domain and identifier; the driver is the default domain."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _by_domain(named: Mapping[str, object], driver: str) -> DefaultMap:
    domains = DefaultMap()
    for name, value in named.items():
        domain, identifier = split_name(name, driver)
        domains.setdefault(domain, {})[identifier] = value
    return domains
