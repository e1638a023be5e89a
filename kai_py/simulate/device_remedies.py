"""Remedies for a lack of devices: drop a condition on devices, or tolerate a taint.

Claims are immutable: their template is replaced, and the owner of the pods, so that these get new
claims.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from kai_py.cel.expression import CompileError
from kai_py.dra.selectors.masks import conjuncts
from kai_py.dra.selectors.selector import compile_selector
from kai_py.observe.suggestion import Suggestion, SuggestionStep
from kai_py.simulate.manifest_remedies import pod_specs
from kai_py.simulate.objects import Document
from kai_py.simulate.remedy_search import RemedySearch, first_verified, replace

Edit = Callable[[Document], None]
"""Changes a manifest in place."""


def fewer_device_conditions(search: RemedySearch) -> Iterator[Suggestion]:
    """Remove one condition from a selector of its claims, the first that is enough."""
    return _first_edit(
        search,
        (
            (f"remove {condition} from", each, partial(replace_selector, selector, rest))
            for each in claim_objects(search)
            for selector in selectors_of(each)
            for condition, rest in _without_one(selector)
        ),
    )


def tolerated_devices(search: RemedySearch) -> Iterator[Suggestion]:
    """Tolerate one taint of devices in its claims, the first that is enough."""
    return _first_edit(
        search,
        (
            (f"tolerate the device taint {key}:{effect} in", each, partial(_tolerate, key, effect))
            for each in claim_objects(search)
            for key, effect in dict.fromkeys(_taints(search))
        ),
    )


def _first_edit(
    search: RemedySearch, edits: Iterable[tuple[str, Document, Edit]]
) -> Iterator[Suggestion]:
    """The first edit of a claim or template that is enough; its text lacks the object's name."""
    return first_verified(edit_claim(search, *each) for each in edits)


def edit_claim(
    search: RemedySearch, text: str, document: Document, edit: Edit
) -> Iterator[Suggestion]:
    """Edit a claim or template, which is named after ``text``; its pods are created again."""
    where = f"{document['kind']} {document['metadata']['name']}"
    steps = (replace(document, edit), *recreated_owners(search))
    return search.verified(f"{text} {where}", *steps)


def recreated_owners(search: RemedySearch) -> list[SuggestionStep]:
    """The gang's owners are created again as they were, so that their pods get new claims."""
    return [replace(each, lambda _: None) for each in search.owners(search.gang)]


def _taints(search: RemedySearch) -> Iterator[tuple[str, str]]:
    for document in search.of_kind("ResourceSlice"):
        for device in document["spec"].get("devices") or ():
            yield from ((each["key"], each["effect"]) for each in device.get("taints") or ())
    for document in search.of_kind("DeviceTaintRule"):
        taint = document["spec"]["taint"]
        yield taint["key"], taint["effect"]


def _tolerate(key: str, effect: str, manifest: Document) -> None:
    tolerated = {"key": key, "operator": "Exists", "effect": effect}
    for request in claim_requests(manifest):
        request["tolerations"] = [*(request.get("tolerations") or ()), tolerated]


def claim_objects(search: RemedySearch) -> Iterator[Document]:
    """The claims and templates in the owners' pod specs, where the form of these is known."""
    specs = pod_specs(search.owners(search.gang))
    named = [claim for spec in specs for claim in spec.get("resourceClaims") or ()]
    names = {("ResourceClaimTemplate", each.get("resourceClaimTemplateName")) for each in named}
    names |= {("ResourceClaim", each.get("resourceClaimName")) for each in named}
    for document in search.of_kind("ResourceClaimTemplate", "ResourceClaim"):
        meta = document["metadata"]
        is_local = meta.get("namespace") == search.gang.owner.namespace
        if is_local and (document["kind"], meta["name"]) in names:
            yield document


def selectors_of(document: Document) -> Iterator[str]:
    """The CEL expressions of its requests."""
    for selectors in _selector_lists(document):
        yield from (each["cel"]["expression"] for each in selectors if "cel" in each)


def _selector_lists(document: Document) -> Iterator[list[Any]]:
    return (each["selectors"] for each in claim_requests(document) if each.get("selectors"))


def claim_requests(document: Document) -> Iterator[dict[str, Any]]:
    """The requests, with each alternative of a request by itself."""
    spec = document["spec"].get("spec") or document["spec"]
    for request in spec["devices"].get("requests") or ():
        if "exactly" in request:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def _without_one(selector: str) -> Iterator[tuple[str, str]]:
    """Each condition of a selector, and the selector without it."""
    compiled = compile_selector(selector)
    if isinstance(compiled, CompileError):
        return
    texts = [conjunct.text for conjunct in conjuncts(compiled)]
    for omitted, text in enumerate(texts):
        rest = [f"({each})" for index, each in enumerate(texts) if index != omitted]
        yield text, " && ".join(rest)


def replace_selector(selector: str, rest: str, manifest: Document) -> None:
    """Replace a selector wherever the manifest has it; remove it where ``rest`` is empty."""
    for selectors in _selector_lists(manifest):
        selectors[:] = [
            {"cel": {"expression": rest}} if each["cel"]["expression"] == selector else each
            for each in selectors
            if rest or each["cel"]["expression"] != selector
        ]
