"""Corrections of references to attributes and capacities.

A driver's names live in its domain: ``device.attributes["gpu.nvidia.com"].productName``,
``device.capacity["gpu.nvidia.com"].memory``. A name without a domain, in the wrong domain or in the
wrong of the two maps is not an error when the manifest is applied, but never found when pods are
scheduled.

Source: KEP-4381, CEL environment of ``resource.k8s.io``.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from kai_py.cel.literals import read_string
from kai_py.cel.syntax import ExpressionError
from kai_py.lint.cel.published import MISTAKEN_DOMAINS, published
from kai_py.lint.cel.terms import Term

MAPS = ("attributes", "capacity")
DEVICE_FIELDS = ("driver", *MAPS, "allowMultipleAllocations")
_TYPE_SUFFIXES = ("string", "int", "bool", "version", "value", "stringValue", "intValue")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


class Correction(Struct, frozen=True):
    """Replacement of ``source[start:end]`` by ``text``, because of ``reason``."""

    start: int
    end: int
    text: str
    reason: str


class Place(Struct, frozen=True):
    """A term and the context that its correction depends on."""

    source: str
    term: Term
    parent: Term | None
    driver: str
    """Driver of the devices, where the selector does not name one."""

    def text(self, term: Term) -> str:
        """The source of a term."""
        return self.source[term.start : term.end]

    def replaced(self, text: str, reason: str) -> Iterator[Correction]:
        """A correction of the whole term."""
        yield Correction(self.term.start, self.term.end, text, reason)


class Reference(Struct, frozen=True):
    """``device.<map>["<domain>"].<name>``."""

    map: str
    domain: str
    name: str


def reference(term: Term) -> Reference | None:
    """The attribute or capacity that a term refers to, if the reference is complete."""
    if term.kind == "group":
        return reference(term.parts[0])
    name = _key(term)
    domain_term = term.parts[0] if term.parts and name else None
    domain = _key(domain_term)
    if domain_term is None or domain is None or name is None or domain_term.kind != "index":
        return None
    map_name = _device_field(domain_term.parts[0])
    return Reference(map_name, domain, name) if map_name in MAPS else None


def write_reference(map_name: str, domain: str, name: str, source: str) -> str:
    """The source of a reference, with the kind of quotes that ``source`` uses."""
    quote = quote_of(source)
    field = f".{name}" if _IDENTIFIER.fullmatch(name) else f"[{quote}{name}{quote}]"
    return f"device.{map_name}[{quote}{domain}{quote}]{field}"


def quote_of(source: str) -> str:
    """The quote that the source uses for its texts."""
    return next((character for character in source if character in "\"'"), '"')


def literal_text(term: Term | None) -> str | None:
    """The value of a text literal, None for any other term."""
    if term is None or term.kind != "text" or term.value[0] not in "\"'rR":
        return None
    try:
        return read_string(term.value, term.start)
    except ExpressionError:
        return None


def qualify(place: Place) -> Iterator[Correction]:
    """Add the driver's domain to a name without one."""
    term = place.term
    map_name = _device_field(term.parts[0]) if term.kind in ("index", "select") else None
    name = _key(term)
    if name is None or map_name not in MAPS or _is_domain(place, name):
        return
    domain, _, identifier = name.rpartition("/")
    target = domain or place.driver
    corrected = write_reference(
        _map_of(map_name, target, identifier), target, identifier, place.source
    )
    yield from place.replaced(
        corrected, f"{place.text(term)} has no driver domain and is never found: write {corrected}"
    )


def qualify_device_field(place: Place) -> Iterator[Correction]:
    """Replace ``device.memory`` by the attribute or capacity it means."""
    name = _device_field(place.term)
    if name is None or name in DEVICE_FIELDS or place.term.kind != "select":
        return
    map_name = _map_of("attributes", place.driver, name)
    corrected = write_reference(map_name, place.driver, name, place.source)
    yield from place.replaced(corrected, f"device has no field {name}: write {corrected}")


def qualify_membership(place: Place) -> Iterator[Correction]:
    """Look a name up in its domain: ``"memory" in device.capacity`` tests for a domain."""
    term = place.term
    if term.kind != "binary" or term.value != "in":
        return
    name, map_name = literal_text(term.parts[0]), _device_field(term.parts[1])
    if name is None or map_name not in MAPS or "." in name:
        return
    quote = quote_of(place.source)
    map_name = _map_of(map_name, place.driver, name)
    corrected = f"{place.text(term.parts[0])} in device.{map_name}[{quote}{place.driver}{quote}]"
    yield from place.replaced(
        corrected, f"device.{map_name} is keyed by driver domain, not by name: write {corrected}"
    )


def correct_domain(place: Place) -> Iterator[Correction]:
    """Replace the name of a class or resource used as a driver's domain."""
    found = reference(place.term) if place.term.kind != "group" else None
    if found is None or found.domain not in MISTAKEN_DOMAINS:
        return
    domain = MISTAKEN_DOMAINS[found.domain]
    corrected = write_reference(found.map, domain, found.name, place.source)
    yield from place.replaced(
        corrected, f'"{found.domain}" is not the driver\'s domain, "{domain}" is: write {corrected}'
    )


def correct_map(place: Place) -> Iterator[Correction]:
    """Move a name between attributes and capacity, by what the driver publishes."""
    found = reference(place.term) if place.term.kind != "group" else None
    if found is None:
        return
    if found.map == "attributes" and found.name == "allowMultipleAllocations":
        corrected = "device.allowMultipleAllocations"
    else:
        map_name = _map_of(found.map, found.domain, found.name)
        if map_name == found.map:
            return
        corrected = write_reference(map_name, found.domain, found.name, place.source)
    noun = "a capacity" if found.map == "attributes" else "an attribute"
    if corrected == "device.allowMultipleAllocations":
        noun = "a field of the device"
    yield from place.replaced(
        corrected, f"{found.name} is {noun}, so device.{found.map} never has it: write {corrected}"
    )


def drop_type_suffix(place: Place) -> Iterator[Correction]:
    """Drop ``.string`` and the like: a value is its own type in a selector."""
    term = place.term
    if term.kind == "select" and term.value in _TYPE_SUFFIXES and reference(term.parts[0]):
        corrected = place.text(term.parts[0])
        yield from place.replaced(
            corrected, f".{term.value} is how slices write values; in a selector write {corrected}"
        )


def _key(term: Term | None) -> str | None:
    """The key in ``x.key`` or ``x["key"]``."""
    if term is None:
        return None
    if term.kind == "index":
        return literal_text(term.parts[1])
    return term.value if term.kind == "select" else None


def _device_field(term: Term) -> str | None:
    """The field in ``device.field``."""
    if term.kind != "select" or term.parts[0].kind != "name" or term.parts[0].value != "device":
        return None
    return term.value


def _is_domain(place: Place, key: str) -> bool:
    """Whether the key of a map is meant as a domain, by its form and what follows."""
    if "/" in key and key not in MISTAKEN_DOMAINS:
        return False
    if "." in key or key in MISTAKEN_DOMAINS:
        return True
    parent = place.parent
    inside = parent is not None and parent.parts[0] is place.term
    if parent is None or parent.kind not in ("select", "index") or not inside:
        return False
    return parent.value not in _TYPE_SUFFIXES


def _map_of(map_name: str, driver: str, name: str) -> str:
    known = published(driver)
    if name in known.capacities and name not in known.attributes:
        return "capacity"
    if name in known.attributes and name not in known.capacities:
        return "attributes"
    return map_name
