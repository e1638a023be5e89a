"""Numbers in documents: what is there, what is meant without it, and what makes no sense."""

from collections.abc import Mapping
from typing import Any

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.document import Document, values_at
from kai_py.grouping.blueprint import Unusable
from kai_py.grouping.marks import whole_number
from kai_py.grouping.rule import Count, Sum


def whole(value: object, where: str) -> int:
    """A count; raises Unusable if it is none."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unusable(f"{where} must be a whole number of at least 0, is {value!r}")
    return value


def count_at(value: Any, path: str, default: int, *, where: str = "") -> int:
    """The count at ``path`` below ``value``; ``where`` is the path of ``value`` itself."""
    found = next(values_at(value, path), None)
    return default if found is None else whole(found, f"{where}.{path}" if where else path)


def marked_count(meta: ObjectMeta, *keys: str) -> int | None:
    """The count under the first of these labels and annotations; raises Unusable if it is none."""
    number, problem = whole_number(meta, *keys)
    if problem:
        raise Unusable(problem)
    return number


def entries(value: Any, path: str) -> tuple[Mapping[str, Any], ...]:
    """The mappings at ``path``."""
    return tuple(each for each in values_at(value, path) if isinstance(each, dict))


def counted(count: Count, owner: Document, default: int | None = None) -> int:
    """What ``count`` gives for ``owner``."""
    marked = marked_count(owner.metadata, *count.annotations)
    if marked is not None:
        return marked
    for path in count.first:
        found = owner.first_at(path)
        if found is not None:
            return whole(found, path)
    sums = [_summed(each, owner) for each in count.sum]
    known = [each for each in sums if each is not None]
    if known:
        return sum(known)
    return count.default if default is None else default


def _summed(each: Sum, owner: Document) -> int | None:
    places = entries(owner.content, each.each)
    if not places:
        return None
    return sum(count_at(place, each.field, each.default, where=each.each) for place in places)
