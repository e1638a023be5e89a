"""Fuzzed objects: ordinary ones with some values replaced by absurd values of the same type."""

import copy
import random
from collections.abc import Iterator

from tests.support.cluster.api import Document

WORDS = (
    "",
    "-",
    "0",
    "-1",
    "9" * 5000,
    str(2**31),
    str(2**63 - 1),
    str(2**63),
    "1e30",
    "100E",
    "1e400",
    "-1e400",
    "9" * 4000 + "e400",
    "1e1000000000",
    "0.0000000001",
    "NaN",
    "inf",
    "9" * 400 + "h",
    "-1h",
    "2562047h47m16s",
    "٣",
    "²",
    "ﬁ\u202eabc",
    "\x1b]0;pwned\x07\n",
    "💥" * 40,
    "a" * 262_144,
    "../../etc/passwd",
    "%s%n{}{0.__class__}",
    "null",
    "[]",
    "{}",
    '[{"name": null}]',
    '[{"name": "a", "minMember": -99999999999999999999}]',
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00",
    "metadata.name",
    "true",
)
TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "Odd", "")
QUANTITIES = (
    "0",
    "-1",
    "1n",
    "0.5",
    "9223372036854775807",
    "1e19",
    "1e30",
    "100E",
    "9223372036854775807Ei",
    "-9223372036854775808",
    "18446744073709551616",
    "1.5Gi",
    "1e308",
    "1e400",
    "-1e400",
    "9" * 4000 + "e400",
    "1e1000000000",
    "1e-1000000000",
    "9" * 4000,
)
NUMBERS = (0, -1, 1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 1_000_000)
NAMES = frozenset({"name", "namespace", "uid", "resourceVersion", "kind", "apiVersion"})
IDENTITY = frozenset({"apiVersion", "kind", "metadata", "resourceVersion", "creationTimestamp"})
RELATED = ("pending", "job", "claim", "data", "n0", "fuzzed", "tenant", "kai-group", "a", "above")

Path = tuple[str | int, ...]


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Every place in a document that may be made absurd."""
    if isinstance(value, dict):
        for key, below in value.items():
            if path == () and key in IDENTITY - {"metadata"}:
                continue
            if path == ("metadata",) and key in NAMES | IDENTITY:
                continue
            yield (*path, key)
            yield from paths(below, (*path, key))
    elif isinstance(value, list):
        for position, below in enumerate(value):
            yield (*path, position)
            yield from paths(below, (*path, position))


def absurd(document: Document, source: random.Random) -> Document:
    """A copy of ``document`` with one to four places made absurd."""
    fuzzed = copy.deepcopy(document)
    for _ in range(source.randint(1, 4)):
        places = [path for path in paths(fuzzed) if path != ("metadata",)]
        if not places:
            break
        _replace(fuzzed, source.choice(places), source)
    return fuzzed


def _replace(document: Document, path: Path, source: random.Random) -> None:
    holder: object = document
    for step in path[:-1]:
        holder = holder[step]  # type: ignore[index]
    value, key = holder[path[-1]], path[-1]  # type: ignore[index]
    roll = source.random()
    if value is None:
        return
    if roll < 0.08 and isinstance(holder, dict):
        del holder[key]
    elif roll < 0.12 and isinstance(value, dict | list):
        holder[key] = None  # type: ignore[index]
    else:
        holder[key] = _absurd_value(value, str(key), source)  # type: ignore[index]


def _absurd_value(value: object, key: str, source: random.Random) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return source.choice(NUMBERS)
    if isinstance(value, dict):
        return _absurd_mapping(value, source)
    if isinstance(value, list):
        return source.choice(([], value * 2, value * 40, value[::-1]))
    if key == "operator":
        return source.choice(OPERATORS)
    if _is_time(value):
        return source.choice(TIMES)
    if _is_quantity(key, value) and source.random() < 0.7:
        return source.choice(QUANTITIES)
    return source.choice(RELATED if source.random() < 0.25 else WORDS)


def _absurd_mapping(value: dict, source: random.Random) -> dict:
    roll = source.random()
    if roll < 0.4 or not value:
        return {}
    if roll < 0.7 and all(isinstance(each, str) for each in value.values()):
        more = {f"key-{number}/x": f"v{number}" for number in range(source.choice((1, 50, 2000)))}
        return value | more
    return {key: each for key, each in value.items() if source.random() < 0.5}


def _is_time(value: object) -> bool:
    return isinstance(value, str) and len(value) == 20 and value.endswith("Z")


def _is_quantity(key: str, value: object) -> bool:
    known = ("cpu", "memory", "storage", "nvidia.com/gpu", "value", "capacity", "deserved", "max")
    return key in known or (isinstance(value, str) and value[:1].isdecimal())
