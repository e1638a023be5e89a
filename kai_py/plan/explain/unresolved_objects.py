"""Names of objects and devices that do not exist, each with the nearest that does.

A pod waits without end for a claim template, claim, volume claim, storage class or DeviceClass of
another name, and for an attribute or capacity that no device publishes.
"""

from collections.abc import Iterable, Iterator, Sequence

from kai_py.api.problems import closest_match
from kai_py.api.records.resource import DeviceSelector, DeviceSubRequest, ExactDeviceRequest
from kai_py.dra.published_names import ATTRIBUTES, CAPACITY, unpublished, unpublished_reference
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.shape import ClaimUse
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.known_names import (
    CLAIMS,
    STORAGE_CLASSES,
    TEMPLATES,
    VOLUME_CLAIMS,
    MissingObject,
)

KINDS = {
    TEMPLATES: "ResourceClaimTemplate",
    CLAIMS: "ResourceClaim",
    VOLUME_CLAIMS: "PersistentVolumeClaim",
    STORAGE_CLASSES: "StorageClass",
}


def missing_object_hint(snapshot: Snapshot, gang: Gang) -> str:
    """The object that was probably meant by the first that a pod of the gang waits for."""
    missing = next((m.missing for m in gang.pending if m.missing is not None), None)
    nearest = "" if missing is None else nearest_object(snapshot, gang.owner.namespace, missing)
    return f"Did you mean {KINDS[missing.collection]} {nearest}?" if missing and nearest else ""


def nearest_object(snapshot: Snapshot, namespace: str, missing: MissingObject) -> str:
    """The name of its kind that was probably meant; "" if none is like it, or it does exist."""
    names: Iterable[str]
    if missing.collection == CLAIMS:
        names = (name for scope, name in snapshot.devices.claims if scope == namespace)
    else:
        scope = "" if missing.collection == STORAGE_CLASSES else namespace
        names = snapshot.known_names.get((missing.collection, scope), ())
    known = sorted(names)
    return "" if missing.name in known else closest_match(missing.name, known) or ""


def device_hint(state: CycleState, gang: Gang) -> str:
    """The first name in its claims that has no device or DeviceClass, as a sentence.

    Selectors that the search has not parsed are left out: it had no allowance for them.
    """
    classes = state.snapshot.devices.classes
    has_read = state.turns.spending.selectors.has_read
    for name, selectors in _device_requests(gang):
        if name and name not in classes:
            nearest = closest_match(name, sorted(classes))
            return f"Did you mean DeviceClass {nearest}?" if nearest else ""
        for text in filter(has_read, (each.cel.expression for each in selectors if each.cel)):
            for found in unpublished(text, state.statement.devices.published_names()):
                if found.hint:
                    return found.hint
    for map_name, full_name in _named_values(gang):
        published = state.statement.devices.published_names()
        unknown = unpublished_reference(map_name, full_name, published)
        if unknown is not None:
            return unknown.hint or f"No device publishes {unknown.value}."
    return ""


def _named_values(gang: Gang) -> Iterator[tuple[str, str]]:
    """Map and name of what constraints compare and requests need a part of, once per shape."""
    for use in _claims(gang):
        options = list(_options(use))
        derived = {each.name for option in options for each in option.derived_attributes}
        for constraint in use.spec.devices.constraints:
            for name in (constraint.match_attribute, constraint.distinct_attribute):
                yield from ((ATTRIBUTES, name),) if name and name not in derived else ()
        yield from ((CAPACITY, name) for each in options for name in each.capacity.requests)


def _device_requests(gang: Gang) -> Iterator[tuple[str, Sequence[DeviceSelector]]]:
    """Class and selectors of each request in the claims of its pending pods, once per shape."""
    for use in _claims(gang):
        yield from ((each.device_class_name, each.selectors) for each in _options(use))


def _claims(gang: Gang) -> Iterator[ClaimUse]:
    shapes = {member.shape.number: member.shape for member in gang.pending}
    return (use for shape in shapes.values() for use in shape.claims)


def _options(use: ClaimUse) -> Iterator[ExactDeviceRequest | DeviceSubRequest]:
    for request in use.spec.devices.requests:
        yield from (request.exactly,) if request.exactly else request.first_available
