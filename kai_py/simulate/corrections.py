"""Remedies that correct a name: the nearest that exists in place of one that does not.

They come first: a misspelt label calls for that label, not for fewer conditions or more nodes.
All names of a gang are corrected at once; the manifests are searched for them in every form that a
pod template may have, whatever the kind of the owner.
"""

from collections.abc import Callable, Iterator
from functools import partial

from kai_py.api.problems import closest_match
from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.observe.suggestion import Suggestion
from kai_py.plan.explain.unresolved_names import NameKind, UnresolvedName, unresolved_names
from kai_py.simulate.device_remedies import claim_objects, claim_requests
from kai_py.simulate.objects import Document
from kai_py.simulate.remedy_search import RemedySearch, patch, replace

Edit = Callable[[Document], None]


def correct_queue(search: RemedySearch) -> Iterator[Suggestion]:
    """Name the queue that was probably meant."""
    parents = {share.parent for share in search.baseline.queues.values()}
    leaves = [name for name in search.baseline.queues if name not in parents]
    named = search.gang.queue
    nearest = closest_match(named, leaves) if named else None
    if nearest is None or nearest == named:
        return
    text = f"use queue {nearest} instead of {named}"
    change = {"metadata": {"annotations": {QUEUE_NAME_KEY: nearest}}}
    owners = search.owners(search.gang)
    found = list(search.verified(text, *(patch(each, change) for each in owners)))
    edit = partial(_rename_values, named, nearest)
    yield from found or search.verified(text, *(replace(each, edit) for each in owners))


def correct_names(search: RemedySearch) -> Iterator[Suggestion]:
    """Correct labels, values, resources and levels that no node has."""
    names = [each for each in unresolved_names(search.snapshot, search.gang) if each.nearest]
    if not names:
        return
    text = " and ".join(f"correct {_quoted(each)} to {each.nearest}" for each in names)
    edit = partial(_correct, names)
    steps = (replace(each, edit) for each in search.owners(search.gang))
    yield from search.verified(text, *steps)


def correct_device_class(search: RemedySearch) -> Iterator[Suggestion]:
    """Name the DeviceClass that was probably meant in its claims and templates."""
    classes = [each["metadata"]["name"] for each in search.of_kind("DeviceClass")]
    for document in claim_objects(search):
        named = {each.get("deviceClassName", "") for each in claim_requests(document)}
        for name in sorted(named - {*classes, ""}):
            nearest = closest_match(name, classes)
            if nearest is None:
                continue
            target = f"{document['kind']} {document['metadata']['name']}"
            recreated = [replace(each, lambda _: None) for each in search.owners(search.gang)]
            edit = partial(_rename_class, name, nearest)
            text = f"correct DeviceClass {name} to {nearest} in {target}"
            yield from search.verified(text, replace(document, edit), *recreated)


def _quoted(name: UnresolvedName) -> str:
    if name.kind is NameKind.LABEL_VALUE:
        return f"node label {name.label}={name.name}"
    return f"{name.kind.value} {name.name}"


def _correct(names: list[UnresolvedName], manifest: Document) -> None:
    for name in names:
        for mapping in _mappings(manifest):
            _correct_in(mapping, name)


def _correct_in(mapping: Document, name: UnresolvedName) -> None:
    match name.kind:
        case NameKind.LABEL_VALUE:
            selector = mapping.get("nodeSelector")
            if isinstance(selector, dict) and selector.get(name.label) == name.name:
                selector[name.label] = name.nearest
            if mapping.get("key") == name.label and isinstance(mapping.get("values"), list):
                values = mapping["values"]
                mapping["values"] = [name.nearest if v == name.name else v for v in values]
        case NameKind.NODE_LABEL:
            _rename_key(mapping.get("nodeSelector"), name)
            if mapping.get("key") == name.name and "operator" in mapping:
                mapping["key"] = name.nearest
        case NameKind.RESOURCE:
            _rename_key(mapping.get("requests"), name)
            _rename_key(mapping.get("limits"), name)
        case NameKind.TOPOLOGY_LEVEL:
            _rename_values(name.name, name.nearest, {"metadata": mapping})


def _rename_key(mapping: object, name: UnresolvedName) -> None:
    if isinstance(mapping, dict) and name.name in mapping:
        mapping[name.nearest] = mapping.pop(name.name)


def _rename_values(name: str, nearest: str, manifest: Document) -> None:
    """In labels and annotations: what is written there and equals ``name``."""
    for mapping in _mappings(manifest):
        for part in ("labels", "annotations"):
            notes = mapping.get(part)
            if isinstance(notes, dict):
                notes.update({key: nearest for key, value in notes.items() if value == name})


def _rename_class(name: str, nearest: str, manifest: Document) -> None:
    for request in claim_requests(manifest):
        if request.get("deviceClassName") == name:
            request["deviceClassName"] = nearest


def _mappings(value: object) -> Iterator[Document]:
    """Every mapping in a manifest, outer ones first."""
    if isinstance(value, dict):
        yield value
        for item in list(value.values()):
            yield from _mappings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _mappings(item)
