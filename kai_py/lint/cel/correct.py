"""Correction of selectors, one correction at a time until none is left.

Each step parses the expression, applies the first correction of the innermost term that needs one
and parses again, so corrections build on one another: a memory "attribute" becomes a capacity, then
its comparison one of quantities. Each step leaves a term that no rule changes; their number is
bounded.

Corrected here are operators, and texts that drivers publish: products, types, architectures. NVIDIA
publishes ``NVIDIA H100 80GB HBM3``, so ``startsWith("H100")`` matches nothing. The text is replaced
by a match of the whole word: ``contains("B200")`` would also match a GB200.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from kai_py.lint.cel import amounts, references
from kai_py.lint.cel.published import published
from kai_py.lint.cel.references import Correction, Place, literal_text, quote_of, reference
from kai_py.lint.cel.terms import Term, parse_terms, walk_terms

_OPERATORS = {"and": "&&", "or": "||", "=": "=="}


def spell_operators(place: Place) -> Iterator[Correction]:
    """Write ``and``, ``or``, ``not`` and ``=`` as CEL does."""
    term = place.term
    if term.kind == "binary" and term.value in _OPERATORS:
        left, right = (place.text(part) for part in term.parts)
        operator = _OPERATORS[term.value]
        yield from place.replaced(
            f"{left} {operator} {right}", f"CEL writes {operator} for {term.value}"
        )
    if term.kind == "unary" and term.value == "not":
        yield from place.replaced(f"!({place.text(term.parts[0])})", "CEL writes ! for not")


def product_name(place: Place) -> Iterator[Correction]:
    """Match a product as a word of the name, where the name's beginning was left out."""
    found = _product_test(place)
    if found is None:
        return
    target, pattern, negated = found
    quote = quote_of(place.source)
    corrected = f"{'!' * negated}{place.text(target)}.matches(r{quote}{pattern}{quote})"
    first = _prefixes(target)[0]
    yield from place.replaced(
        corrected,
        f"product names begin with {first!r}, so this never matches: write {corrected}",
    )


def known_word(place: Place) -> Iterator[Correction]:
    """Spell a type or an architecture as it is published."""
    term = place.term
    if term.kind != "binary":
        return
    for side, other in (term.parts, term.parts[::-1]):
        found, text = reference(side), literal_text(other)
        if found is None or text is None or found.map != "attributes":
            continue
        words = dict(published(found.domain).words).get(found.name, ())
        published_word = next((word for word in words if word.lower() == text.lower()), text)
        if published_word != text:
            quote = quote_of(place.source)
            yield Correction(
                other.start,
                other.end,
                f"{quote}{published_word}{quote}",
                f"{found.name} is published as {published_word!r}, not {text!r}",
            )


def _product_test(place: Place) -> tuple[Term, str, bool] | None:
    """The term of the product name, the pattern to match and whether the test is negated."""
    term = place.term
    if term.kind == "method" and len(term.parts) == 2:
        text = literal_text(term.parts[1])
        pattern = None if text is None else _method_pattern(term, text)
        return None if pattern is None else (term.parts[0], pattern, False)
    if term.kind == "binary" and term.value == "in":
        return _one_of(*term.parts)
    if term.kind == "binary" and term.value in ("==", "!="):
        found = _equal(*term.parts) or _equal(*term.parts[::-1])
        return found and (*found, term.value == "!=")
    return None


def _one_of(target: Term, names: Term) -> tuple[Term, str, bool] | None:
    texts = [literal_text(part) for part in names.parts] if names.kind == "list" else []
    words = [_word(text) for text in texts if text is not None and _lacks_prefix(target, text)]
    if not words or len(words) < len(texts):
        return None
    return target, rf"\b(?:{'|'.join(words)})\b", False


def _equal(target: Term, other: Term) -> tuple[Term, str] | None:
    text = literal_text(other)
    if text is None:
        return None
    if _lacks_prefix(target, text):
        return target, rf"\b{_word(text)}\b"
    return (target, f"^{_word(text)}$") if _has_dashes(target, text) else None


def _method_pattern(term: Term, text: str) -> str | None:
    target = term.parts[0]
    if term.value == "startsWith":
        if _lacks_prefix(target, text):
            return rf"\b{_word(text)}"
        return f"^{_word(text)}" if _has_dashes(target, text) else None
    if term.value == "contains" and _has_dashes(target, text):
        return _word(text)
    if term.value == "matches" and text.startswith("^") and _lacks_prefix(target, text[1:]):
        return rf"\b{text[1:]}"
    return None


def _prefixes(target: Term) -> tuple[str, ...]:
    found = reference(target)
    if found is None or found.name != "productName" or found.map != "attributes":
        return ()
    return published(found.domain).product_prefixes


def _lacks_prefix(target: Term, text: str) -> bool:
    """Whether a product name can never begin with this text."""
    prefixes = _prefixes(target)
    plain = re.match(r"[A-Za-z0-9]", text) is not None
    known = any(text.startswith(prefix.strip()) for prefix in prefixes)
    return bool(prefixes) and plain and not known and not any(p.startswith(text) for p in prefixes)


def _has_dashes(target: Term, text: str) -> bool:
    """Whether the text is the node label's spelling, with dashes for spaces."""
    return any(text.startswith(prefix.strip() + "-") for prefix in _prefixes(target))


def _word(text: str) -> str:
    """A pattern for a text: a dash may be a space, and lower case may be upper case."""
    escaped = re.sub(r"[.+*?()\[\]{}^$|\\]", lambda match: "\\" + match.group(), text)
    pattern = escaped.replace("-", "[ -]")
    return f"(?i:{pattern})" if text == text.lower() and text != text.upper() else pattern


_RULES: tuple[Callable[[Place], Iterator[Correction]], ...] = (
    spell_operators,
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
    product_name,
    known_word,
)
_MAX_STEPS = 200


class Corrected(Struct, frozen=True):
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
