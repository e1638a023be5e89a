"""The verbs of the API on stored objects, without HTTP.

get, list, create, update, patch on the objects of a resource, with the API's rules: names, uids,
resourceVersion conflicts, status apart from the rest, finalizers, defaults and validation of the
kind. The HTTP front, the controllers and the simulator all call this. Refusals are `RequestError`.
Deleting is in `deletion`, watching in `watching`, bindings and evictions in `subresources`.

Documents given are copied; documents returned are shared and must not be changed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from kai_py.api.records.unstructured import mapping_at
from kai_py.embedded import object_validation
from kai_py.embedded.clock import Clock
from kai_py.embedded.documents import (
    Identity,
    Json,
    clone,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
    with_typed_nulls,
)
from kai_py.embedded.errors import (
    FieldError,
    RequestError,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    no_such_resource,
    not_found,
    required,
)
from kai_py.embedded.object_validation import check_field_types
from kai_py.embedded.patches import AppliedFields
from kai_py.embedded.resources import CLAIMS, NAMESPACES, Registry, ServedResource
from kai_py.embedded.store import Store
from kai_py.watch.wire import without_nulls

_STALE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class ApiServer:
    """The verbs over one store."""

    def __init__(
        self, *, store: Store, clock: Clock, identity: Identity, registry: Registry
    ) -> None:
        self.store = store
        self.clock = clock
        self.identity = identity
        self.registry = registry
        self.applied = AppliedFields()

    def find(self, resource: ServedResource, name: str, namespace: str = "") -> Json | None:
        """An object, or None."""
        document = self.store.get(resource.storage, namespace, name)
        return None if document is None else resource.to_served(document)

    def get(self, resource: ServedResource, name: str, namespace: str = "") -> Json:
        """An object; raises RequestError 404 when there is none."""
        document = self.find(resource, name, namespace)
        if document is None:
            raise not_found(resource.group_resource, name)
        return document

    def list(self, resource: ServedResource, namespace: str | None = None) -> list[Json]:
        """The objects of a resource by namespace and name; None means all namespaces."""
        documents = self.store.list(resource.storage, namespace)
        return [resource.to_served(document) for document in documents]

    def create(
        self,
        resource: ServedResource,
        document: Json,
        namespace: str = "",
        *,
        dry_run: bool = False,
    ) -> Json:
        """Add an object; raises RequestError 409 when its name is taken, 422 when it is invalid."""
        new = self._incoming(resource, document, namespace)
        if resource.namespaced:
            self._require_namespace(resource, new)
        if resource.has_status and (resource.custom or resource.kind != "Node"):
            new.pop("status", None)
        same_kind = partial(self.store.get, resource.storage, namespace_of(new))
        object_validation.initialise(
            new, clock=self.clock, identity=self.identity, existing=same_kind
        )
        # In this order: a later check relies on what an earlier one has established.
        if (errors := object_validation.validate(new)) or (errors := _missing_spec(resource, new)):
            raise _invalid(resource, new, errors)
        resource.rules.prepare(new)
        resource.rules.default(new)
        resource.rules.admit(new, self.store)
        if errors := resource.rules.validate(new):
            raise _invalid(resource, new, errors)
        if dry_run:
            return resource.to_served(new)
        return resource.to_served(self.store.insert(resource.storage, new))

    def update(
        self,
        resource: ServedResource,
        name: str,
        document: Json,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Json:
        """Replace an object or its status; raises RequestError 404, 409 or 422."""
        new = self._incoming(resource, document, namespace)
        body_name = new["metadata"].get("name")
        if body_name != name:
            raise bad_request(
                f"the name of the object ({body_name}) does not match the name on the URL ({name})"
            )
        current = self.stored(resource, name, namespace)
        # Built-in kinds allow unconditional updates, custom resources do not.
        if resource.custom and not new["metadata"].get("resourceVersion"):
            rule = "must be specified for an update"
            missing = FieldError(
                "metadata.resourceVersion", "FieldValueInvalid", f"Invalid value: 0: {rule}"
            )
            raise _invalid(resource, new, [missing])
        return self._write(resource, current, new, subresource=subresource, dry_run=dry_run)

    def edit(
        self,
        resource: ServedResource,
        name: str,
        namespace: str,
        change: Callable[[Json], Json],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Json:
        """Write what `change` makes of the present object; every patch works this way."""
        current = self.stored(resource, name, namespace)
        changed = change(resource.to_served(current))
        if name_of(changed) != name:
            raise bad_request("the name of the object does not match the name on the URL")
        new = self._incoming(resource, changed, namespace)
        uid = new["metadata"].get("uid")
        if uid and uid != uid_of(current):
            raise _invalid(
                resource, new, [invalid_value("metadata.uid", uid, "field is immutable")]
            )
        return self._write(resource, current, new, subresource=subresource, dry_run=dry_run)

    def patch_status(self, resource: ServedResource, document: Json, status: Json) -> Json:
        """Merge top-level fields into the status of a stored object, as a controller does.

        A None removes a field. Nothing is written when nothing changes. The types of ``status``
        are not checked: it comes from this process.
        """
        meta = document["metadata"]
        current = self.stored(resource, meta["name"], meta.get("namespace", ""))
        present = resource.to_served(current)
        merged = {**(present.get("status") or {}), **clone(status)}
        remaining = {key: value for key, value in merged.items() if value is not None}
        if remaining == present.get("status"):
            return present
        changed = {**present, "metadata": dict(present["metadata"]), "status": remaining}
        stored = resource.to_stored(changed)
        return self._write(resource, current, stored, subresource="status", dry_run=False)

    def stored(self, resource: ServedResource, name: str, namespace: str) -> Json:
        """An object in its stored version; raises RequestError 404 when there is none."""
        document = self.store.get(resource.storage, namespace, name)
        if document is None:
            raise not_found(resource.group_resource, name)
        return document

    def check_preconditions(self, resource: ServedResource, current: Json, meta: Json) -> None:
        """Raise RequestError 409 when `meta` names another uid or revision than the object has."""
        uid, present = meta.get("uid"), uid_of(current)
        name = name_of(current)
        if uid and uid != present:
            reason = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {present}"
            )
            raise conflict(resource.group_resource, name, reason)
        revision = meta.get("resourceVersion")
        # As upstream, "0" stands for any version.
        if revision and revision not in ("0", current["metadata"]["resourceVersion"]):
            raise conflict(resource.group_resource, name, _STALE)

    def _incoming(self, resource: ServedResource, document: Json, namespace: str) -> Json:
        new = _without_null_fields(resource, document)
        new.setdefault("apiVersion", resource.api_version)
        new.setdefault("kind", resource.kind)
        if (new["apiVersion"], new["kind"]) != (resource.api_version, resource.kind):
            raise bad_request(
                f"the object is {new['apiVersion']}, {new['kind']}, "
                f"the request is for {resource.api_version}, {resource.kind}"
            )
        meta = new.get("metadata")
        if not isinstance(meta, dict):
            meta = new["metadata"] = {}
        if resource.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
        else:
            meta.pop("namespace", None)
        check_field_types(resource, new)
        return resource.to_stored(new)

    def _require_namespace(self, resource: ServedResource, document: Json) -> None:
        name = document["metadata"]["namespace"]
        if not name:
            raise no_such_resource()
        namespace = self.store.get(NAMESPACES.storage, "", name)
        if namespace is None:
            raise not_found("namespaces", name)
        if is_deleting(namespace):
            reason = (
                f"unable to create new content in namespace {name} because it is being terminated"
            )
            raise forbidden(resource.group_resource, document["metadata"].get("name", ""), reason)

    def _write(
        self, resource: ServedResource, current: Json, new: Json, *, subresource: str, dry_run: bool
    ) -> Json:
        self.check_preconditions(resource, current, new["metadata"])
        object_validation.keep_server_fields(new, current)
        if subresource == "status":
            new = {**current, "status": new.get("status") or {}}
            if resource.custom:
                new = clone(new)
                resource.rules.default(new)
            errors = resource.rules.validate_status(new, current)
        else:
            _with_old_status(resource, new, current)
            resource.rules.default(new)
            errors = object_validation.validate_update(new, current)
            errors += resource.rules.validate_update(new, current)
            object_validation.bump_generation(new, current)
        if errors:
            raise _invalid(resource, new, errors)
        return resource.to_served(self.commit(resource, current, new, dry_run=dry_run))

    def commit(
        self, resource: ServedResource, current: Json, new: Json, *, dry_run: bool = False
    ) -> Json:
        """Store an accepted object unless nothing changed; remove it if it may go now."""
        new["metadata"] = dict(new["metadata"])
        new["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
        for field in ("finalizers", "ownerReferences", "labels", "annotations"):
            if not new["metadata"].get(field):
                new["metadata"].pop(field, None)
        # A write that changes nothing gets no new revision, as upstream.
        if new == current or dry_run:
            return new
        stored = self.store.replace(resource.storage, new, current)
        if is_deleting(stored) and is_removable(stored):
            return self.store.remove(resource.storage, stored)
        return stored


def _without_null_fields(resource: ServedResource, document: Json) -> Json:
    """A copy of an object in which a field that is null is absent, as for any Go type.

    The content of custom resources is no Go type.
    """
    if not resource.custom and resource.group != CLAIMS.group:
        return cast("Json", without_nulls(document))
    new: Json = (
        {key: clone(value) for key, value in document.items() if value is not None}
        if resource.custom
        else with_typed_nulls(document)
    )
    if "metadata" in new:
        new["metadata"] = without_nulls(document["metadata"])
    return new


def is_removable(document: Json) -> bool:
    """Whether a deleted object can be removed: no finalizer, no grace period left."""
    meta = document["metadata"]
    # A custom resource may have a spec that is no mapping.
    has_namespace_finalizer = document["kind"] == NAMESPACES.kind and bool(
        mapping_at(document, "spec").get("finalizers")
    )
    grace = meta.get("deletionGracePeriodSeconds") or 0
    return not meta.get("finalizers") and not grace and not has_namespace_finalizer


def _with_old_status(resource: ServedResource, new: Json, current: Json) -> None:
    if not resource.has_status:
        return
    new.pop("status", None)
    if "status" in current:
        new["status"] = current["status"]


def _missing_spec(resource: ServedResource, document: Json) -> list[FieldError]:
    needs_spec = not resource.custom and resource.kind in (
        "Pod", "Job", "Deployment", "ReplicaSet", "StatefulSet", "ResourceClaim",
        "ResourceClaimTemplate", "ResourceSlice",
    )  # fmt: skip
    if needs_spec and not isinstance(document.get("spec"), dict):
        return [required("spec")]
    return []


def _invalid(resource: ServedResource, document: Json, errors: list[FieldError]) -> RequestError:
    name: Any = document["metadata"].get("name") or ""
    return invalid(resource.kind, resource.group, name, errors)
