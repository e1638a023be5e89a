"""Names and values in selectors that no device of the cluster publishes, with the nearest.

A misspelt attribute, capacity, domain or text is valid CEL and matches no device, ever. What a
selector only tests (``has``) need not exist. Source: KEP-4381, CEL environment of
``resource.k8s.io``.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from msgspec import Struct, field

from kai_py.api.problems import closest_match
from kai_py.api.records.resource import Device, ResourceSlice
from kai_py.cel.expression import CompileError
from kai_py.cel.syntax import Call, Literal, Node, walk
from kai_py.dra.selectors.columns import HAS, columns_of, device_path, inline
from kai_py.dra.selectors.device import MAPS
from kai_py.dra.selectors.selector import compile_selector

MAX_TEXTS = 64
"""Different texts of an attribute; one with more (a uuid) identifies devices, not kinds of them."""
SELECTORS_KEPT = 1024
"""Selectors of which the names are kept: they are asked for in every cycle that a pod waits."""
ATTRIBUTES, CAPACITY = MAPS
DEVICE, DRIVER = "device", "driver"
FULL_PATH = len(("map", "domain", "name"))
NOUNS = {ATTRIBUTES: "attribute", CAPACITY: "capacity"}


class DeviceValue(Struct, frozen=True):
    """``device.<map>["<domain>"].<name>``; without a domain and a name, ``device.driver``."""

    map: str
    domain: str = ""
    name: str = ""

    def __str__(self) -> str:
        if not self.name:
            return self.map
        return f"{NOUNS[self.map]} {f'{self.domain}/' if self.domain else ''}{self.name}"


class UnpublishedName(Struct, frozen=True):
    """A value that no device has; ``nearest``: the one that was probably meant, if any."""

    value: DeviceValue
    nearest: DeviceValue | None

    @property
    def hint(self) -> str:
        """One sentence for people; "" where nothing is near."""
        if self.nearest is None:
            return ""
        return f"No device publishes {self.value}; did you mean {self.nearest}?"


class UnpublishedText(Struct, frozen=True):
    """A text with which a value is compared and that no device has; and the nearest."""

    value: DeviceValue
    text: str
    nearest: str

    @property
    def hint(self) -> str:
        """One sentence for people; "" where nothing is near."""
        if not self.nearest:
            return ""
        return f'No device has {self.value} "{self.text}"; did you mean "{self.nearest}"?'


Unpublished = UnpublishedName | UnpublishedText
Names = dict[str, dict[str, set[str]]]


class PublishedNames(Struct, frozen=True):
    """What devices publish: by map and domain the names, by value the texts."""

    names: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    texts: Mapping[DeviceValue, frozenset[str]] = field(default_factory=dict)

    def has(self, value: DeviceValue) -> bool:
        """Whether a device publishes the value."""
        return value.name in self.names.get(value.map, {}).get(value.domain, frozenset())

    def nearest(self, value: DeviceValue) -> DeviceValue | None:
        """What was probably meant: another name, the other map, another domain."""
        other = CAPACITY if value.map == ATTRIBUTES else ATTRIBUTES
        domains = sorted({*self.names.get(ATTRIBUTES, {}), *self.names.get(CAPACITY, {})})
        domain = value.domain if value.domain in domains else closest_match(value.domain, domains)
        for map_name in (value.map, other) if domain is not None else ():
            found = self._nearest_name(map_name, domain or "", value.name)
            if found:
                return DeviceValue(map_name, domain or "", found)
        return None

    def _nearest_name(self, map_name: str, domain: str, name: str) -> str:
        known = self.names.get(map_name, {}).get(domain, frozenset())
        return name if name in known else closest_match(name, sorted(known)) or ""


def published_names(slices: Iterable[ResourceSlice]) -> PublishedNames:
    """What the devices of ``slices`` publish; O(attributes of all devices)."""
    names: Names = {ATTRIBUTES: {}, CAPACITY: {}}
    texts: dict[DeviceValue, set[str]] = {DeviceValue(DRIVER): set()}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for each in slices:
        texts[DeviceValue(DRIVER)].add(each.spec.driver)
        for device in each.spec.devices:
            _add_names(names, seen, each.spec.driver, device)
            _add_texts(texts, each.spec.driver, device)
    frozen = {
        map_name: {domain: frozenset(found) for domain, found in by_domain.items()}
        for map_name, by_domain in names.items()
    }
    kinds = {key: frozenset(found) for key, found in texts.items() if len(found) <= MAX_TEXTS}
    return PublishedNames(frozen, kinds)


def _add_names(
    names: Names, seen: set[tuple[str, tuple[str, ...]]], driver: str, device: Device
) -> None:
    for map_name, published in ((ATTRIBUTES, device.attributes), (CAPACITY, device.capacity)):
        # Most devices of a driver publish the same names.
        key = f"{map_name} {driver}", tuple(published)
        if key in seen:
            continue
        seen.add(key)
        for full_name in published:
            domain, name = _qualified(full_name, driver)
            names[map_name].setdefault(domain, set()).add(name)


def _add_texts(texts: dict[DeviceValue, set[str]], driver: str, device: Device) -> None:
    for full_name, value in device.attributes.items():
        if value.string_value is not None:
            key = DeviceValue(ATTRIBUTES, *_qualified(full_name, driver))
            found = texts.setdefault(key, set())
            if len(found) <= MAX_TEXTS:
                found.add(value.string_value)


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def unpublished_reference(
    map_name: str, full_name: str, known: PublishedNames
) -> UnpublishedName | None:
    """What a constraint or a request for capacity names, if no device has it.

    ``full_name``: DOMAIN/NAME, or a name alone, which any driver may publish.
    """
    domain, _, name = full_name.rpartition("/")
    domains = (domain,) if domain else sorted(known.names.get(map_name, {}))
    values = [DeviceValue(map_name, each, name) for each in domains]
    if not values or any(map(known.has, values)):
        return None
    nearest = next(filter(None, map(known.nearest, values)), None)
    same_map = nearest if nearest is not None and nearest.map == map_name else None
    return UnpublishedName(DeviceValue(map_name, domain, name), same_map)


def unpublished(expression: str, known: PublishedNames) -> Iterator[Unpublished]:
    """What a selector reads, or compares an attribute with, and no device has."""
    if DEVICE not in expression:
        # Saves parsing it: it reads nothing of the device.
        return
    read, compared = _values_of(expression)
    for value in read:
        if not known.has(value):
            yield UnpublishedName(value, known.nearest(value))
    for value, text in compared:
        texts = known.texts.get(value)
        if texts is not None and text not in texts:
            yield UnpublishedText(value, text, closest_match(text, sorted(texts)) or "")


@lru_cache(maxsize=SELECTORS_KEPT)
def _values_of(
    expression: str,
) -> tuple[tuple[DeviceValue, ...], tuple[tuple[DeviceValue, str], ...]]:
    """The values that a selector reads, and those that it compares with a text."""
    compiled = compile_selector(expression)
    if isinstance(compiled, CompileError):
        return (), ()
    root = inline(compiled.expression.checked.root)
    columns = (each for each in columns_of(root) if len(each) == FULL_PATH and each[0] != HAS)
    return tuple(DeviceValue(*each) for each in columns), tuple(dict.fromkeys(_compared(root)))


def _compared(root: Node) -> Iterator[tuple[DeviceValue, str]]:
    """Attributes that are compared with a text, each with the text."""
    for node in walk(root):
        match node:
            case Call("_==_", None, (left, Literal(str() as text))):
                path = device_path(left)
            case Call("_==_", None, (Literal(str() as text), right)):
                path = device_path(right)
            case _:
                continue
        if path == (DRIVER,) or (path and len(path) == FULL_PATH and path[0] == ATTRIBUTES):
            yield DeviceValue(*path), text
