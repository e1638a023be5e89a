"""Validation of any object: its metadata, the server's own fields, and the types of its fields.

Names and namespaces are validated; uid, times, generation and revision belong to the server, and an
update can neither change them nor revive an object that is being deleted.

The API server decodes into Go types and refuses a number in place of a text, or a fraction in place
of a whole number. The records in which the scheduler reads built-in kinds declare the same types
for the fields that matter here; of workloads it reads less than controllers do, so these have
records of their own.
"""

import re
from collections.abc import Callable

import msgspec

from kai_py.api.name_patterns import DNS_SUBDOMAIN
from kai_py.api.records.core import LabelSelector, ObjectMeta, PartialObjectMetadata
from kai_py.api.records.job import PodTemplate
from kai_py.api.records.policy import LimitRange, RuntimeClass
from kai_py.api.records.record import Record, record_decoder
from kai_py.api.records.storage import PersistentVolumeClaim
from kai_py.api.selectors import is_label_value
from kai_py.api.times import format_time
from kai_py.embedded.clock import Clock
from kai_py.embedded.documents import Identity, Json
from kai_py.embedded.errors import (
    FieldError,
    bad_request,
    forbidden_field,
    invalid_value,
    missing,
    required,
)
from kai_py.embedded.resources import ServedResource
from kai_py.watch.kinds import WATCHED

REPLICATED = ("Deployment", "ReplicaSet", "StatefulSet")


class WorkloadCondition(Record, frozen=True):
    """A condition of a workload."""

    type: str = ""
    status: str = ""
    reason: str = ""


class WorkloadSpec(Record, frozen=True):
    """The fields that workloads have in common, and the claims of a StatefulSet."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()
    volume_claim_templates: tuple[PersistentVolumeClaim, ...] = ()


class WorkloadStatus(Record, frozen=True):
    """What controllers write."""

    replicas: int = 0
    ready_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class Workload(Record, frozen=True):
    """A Job, Deployment, ReplicaSet or StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


_SUBDOMAIN = re.compile(DNS_SUBDOMAIN)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{DNS_SUBDOMAIN}')"
)
_MAX_NAME = 253
_MAX_GENERATED_BASE = 58
_GENERATED_NAMES = 8  # KEP-4420: names that are tried before the request fails

_SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "name",
    "namespace",
    "generateName",
    "selfLink",
)


def initialise(
    document: Json, *, clock: Clock, identity: Identity, existing: Callable[[str], Json | None]
) -> None:
    """Set name, uid, time and generation of a new object.

    ``existing``: the object of its kind and namespace that has a name.
    """
    meta = document["metadata"]
    for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
        meta.pop(field, None)
    for field in ("managedFields", "selfLink"):
        meta.pop(field, None)
    if not meta.get("name") and meta.get("generateName"):
        base = meta["generateName"][:_MAX_GENERATED_BASE]
        names = [base + identity.suffix()]
        while existing(names[-1]) and len(names) < _GENERATED_NAMES:
            names.append(base + identity.suffix())
        meta["name"] = names[-1]
    meta["uid"] = identity.uid()
    meta["creationTimestamp"] = format_time(clock.now())
    if "spec" in document:
        meta["generation"] = 1


def validate(document: Json) -> list[FieldError]:
    """The errors in an object's metadata."""
    meta = document["metadata"]
    name = meta.get("name")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    errors = []
    if len(name) > _MAX_NAME or not _SUBDOMAIN.fullmatch(name):
        errors.append(invalid_value("metadata.name", name, _SUBDOMAIN_RULE))
    for key, value in (meta.get("labels") or {}).items():
        if not is_label_value(value):
            errors.append(
                invalid_value("metadata.labels", value, f"label {key} has an invalid value")
            )
    return errors + _validate_owners(meta)


def _validate_owners(meta: Json) -> list[FieldError]:
    errors = []
    owners = meta.get("ownerReferences") or []
    for index, owner in enumerate(owners):
        fields = ("apiVersion", "kind", "name", "uid")
        errors += missing(owner, fields, f"metadata.ownerReferences[{index}].")
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        rule = "Only one reference can have Controller set to true"
        errors.append(invalid_value("metadata.ownerReferences", len(owners), rule))
    return errors


def keep_server_fields(new: Json, old: Json) -> None:
    """Copy the server's fields from `old` to `new`, an object written by a client."""
    meta, before = new["metadata"], old["metadata"]
    for field in _SERVER_FIELDS:
        meta.pop(field, None)
        if field in before:
            meta[field] = before[field]
    meta.pop("managedFields", None)


def validate_update(new: Json, old: Json) -> list[FieldError]:
    """The errors in a change of metadata."""
    errors = validate(new)
    added = [
        each
        for each in new["metadata"].get("finalizers") or ()
        if each not in (old["metadata"].get("finalizers") or ())
    ]
    if added and "deletionTimestamp" in old["metadata"]:
        rule = f"no new finalizers can be added if the object is being deleted, found new: {added}"
        errors.append(forbidden_field("metadata.finalizers", rule))
    return errors


def bump_generation(new: Json, old: Json) -> None:
    """Increment the generation on any change besides metadata and status."""
    if "generation" in old["metadata"] and _without_status(new) != _without_status(old):
        new["metadata"]["generation"] = old["metadata"]["generation"] + 1


def _without_status(document: Json) -> Json:
    return {key: value for key, value in document.items() if key not in ("metadata", "status")}


_DECODERS = {
    (kind.group, version, kind.name): decode
    for kind in WATCHED
    for version, decode in kind.versions.items()
} | {
    ("node.k8s.io", "v1", "RuntimeClass"): record_decoder(RuntimeClass),
    ("", "v1", "LimitRange"): record_decoder(LimitRange),
}
_read_workload = record_decoder(Workload)
_read_metadata = record_decoder(PartialObjectMetadata)
_WORKLOADS = {("batch", "Job"), *(("apps", kind) for kind in REPLICATED)}
_WHOLE_NUMBERS = {("scheduling.k8s.io", "PriorityClass"): (("value",), 1 << 31)}
"""Fields whose Go type is int32, and the first number that it cannot hold."""


def decoding_error(group: str, version: str, kind: str, document: Json) -> str:
    """Why an object cannot be decoded, with the path of the field, or ""."""
    decoders = [_DECODERS.get((group, version, kind), _read_metadata)]
    if (group, kind) in _WORKLOADS:
        decoders.append(_read_workload)
    try:
        encoded = msgspec.json.encode(document)
        for decode in decoders:
            decode(encoded)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def check_field_types(resource: ServedResource, document: Json) -> None:
    """Raise RequestError 400 for a field of another type than the API declares."""
    if resource.custom:
        return
    name = f"{resource.kind} in version {resource.version!r} cannot be handled"
    error = decoding_error(resource.group, resource.version, resource.kind, document)
    if error:
        raise bad_request(f"{name} as a {resource.kind}: {error}")
    fields, limit = _WHOLE_NUMBERS.get((resource.group, resource.kind), ((), 0))
    for field in fields:
        value = document.get(field)
        if isinstance(value, int) and not -limit <= value < limit:
            raise bad_request(f"{name} as a {resource.kind}: {field}: {value} is no int32")
