"""Correction of selectors, one correction at a time until none is left.

Each step parses the expression, applies the first correction of the innermost term that needs one
and parses again, so corrections build on one another: a memory "attribute" becomes a capacity, then
its comparison one of quantities. Each step leaves a term that no rule changes; their number is
bounded.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kai_py.lint.cel import amounts, references, words
from kai_py.lint.cel.references import Correction, Place
from kai_py.lint.cel.terms import Term, parse_terms, walk_terms

_RULES: tuple[Callable[[Place], Iterator[Correction]], ...] = (
    words.spell_operators,
    amounts.quote_amounts,
    references.qualify,
    references.qualify_device_field,
    references.qualify_membership,
    references.drop_type_suffix,
    references.correct_domain,
    references.correct_map,
    amounts.quantity_of_number,
    amounts.compare_capacity,
    amounts.capacity_method,
    amounts.capacity_as_number,
    amounts.compare_version,
    words.product_name,
    words.known_word,
)
_MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Corrected:
    """A selector in its valid form, and the reason for each change."""

    source: str
    reasons: tuple[str, ...]


def correct(source: str, driver: str) -> Corrected:
    """Correct a selector for a driver's devices; unreadable text is returned unchanged."""
    reasons: list[str] = []
    for _ in range(_MAX_STEPS):
        root = parse_terms(source)
        correction = _first(source, root, driver) if root else None
        if correction is None:
            break
        source = source[: correction.start] + correction.text + source[correction.end :]
        reasons.append(correction.reason)
    return Corrected(source, tuple(dict.fromkeys(reasons)))


def guarded_driver(source: str) -> str | None:
    """The driver that a selector requires by ``device.driver == "..."`` in a top-level conjunct."""
    root = parse_terms(source)
    for term in _conjuncts(root) if root else ():
        if term.kind != "binary" or term.value not in ("==", "="):
            continue
        for side, other in (term.parts, term.parts[::-1]):
            text = references.literal_text(other)
            if text and source[side.start : side.end] == "device.driver":
                return text
    return None


def domains(source: str) -> tuple[str, ...]:
    """The domains whose attributes or capacities a selector uses, in order."""
    root = parse_terms(source)
    found = (references.reference(term) for term, _ in walk_terms(root)) if root else ()
    return tuple(dict.fromkeys(reference.domain for reference in found if reference))


def _first(source: str, root: Term, driver: str) -> Correction | None:
    for term, parent in walk_terms(root):
        context = Place(source, term, parent, driver)
        for rule in _RULES:
            correction = next(rule(context), None)
            if correction is not None:
                return correction
    return None


def _conjuncts(term: Term) -> Iterator[Term]:
    if term.kind == "group":
        yield from _conjuncts(term.parts[0])
    elif term.kind == "binary" and term.value in ("&&", "and"):
        for part in term.parts:
            yield from _conjuncts(part)
    else:
        yield term
