"""Corrections of comparisons of capacities and versions, which need their own functions.

A capacity is a Quantity and a version a Semver: ``<`` and ``>`` do not apply to them, arithmetic
neither. ``x >= n`` becomes ``x.compareTo(quantity("n")) >= 0``, which is exact.

Source: Kubernetes' CEL libraries for quantities and semantic versions.
"""

import re
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction

from kai_py.api.numbers import parse_int64
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.lint.cel.published import published
from kai_py.lint.cel.references import Correction, Place, literal_text, quote_of, reference
from kai_py.lint.cel.terms import Term, parse_terms, walk_terms

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_ARITHMETIC = ("+", "-", "*", "/", "%")
_METHODS = ("isGreaterThan", "isLessThan", "compareTo", "add", "sub")
_METHOD_ALIASES = {
    "greaterthan": ("isGreaterThan", ""),
    "lessthan": ("isLessThan", ""),
    "greaterthanorequal": ("compareTo", " >= 0"),
    "greaterthanorequalto": ("compareTo", " >= 0"),
    "greaterorequal": ("compareTo", " >= 0"),
    "atleast": ("compareTo", " >= 0"),
    "lessthanorequal": ("compareTo", " <= 0"),
    "lessthanorequalto": ("compareTo", " <= 0"),
    "lessorequal": ("compareTo", " <= 0"),
    "atmost": ("compareTo", " <= 0"),
    "equal": ("compareTo", " == 0"),
    "equals": ("compareTo", " == 0"),
    "equalto": ("compareTo", " == 0"),
}
MAX_NUMBER = sys.float_info.max
_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20))
_VERSION = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")


def quote_amounts(place: Place) -> Iterator[Correction]:
    """Turn a bare ``40Gi`` into a quantity."""
    if place.term.kind != "amount":
        return
    quote = quote_of(place.source)
    text = f"{quote}{place.term.value}{quote}"
    in_quantity = place.parent is not None and place.parent.kind == "call"
    corrected = text if in_quantity else f"quantity({text})"
    yield from place.replaced(
        corrected, f"{place.term.value} is not a CEL literal: write {corrected}"
    )


def quantity_of_number(place: Place) -> Iterator[Correction]:
    """Quote the argument of ``quantity(...)``: it takes no number."""
    term = place.term
    if term.kind != "call" or term.value != "quantity" or len(term.parts) != 1:
        return
    number = constant(term.parts[0])
    if number is not None:
        corrected = write_quantity(number, place.source)
        yield from place.replaced(corrected, f"quantity takes a string: write {corrected}")


def compare_capacity(place: Place) -> Iterator[Correction]:
    """Compare a capacity by ``compareTo``."""
    sides = _compared(place, is_capacity)
    if sides is None:
        return
    capacity, operator, other = sides
    value = _quantity_source(place, other)
    equal = operator in ("==", "!=")
    if value is None or (equal and value == place.text(other)):
        return
    target = place.text(capacity)
    corrected = (
        f"{target} {operator} {value}" if equal else f"{target}.compareTo({value}) {operator} 0"
    )
    yield from place.replaced(
        corrected,
        f"a capacity is a quantity and cannot be compared by {operator} here: write {corrected}",
    )


def capacity_method(place: Place) -> Iterator[Correction]:
    """Correct the name of a capacity's method, and turn its argument into a quantity."""
    term = place.term
    if term.kind != "method" or len(term.parts) != 2 or not is_capacity(term.parts[0]):
        return
    name, suffix = term.value, ""
    if name not in _METHODS:
        key = re.sub(r"^is", "", name).lower()
        if key not in _METHOD_ALIASES:
            return
        name, suffix = _METHOD_ALIASES[key]
    value = _quantity_source(place, term.parts[1])
    if value is None or (name == term.value and value == place.text(term.parts[1])):
        return
    corrected = f"{place.text(term.parts[0])}.{name}({value}){suffix}"
    negated = place.parent is not None and place.parent.kind in ("unary", "binary") and suffix
    corrected = f"({corrected})" if negated else corrected
    yield from place.replaced(
        corrected, f"a capacity is compared with a quantity: write {corrected}"
    )


def capacity_as_number(place: Place) -> Iterator[Correction]:
    """Add ``asInteger()`` where a capacity is used in arithmetic or in ``int(...)``."""
    term, parent = place.term, place.parent
    if term.kind == "group" or not is_capacity(term) or parent is None:
        return
    number = f"{place.text(term)}.asInteger()"
    if parent.kind == "call" and parent.value in ("int", "double", "uint"):
        corrected = number if parent.value == "int" else f"{parent.value}({number})"
        yield Correction(
            parent.start,
            parent.end,
            corrected,
            f"{parent.value} takes no quantity: write {corrected}",
        )
    elif parent.kind == "binary" and parent.value in _ARITHMETIC:
        yield from place.replaced(number, f"a quantity has no {parent.value}: write {number}")


