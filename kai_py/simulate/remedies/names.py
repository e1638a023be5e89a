"""Remedies that correct a name: the nearest that exists in place of one that does not.

They come first: a misspelt label calls for that label, not for fewer conditions or more nodes.
All names of a gang are corrected at once; the manifests are searched for them in every form that a
pod template may have, whatever the kind of the owner.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from kai_py.api.problems import closest_match
from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.storage import DEFAULT_CLASS
from kai_py.api.records.unstructured import mappings_in
from kai_py.observe.suggestion import Suggestion
from kai_py.plan.explain.unresolved_names import (
    KINDS,
    NameKind,
    UnresolvedName,
    nearest_object,
    unresolved_names,
)
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.capacity import (
    claim_objects,
    claim_requests,
    edit_claim,
    recreated_owners,
)
from kai_py.simulate.remedies.manifests import annotate_owners, pod_specs
from kai_py.simulate.remedies.search import RemedySearch, create, first_verified, replace
from kai_py.snapshot.missing_objects import CLAIMS, STORAGE_CLASSES, TEMPLATES, VOLUME_CLAIMS

DISPENSABLE = frozenset({NameKind.NODE_LABEL, NameKind.LABEL_VALUE, NameKind.RESOURCE})
"""Kinds of names that a pod can do without, where nothing is like them."""
MAX_QUEUES_TRIED = 3
"""Queues that are tried where none is like the one that was named."""
MAX_CREATED, CREATED_SIZE = 8, "1Gi"
MAX_CLASSES_TRIED = 3
REFERENCE_FIELDS = {
    TEMPLATES: "resourceClaimTemplateName",
    CLAIMS: "resourceClaimName",
    VOLUME_CLAIMS: "claimName",
}
"""The field of a pod spec that names an object, by its collection."""


def correct_queue(search: RemedySearch) -> Iterator[Suggestion]:
    """Name the queue that was probably meant, or the first with which the gang starts."""
    parents = {share.parent for share in search.baseline.queues.values()}
    leaves = [
        share
        for name, share in search.baseline.queues.items()
        if name not in parents and name != search.gang.queue
    ]
    leaves.sort(key=lambda share: (not share.is_open, share.queue))
    names = [share.queue for share in leaves]
    nearest = closest_match(search.gang.queue, names) if search.gang.queue else None
    candidates = names[:MAX_QUEUES_TRIED] if nearest is None else [nearest]
    yield from first_verified(_use_queue(search, name) for name in candidates)


def _use_queue(search: RemedySearch, name: str) -> Iterator[Suggestion]:
    named = search.gang.queue
    text = f"use queue {name} instead of {named}" if named else f"use queue {name}"
    found = list(search.verified(text, *annotate_owners(search, {QUEUE_NAME_KEY: name})))
    if not found and named:
        edit = partial(_rename_values, named, name)
        steps = (replace(each, edit) for each in search.owners(search.gang))
        found = list(search.verified(text, *steps))
    yield from found


def correct_names(search: RemedySearch) -> Iterator[Suggestion]:
    """Correct labels, values, resources and levels that no node has, or do without them."""
    names = [
        each
        for each in unresolved_names(search.snapshot, search.gang)
        if each.nearest or each.kind in DISPENSABLE
    ]
    if not any(each.nearest or each.kind is NameKind.RESOURCE for each in names):
        return
    text = " and ".join(map(_correction, names))
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
            text, edit = f"{name} to {nearest} in", partial(_rename_class, name, nearest)
            yield from edit_claim(search, f"correct DeviceClass {text}", document, edit)


def correct_references(search: RemedySearch) -> Iterator[Suggestion]:
    """Correct the name of a claim template, claim or volume claim, or of a storage class."""
    namespace = search.gang.owner.namespace
    for missing in dict.fromkeys(member.missing for member in search.gang.pending):
        nearest = "" if missing is None else nearest_object(search.snapshot, namespace, missing)
        if missing is None or not nearest:
            continue
        text = f"correct {KINDS[missing.collection]} {missing.name} to {nearest}"
        owners = search.owners(search.gang)
        if missing.collection == STORAGE_CLASSES:
            yield from _correct_storage_class(search, missing.name, nearest, text)
            continue
        edit = partial(_rename_field, REFERENCE_FIELDS[missing.collection], missing.name, nearest)
        yield from search.verified(text, *(replace(each, edit) for each in owners))


def create_volume_claims(search: RemedySearch) -> Iterator[Suggestion]:
    """Create the volume claims that do not exist, of a class that binds on first use.

    Their size is not known; what the suggestion creates is small, and says so.
    """
    namespace = search.gang.owner.namespace
    mounted = _volume_claims_of(search.waiting_pods())
    missing = {
        member.missing.name
        for member in search.gang.pending
        if member.missing is not None
        and member.missing.collection == VOLUME_CLAIMS
        and member.missing.name in mounted
        and not nearest_object(search.snapshot, namespace, member.missing)
    }
    if not 0 < len(missing) <= MAX_CREATED:
        return
    modes = ["ReadWriteMany" if len(search.gang.pending) > len(missing) else "ReadWriteOnce"]
    classes = sorted(search.of_kind("StorageClass"), key=_class_rank)
    yield from first_verified(
        search.verified(
            f"create PersistentVolumeClaim {', '.join(sorted(missing))} of StorageClass "
            f"{each['metadata']['name']}, as large as its data ({CREATED_SIZE} here)",
            *(
                create(_volume_claim(namespace, name, each["metadata"]["name"], modes))
                for name in sorted(missing)
            ),
        )
        for each in classes[:MAX_CLASSES_TRIED]
    )


def _class_rank(storage: Document) -> tuple[bool, str]:
    """The default class first."""
    annotations = storage["metadata"].get("annotations") or {}
    return annotations.get(DEFAULT_CLASS) != "true", storage["metadata"]["name"]


def _volume_claim(namespace: str, name: str, storage: str, modes: list[str]) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": modes,
            "storageClassName": storage,
            "resources": {"requests": {"storage": CREATED_SIZE}},
        },
    }


def _volume_claims_of(owners: Iterable[Document]) -> set[str]:
    """The names of volume claims in their pod specs."""
    return {
        str((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))
        for spec in pod_specs(list(owners))
        for volume in spec.get("volumes") or ()
    }


def _correct_storage_class(
    search: RemedySearch, name: str, nearest: str, text: str
) -> Iterator[Suggestion]:
    """In the volume claims of its pods that have no volume yet."""
    used = _volume_claims_of(search.owners(search.gang))
    claims = [
        each
        for each in search.of_kind("PersistentVolumeClaim")
        if each["metadata"]["name"] in used
        and each["metadata"].get("namespace") == search.gang.owner.namespace
        and each["spec"].get("storageClassName") == name
        and not each["spec"].get("volumeName")
    ]
    edit = partial(_rename_field, "storageClassName", name, nearest)
    where = ", ".join(each["metadata"]["name"] for each in claims)
    steps = [replace(each, edit) for each in claims]
    if steps:
        steps += recreated_owners(search)
        yield from search.verified(f"{text} in PersistentVolumeClaim {where}", *steps)


def _correction(name: UnresolvedName) -> str:
    if name.nearest:
        return f"correct {_quoted(name)} to {name.nearest}"
    if name.kind is NameKind.RESOURCE:
        return f"remove the request of {name.name}, which no node reports"
    return f"remove the requirement of {_quoted(name)}"


def _quoted(name: UnresolvedName) -> str:
    if name.kind is NameKind.LABEL_VALUE:
        return f"node label {name.label}={name.name}"
    return f"{name.kind.value} {name.name}"


def _correct(names: list[UnresolvedName], manifest: Document) -> None:
    for name in names:
        for mapping in mappings_in(manifest):
            _correct_in(mapping, name)


def _correct_in(mapping: Document, name: UnresolvedName) -> None:
    match name.kind:
        case NameKind.LABEL_VALUE | NameKind.NODE:
            selector = mapping.get("nodeSelector")
            if isinstance(selector, dict) and selector.get(name.label) == name.name:
                selector |= {name.label: name.nearest}
                if not name.nearest:
                    del selector[name.label]
            if mapping.get("key") == name.label and isinstance(mapping.get("values"), list):
                values = mapping["values"]
                mapping["values"] = [name.nearest if v == name.name else v for v in values]
        case NameKind.NODE_LABEL:
            _rename_key(mapping.get("nodeSelector"), name)
            if mapping.get("key") == name.name and "operator" in mapping:
                mapping["key"] = name.nearest
            if mapping.get("topologyKey") == name.name:
                mapping["topologyKey"] = name.nearest
        case NameKind.RESOURCE:
            _rename_key(mapping.get("requests"), name)
            _rename_key(mapping.get("limits"), name)
        case NameKind.TOPOLOGY_LEVEL:
            _rename_values(name.name, name.nearest, {"metadata": mapping})


def _rename_key(mapping: object, name: UnresolvedName) -> None:
    """Rename the key, or remove it where there is no name in its place."""
    if isinstance(mapping, dict) and name.name in mapping:
        value = mapping.pop(name.name)
        mapping.update({name.nearest: value} if name.nearest else {})


def _rename_values(name: str, nearest: str, manifest: Document) -> None:
    """In labels and annotations: what is written there and equals ``name``."""
    for mapping in mappings_in(manifest):
        for part in ("labels", "annotations"):
            notes = mapping.get(part)
            if isinstance(notes, dict):
                notes.update({key: nearest for key, value in notes.items() if value == name})


def _rename_class(name: str, nearest: str, manifest: Document) -> None:
    for request in claim_requests(manifest):
        if request.get("deviceClassName") == name:
            request["deviceClassName"] = nearest


def _rename_field(field: str, name: str, nearest: str, manifest: Document) -> None:
    """Wherever the field has this value."""
    for mapping in mappings_in(manifest):
        if mapping.get(field) == name:
            mapping[field] = nearest
