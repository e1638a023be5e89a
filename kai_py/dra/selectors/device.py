"""Devices as CEL expressions see them.

``device.driver``, ``device.attributes[domain][name]``, ``device.capacity[domain][name]`` and
``device.allowMultipleAllocations``. A name without a domain belongs to the driver's; an unknown
domain is an empty map, an unknown name an error. Source: k8s.io/dynamic-resource-allocation/cel,
``Device``; resource.k8s.io/v1 ``DeviceAttribute``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from kai_py.api.quantity import Quantity
from kai_py.cel.library.versions import Semver, parse_semver
from kai_py.cel.values import KINDS, CELRuntimeError, DefaultMap, Value


class AttributeList(tuple[Value, ...]):
    """A list-typed attribute; knows the type of its elements even when it is empty."""

    kind: str

    def __new__(cls, kind: str, values: Iterable[Value]) -> "AttributeList":
        """Make a list of ``kind``: bools, ints, strings or versions."""
        instance = super().__new__(cls, values)
        instance.kind = kind
        return instance


KINDS[AttributeList] = "list"
AttributeValue = bool | int | str | Semver | AttributeList

MAPS = ("attributes", "capacity")


class BadAttribute(Struct, frozen=True):
    """An attribute whose value can't be parsed; every expression on its device fails."""

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
    fault: str | None = field(init=False, default=None)
    """The error of every expression on this device, if any."""
    _activation: dict[str, Value] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if BadAttribute in map(type, self.attributes.values()):
            object.__setattr__(self, "fault", _first_fault(self.attributes))

    @property
    def activation(self) -> dict[str, Value]:
        """The value of the variable ``device``; computed on first use."""
        if self._activation is None:
            fields = {
                "driver": self.driver,
                "attributes": _by_domain(self.attributes, self.driver),
                "capacity": _by_domain(self.capacity, self.driver),
                "allowMultipleAllocations": self.allow_multiple_allocations,
            }
            activation = {"device": fields}
            object.__setattr__(self, "_activation", activation)
            return activation
        return self._activation

    @property
    def fields(self) -> dict[str, Value]:
        """The fields of ``device``."""
        fields: dict[str, Value] = self.activation["device"]
        return fields

    def require_sound(self) -> None:
        """Check that all attributes could be parsed.

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
    """The value of a ``DeviceAttribute`` from its one field that is set."""
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


def _first_fault(attributes: Mapping[str, AttributeValue | BadAttribute]) -> str:
    bad = {name: value for name, value in attributes.items() if isinstance(value, BadAttribute)}
    name = min(bad)
    return f"attribute {name}: {bad[name].reason}"


def _by_domain(named: Mapping[str, object], driver: str) -> DefaultMap:
    """Group names by domain; a name without one takes precedence over the same name in full."""
    domains = DefaultMap()
    for name, value in named.items():
        if isinstance(value, BadAttribute):
            continue
        domain, slash, identifier = name.partition("/")
        if slash:
            domains.setdefault(domain, {}).setdefault(identifier, value)
        else:
            domains.setdefault(driver, {})[name] = value
    return domains