def compare_version(place: Place) -> Iterator[Correction]:
    """Compare a version attribute by ``compareTo`` with a semantic version."""
    sides = _compared(place, is_version)
    if sides is None:
        return
    version, operator, other = sides
    match = _VERSION.fullmatch(
        literal_text(other) or (other.value if other.kind == "number" else "")
    )
    if match is None:
        return
    quote = quote_of(place.source)
    text = ".".join(str(int(part or 0)) for part in match.groups())
    corrected = f"{place.text(version)}.compareTo(semver({quote}{text}{quote})) {operator} 0"
    yield from place.replaced(
        corrected, f"a version is compared with a semantic version: write {corrected}"
    )


def small_memory(source: str) -> str | None:
    """The text of a memory bound below one mebibyte, where bytes were probably not meant."""
    root = parse_terms(source)
    for term, _ in walk_terms(root) if root else ():
        found = reference(term.parts[0]) if term.kind == "method" else None
        if found is None or found.map != "capacity" or found.name != "memory":
            continue
        bound = term.parts[-1]
        text = literal_text(bound.parts[0]) if bound.value == "quantity" and bound.parts else None
        number = parse_int64(text) if text and text[0].isdigit() else None
        if number is not None and 0 < number < 1 << 20:
            return text
    return None


def is_capacity(term: Term) -> bool:
    """Whether a term is a capacity."""
    found = reference(term)
    return found is not None and found.map == "capacity"


def is_version(term: Term) -> bool:
    """Whether a term is an attribute known to hold a version."""
    found = reference(term)
    return (
        found is not None
        and found.map == "attributes"
        and found.name in published(found.domain).versions
    )


def constant(term: Term) -> Fraction | None:
    """The value of a term made of numbers only, else None."""
    if term.kind == "number":
        return _literal(term.value.rstrip("uU"))
    if term.kind == "group":
        return constant(term.parts[0])
    if term.kind != "binary" or term.value not in ("+", "-", "*", "/"):
        return None
    left, right = (constant(part) for part in term.parts)
    if left is None or right is None:
        return None
    return _calculated(left, term.value, right, whole=_is_whole(term))


def _literal(text: str) -> Fraction | None:
    if text.startswith("0x"):
        return _bounded(Fraction(int(text, 16)))
    # First as a float: an exponent of a million would be multiplied out.
    nearest = float(text)
    return (Fraction(text) if nearest else Fraction(0)) if abs(nearest) <= MAX_NUMBER else None


def _bounded(number: Fraction) -> Fraction | None:
    """The number, None where no double holds it: then an API server takes it for no literal."""
    return number if abs(number) <= MAX_NUMBER else None


def write_quantity(number: Fraction, source: str) -> str:
    """Write a number as a quantity, by the largest binary unit that divides it."""
    quote = quote_of(source)
    for suffix, unit in _UNITS:
        if number and number % unit == 0:
            return f"quantity({quote}{number // unit}{suffix}{quote})"
    text = str(number.numerator) if number.denominator == 1 else str(float(number))
    return f"quantity({quote}{text}{quote})"


def _compared(place: Place, wanted: Callable[[Term], bool]) -> tuple[Term, str, Term] | None:
    """A comparison with the side that satisfies ``wanted`` on the left."""
    term = place.term
    if term.kind != "binary" or term.value not in _FLIPPED:
        return None
    left, right = term.parts
    if wanted(left):
        return left, term.value, right
    return (right, _FLIPPED[term.value], left) if wanted(right) else None


def _quantity_source(place: Place, term: Term) -> str | None:
    """The source of a quantity for a number, a text or a quantity."""
    number = constant(term)
    if number is not None:
        return write_quantity(number, place.source)
    text = literal_text(term)
    if text is not None:
        try:
            parse_quantity(text)
        except QuantityError:
            return None
        return f"quantity({place.text(term)})"
    is_quantity = is_capacity(term) or (term.kind == "call" and term.value == "quantity")
    return place.text(term) if is_quantity else None


def _is_whole(term: Term) -> bool:
    if term.kind == "number":
        return not re.search(r"[.eE]", term.value) or term.value.startswith("0x")
    return all(_is_whole(part) for part in term.parts)


def _calculated(left: Fraction, operator: str, right: Fraction, *, whole: bool) -> Fraction | None:
    if operator == "/":
        if right == 0:
            return None
        quotient = left / right
        # CEL divides integers by truncation towards zero, as int() does.
        return _bounded(Fraction(int(quotient)) if whole else quotient)
    return _bounded({"+": left + right, "-": left - right, "*": left * right}[operator])
