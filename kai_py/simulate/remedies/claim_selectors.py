"""Remedies that correct selectors of claims: names and texts that no device publishes.

The nearest that some device publishes takes the place of each; what is left, such as an amount
compared as a number, is corrected as ``kai-py lint`` does.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kai_py.dra.published_names import (
    ATTRIBUTES,
    CAPACITY,
    DRIVER,
    DeviceValue,
    PublishedNames,
    Unpublished,
    UnpublishedName,
    published_names,
    unpublished,
    unpublished_reference,
)
from kai_py.lint.cel.correct import correct
from kai_py.lint.cel.references import (
    DEVICE_FIELDS,
    literal_text,
    quote_of,
    reference,
    write_reference,
)
from kai_py.lint.cel.terms import Term, parse_terms, walk_terms
from kai_py.observe.suggestion import Suggestion
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.capacity import (
    claim_objects,
    claim_requests,
    edit_claim,
    replace_selector,
    selectors_of,
)
from kai_py.simulate.remedies.search import RemedySearch

CONSTRAINED = ("matchAttribute", "distinctAttribute")


def correct_selectors(search: RemedySearch) -> Iterator[Suggestion]:
    """Correct all selectors of one claim or template, the first that is enough."""
    published = published_names(search.snapshot.devices.slices.values())
    for document in claim_objects(search):
        text, edits = _corrections(document, published)
        if edits:
            yield from edit_claim(search, f"{text} in", document, partial(_apply, edits))


def correct_device_names(search: RemedySearch) -> Iterator[Suggestion]:
    """Correct attributes of constraints and capacities of requests, in one claim or template."""
    published = published_names(search.snapshot.devices.slices.values())
    for document in claim_objects(search):
        found = [
            each
            for map_name, name in _named_values(document)
            if (each := unpublished_reference(map_name, name, published)) and each.nearest
        ]
        if found:
            text = " and ".join(map(_text, found))
            yield from edit_claim(search, f"{text} in", document, partial(_rename, found))


def _named_values(document: Document) -> Iterator[tuple[str, str]]:
    """Map and name of what constraints compare and requests need a part of."""
    for constraint in _constraints(document):
        for field in CONSTRAINED:
            yield from ((ATTRIBUTES, constraint[field]),) if constraint.get(field) else ()
    for request in claim_requests(document):
        yield from ((CAPACITY, name) for name in _requested_parts(request))


def _constraints(document: Document) -> list[dict[str, Any]]:
    spec = document["spec"].get("spec") or document["spec"]
    return spec["devices"].get("constraints") or []


def _requested_parts(request: dict[str, Any]) -> dict[str, Any]:
    return (request.get("capacity") or {}).get("requests") or {}


def _rename(found: list[UnpublishedName], manifest: Document) -> None:
    for each in found:
        old, new = (
            "/".join(filter(None, (value.domain, value.name)))
            for value in (each.value, each.nearest)
            if value is not None
        )
        for constraint in _constraints(manifest):
            constraint |= {f: new for f in CONSTRAINED if constraint.get(f) == old}
        for request in claim_requests(manifest):
            parts = _requested_parts(request)
            if each.value.map == CAPACITY and old in parts:
                parts[new if each.value.domain else new.rpartition("/")[2]] = parts.pop(old)


def _corrections(document: Document, published: PublishedNames) -> tuple[str, dict[str, str]]:
    """What is corrected, for people, and by selector its corrected form."""
    texts: list[str] = []
    edits: dict[str, str] = {}
    for selector in dict.fromkeys(selectors_of(document)):
        found = [each for each in unpublished(selector, published) if each.nearest]
        texts += [_text(each) for each in found]
        corrected = selector
        for each in found:
            corrected = _replaced(corrected, each)
        domain = next(filter(None, map(_domain_if_moved, found)), "")
        by_lint = correct(corrected, domain) if domain or not found else None
        if by_lint is not None and by_lint.source != corrected:
            corrected = by_lint.source
            texts += [] if found else [f"write the selector {corrected}"]
        if corrected != selector:
            edits[selector] = corrected
    return " and ".join(dict.fromkeys(texts)), edits


def _domain_if_moved(found: Unpublished) -> str:
    """The domain of a name that the other of the two maps has."""
    if not isinstance(found, UnpublishedName) or found.nearest is None:
        return ""
    return found.nearest.domain if found.nearest.map != found.value.map else ""


def _text(found: Unpublished) -> str:
    if isinstance(found, UnpublishedName):
        return f"correct {found.value} to {found.nearest}"
    return f'correct {found.value} "{found.text}" to "{found.nearest}"'


def _replaced(selector: str, found: Unpublished) -> str:
    """The selector with every use of what was found replaced by the nearest."""
    root = parse_terms(selector)
    spans: list[tuple[int, int, str]] = []
    for term, parent in walk_terms(root) if root is not None else ():
        if isinstance(found, UnpublishedName):
            if _value_of(term) == found.value and _value_of(parent) != found.value:
                assert found.nearest is not None
                nearest = found.nearest
                text = write_reference(nearest.map, nearest.domain, nearest.name, selector)
                spans.append((term.start, term.end, text))
        elif term.kind == "binary" and term.value == "==":
            spans += _text_spans(term, found.value, found.text, found.nearest, selector)
    for start, end, text in sorted(spans, reverse=True):
        selector = selector[:start] + text + selector[end:]
    return selector


def _text_spans(
    comparison: Term, value: DeviceValue, text: str, nearest: str, selector: str
) -> Iterator[tuple[int, int, str]]:
    quote = quote_of(selector)
    for side, other in (comparison.parts, comparison.parts[::-1]):
        if _value_of(side) == value and literal_text(other) == text:
            yield other.start, other.end, f"{quote}{nearest}{quote}"


def _value_of(term: Term | None) -> DeviceValue | None:
    """The attribute, capacity or driver that a term is."""
    if term is None:
        return None
    found = reference(term)
    if found is not None:
        return DeviceValue(found.map, found.domain, found.name)
    is_driver = term.kind == "select" and term.value == DRIVER == DEVICE_FIELDS[0]
    of_device = is_driver and term.parts[0].kind == "name" and term.parts[0].value == "device"
    return DeviceValue(DRIVER) if of_device else None


def _apply(edits: dict[str, str], manifest: Document) -> None:
    for selector, corrected in edits.items():
        replace_selector(selector, corrected, manifest)
