"""Rules on selectors: their place in the manifest, their names, their types, their cost."""

from collections.abc import Iterator
from typing import Any

from kai_py.api.manifests import LineMapping, LineSequence
from kai_py.api.problems import FieldPath
from kai_py.cel.expression import CompileError
from kai_py.dra.selectors.cost import MAX_COST, max_cost
from kai_py.dra.selectors.selector import compile_selector
from kai_py.lint.cel.amounts import small_memory
from kai_py.lint.cel.correct import correct, domains, guarded_driver
from kai_py.lint.cel.published import DEFAULT_DRIVER
from kai_py.lint.manifest import (
    RESOURCE_GROUP,
    Finding,
    Manifest,
    at,
    mapping_at,
    mapping_at_line,
    set_key,
    text_at,
    walk,
)
from kai_py.lint.rules.claims import driver_of_class, driver_of_selectors
from kai_py.lint.rules.requests import request_at

_KINDS = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate")
_ABSENT_TOLERATED = ("has(", ".?", "[?", " in device.")


def shapes(manifest: Manifest) -> Iterator[Finding]:
    """A selector is written ``- cel: {expression: "..."}``."""
    if not manifest.is_a(RESOURCE_GROUP, *_KINDS):
        return
    for path, mapping in list(walk(mapping_at(manifest.value, "spec"), ("spec",))):
        selectors = mapping.get("selectors")
        if selectors is None:
            continue
        items = selectors if isinstance(selectors, list) else [selectors]
        corrected = LineSequence(getattr(selectors, "line", mapping.line_of("selectors")))
        for item in items:
            corrected.append(_selector(item, corrected.line))
            corrected.lines.append(getattr(item, "line", corrected.line))
        if corrected != selectors:
            message = "a selector is written '- cel: {expression: ...}'"
            yield manifest.error((*path, "selectors"), message, fixed=True)
            set_key(mapping, "selectors", corrected)


def expressions(manifest: Manifest) -> Iterator[Finding]:
    """Correct a selector's expression, then check it as the API server does."""
    if not manifest.is_a(RESOURCE_GROUP, *_KINDS):
        return
    for path, mapping in walk(mapping_at(manifest.value, "spec"), ("spec",)):
        source = text_at(mapping, "cel", "expression")
        if not source:
            continue
        expression_path = (*path, "cel", "expression")
        result = correct(source, _driver(manifest, path, source))
        for reason in result.reasons:
            yield manifest.error(expression_path, reason, fixed=True)
        mapping["cel"]["expression"] = result.source
        yield from _checked(manifest, expression_path, result.source)


def guards(manifest: Manifest) -> Iterator[Finding]:
    """A class tests the driver first: devices of other drivers have none of these names."""
    if not manifest.is_a(RESOURCE_GROUP, "DeviceClass"):
        return
    selectors = at(manifest.value, "spec", "selectors") or ()
    for index, selector in enumerate(selectors):
        source = text_at(selector, "cel", "expression")
        if guarded_driver(source):
            return
        used = [name for name in domains(source) if not name.endswith("kubernetes.io")]
        if not used or any(mark in source for mark in _ABSENT_TOLERATED):
            continue
        quote = next((character for character in source if character in "\"'"), '"')
        guard = f"device.driver == {quote}{used[0]}{quote}"
        path = ("spec", "selectors", index, "cel", "expression")
        message = f"fails on devices of other drivers, so pods stay pending: check {guard} first"
        yield manifest.error(path, message, fixed=True)
        body = f"({source.strip()})" if "||" in source or "?" in source else source.strip()
        selector["cel"]["expression"] = f"{guard} && {body}" + "\n" * source.endswith("\n")
        return


def _selector(item: Any, line: int) -> Any:
    """A selector in its valid structure."""
    if isinstance(item, str):
        return mapping_at_line(line, cel=mapping_at_line(line, expression=item))
    if not isinstance(item, LineMapping):
        return item
    if isinstance(item.get("cel"), str):
        return mapping_at_line(
            item.line, cel=mapping_at_line(item.line_of("cel"), expression=item["cel"])
        )
    if "cel" not in item and isinstance(item.get("expression"), str):
        return mapping_at_line(item.line, cel=item)
    return item


def _driver(manifest: Manifest, path: FieldPath, source: str) -> str:
    """The driver of the devices that a selector is about."""
    siblings = at(manifest.value, *path[:-1]) if path else None
    texts = [text_at(item, "cel", "expression") for item in siblings or ()]
    own = guarded_driver(source)
    if own:
        return own
    for mapping in request_at(manifest, path):
        driver = driver_of_class(manifest, str(mapping.get("deviceClassName", "")))
        if driver:
            return driver
    if manifest.kind == "DeviceClass" and (driver := driver_of_class(manifest, manifest.name)):
        return driver
    return driver_of_selectors([source, *texts]) or DEFAULT_DRIVER


def _checked(manifest: Manifest, path: FieldPath, source: str) -> Iterator[Finding]:
    compiled = compile_selector(source)
    if isinstance(compiled, CompileError):
        yield manifest.error(path, f"the API rejects it: {_first_lines(compiled.message)}")
    elif (cost := max_cost(compiled.expression)) > MAX_COST:
        message = f"may cost {cost} steps; the API allows {MAX_COST}"
        yield manifest.error(path, message)
    elif bound := small_memory(source):
        message = f'memory counts bytes: did you mean "{bound}Gi" or "{bound}Mi"?'
        yield manifest.hint(path, message)


def _first_lines(message: str) -> str:
    return message.partition("\n |")[0].removeprefix("compilation failed: ")
