"""Counts and sizes of memory in documents: how they are parsed, and their defaults.

Sizes are as frameworks on the JVM write them: ``4g``, ``1024 mb``, ``2147483648b``. Units are
powers of 1024 and have no case; what a number without a unit counts is the framework's choice.
Anything else is a quantity of Kubernetes, in any case and with or without a ``b``, as Flink's
operator reads it: ``2Gi``, ``1.5GB``.

Source: Spark's JavaUtils.byteStringAs; Flink's MemorySize and its operator's ResourceConfigUtils.
"""

import re
from collections.abc import Mapping
from typing import Any

from kai_py.api import numbers
from kai_py.api.numbers import MAX_COUNT, shortened
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.unstructured import Unstructured, values_at
from kai_py.grouping.gang_template import InvalidWorkloadError, count_annotation
from kai_py.grouping.rule import Count, SummedField


def parse_count(value: object, location: str, *, least: int = 0) -> int:
    """Parse a count of pods or groups; raises InvalidWorkloadError if ``value`` is none."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        wanted = f"must be a whole number of at least {least}"
        raise InvalidWorkloadError(f"{location} {wanted}, is {shortened(repr(value))}")
    if isinstance(value, int):
        return _in_range(value, location, least)
    try:
        return numbers.parse_count(value, least=least, quote=_as_written)
    except numbers.NumberError as error:
        raise InvalidWorkloadError(f"{location} {error}") from None


def _in_range(count: int, location: str, least: int) -> int:
    if count < least:
        raise InvalidWorkloadError(
            f"{location} must be a whole number of at least {least}, is {max(count, -MAX_COUNT)}"
        )
    if count > MAX_COUNT:
        raise InvalidWorkloadError(f"{location} must be at most {MAX_COUNT}, is larger")
    return count


def _as_written(text: str) -> str:
    return shortened(repr(text))


def count_at(value: Any, path: str, default: int, *, location: str = "", least: int = 0) -> int:
    """The count at ``path`` below ``value``; ``location`` is the path of ``value`` itself.

    Raises InvalidWorkloadError.
    """
    found = next(values_at(value, path), None)
    if found is None:
        return default
    return parse_count(found, f"{location}.{path}" if location else path, least=least)


def annotated_count(meta: ObjectMeta, *keys: str, least: int = 0) -> int | None:
    """The count under the first of these labels and annotations; raises InvalidWorkloadError."""
    number, problem = count_annotation(meta, *keys, least=least)
    if problem:
        raise InvalidWorkloadError(problem)
    return number


def entries(value: Any, path: str) -> tuple[Mapping[str, Any], ...]:
    """The mappings at ``path``."""
    return tuple(each for each in values_at(value, path) if isinstance(each, dict))


def count_from_rule(count: Count, owner: Unstructured) -> int:
    """The value of ``count`` for ``owner``."""
    annotated = annotated_count(owner.metadata, *count.annotations)
    if annotated is not None:
        return annotated
    for path in count.first:
        found = owner.first_at(path)
        if found is not None:
            return parse_count(found, path)
    sums = [_sum_from_rule(each, owner) for each in count.sum]
    known = [each for each in sums if each is not None]
    if known:
        return sum(known)
    return count.default


def _sum_from_rule(each: SummedField, owner: Unstructured) -> int | None:
    items = entries(owner.content, each.each)
    if not items:
        return None
    return sum(count_at(item, each.field, each.default, location=each.each) for item in items)


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
