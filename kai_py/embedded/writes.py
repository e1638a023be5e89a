"""Requests that read or write one object, or delete many.

Translates HTTP's terms (verb, subresource, content type, query) to calls of the server's verbs.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from kai_py.embedded import subresources
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.deletion import DeleteOptions, delete, delete_all
from kai_py.embedded.documents import Json, clone, name_of, uid_of
from kai_py.embedded.errors import (
    RequestError,
    bad_request,
    method_not_allowed,
    not_found,
    unsupported_media_type,
)
from kai_py.embedded.listing import Lister
from kai_py.embedded.patches import apply_json_patch, apply_merge_patch, apply_strategic_patch
from kai_py.embedded.routing import Target, is_set

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_PATCHES: dict[str, Callable[[Any, Any], Json]] = {
    JSON_PATCH: apply_json_patch,
    MERGE_PATCH: apply_merge_patch,
    STRATEGIC_PATCH: apply_strategic_patch,
}
_SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class WriteRequest(Struct, frozen=True):
    """A decoded body with its content type and the query."""

    body: Any
    content_type: str
    query: Mapping[str, str]

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored."""
        return self.query.get("dryRun") == "All"


class WriteResponse(Struct, frozen=True):
    """The answer; `is_object` when the document is of the resource's kind."""

    document: Json
    code: int = 200
    is_object: bool = True
    warnings: tuple[str, ...] = ()


def read(api: ApiServer, target: Target) -> Json:
    """One object or its scale."""
    if target.subresource not in ("", "status", "scale"):
        raise method_not_allowed()
    document = api.get(target.resource, target.name, target.scope)
    if target.subresource == "scale":
        return subresources.scale_of(document)
    return document


def execute(api: ApiServer, verb: str, target: Target, request: WriteRequest) -> WriteResponse:
    """Execute a write; raises RequestError when it is refused."""
    if not isinstance(request.body, dict) and verb != "patch":
        raise bad_request("the body must be a JSON object")
    match verb:
        case "create" if target.subresource:
            return _post_subresource(api, target, request)
        case "create":
            return _create(api, target, request)
        case "update":
            return _update(api, target, request)
        case "patch":
            return _patch(api, target, request)
        case "delete" if not target.subresource:
            return _delete(api, target, request)
        case "deletecollection":
            options = _delete_options(request)
            delete_all(api, target.resource, Lister(api).select(target, request.query), options)
            return WriteResponse(_SUCCESS | {"details": {}}, is_object=False)
    raise method_not_allowed()


def _create(api: ApiServer, target: Target, request: WriteRequest) -> WriteResponse:
    warnings = _unknown_fields(target, request, request.body)
    created = api.create(target.resource, request.body, target.scope, dry_run=request.dry_run)
    return WriteResponse(created, 201, warnings=warnings)


def _post_subresource(api: ApiServer, target: Target, request: WriteRequest) -> WriteResponse:
    named = (request.body.get("metadata") or {}).get("name", "")
    if named != target.name:
        kind = target.subresource.capitalize()
        raise bad_request(f"name in URL does not match name in {kind} object")
    if target.subresource == "binding":
        subresources.bind(api, target.name, target.scope, request.body)
    elif target.subresource == "eviction":
        subresources.evict(api, target.name, target.scope, request.body)
    else:
        raise method_not_allowed()
    return WriteResponse(_SUCCESS | {"code": 201}, 201, is_object=False)


def _update(api: ApiServer, target: Target, request: WriteRequest) -> WriteResponse:
    resource_and_name = (target.resource, target.name)
    if target.subresource == "scale":
        scale = subresources.set_scale(api, *resource_and_name, target.scope, request.body)
        return WriteResponse(scale, is_object=False)
    if target.subresource == "finalize":
        return WriteResponse(subresources.finalize_namespace(api, target.name, request.body))
    if target.subresource not in ("", "status"):
        raise method_not_allowed()
    warnings = _unknown_fields(target, request, request.body)
    updated = api.update(
        *resource_and_name,
        request.body,
        target.scope,
        subresource=target.subresource,
        dry_run=request.dry_run,
    )
    return WriteResponse(updated, warnings=warnings)


def _patch(api: ApiServer, target: Target, request: WriteRequest) -> WriteResponse:
    if target.subresource == "scale":
        present = subresources.scale_of(api.get(target.resource, target.name, target.scope))
        changed = _change(target, request)(present)
        scale = subresources.set_scale(api, target.resource, target.name, target.scope, changed)
        return WriteResponse(scale, is_object=False)
    if target.subresource not in ("", "status"):
        raise method_not_allowed()
    if request.content_type == APPLY_PATCH:
        return _apply(api, target, request)
    change = _change(target, request)
    warnings: list[str] = []

    def checked(present: Json) -> Json:
        changed = change(present)
        warnings.extend(_unknown_fields(target, request, changed))
        return changed

    return WriteResponse(_edit(api, target, request, checked), warnings=tuple(warnings))


def _edit(
    api: ApiServer, target: Target, request: WriteRequest, change: Callable[[Json], Json]
) -> Json:
    return api.edit(
        target.resource,
        target.name,
        target.scope,
        change,
        subresource=target.subresource,
        dry_run=request.dry_run,
    )


def _change(target: Target, request: WriteRequest) -> Callable[[Json], Json]:
    apply = _PATCHES.get(request.content_type)
    strategic = request.content_type == STRATEGIC_PATCH
    if apply is None or (strategic and target.resource.custom):
        accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        raise unsupported_media_type(
            accepted if target.resource.custom else [*accepted, STRATEGIC_PATCH]
        )
    return lambda present: apply(present, request.body)


def _apply(api: ApiServer, target: Target, request: WriteRequest) -> WriteResponse:
    manager = request.query.get("fieldManager")
    if not manager:
        rule = "fieldManager: Required value: is required for apply patch"
        raise bad_request(f"PatchOptions.meta.k8s.io is invalid: {rule}")
    config, resource = request.body, target.resource
    warnings = _unknown_fields(target, request, config)
    config = _without_metadata_nulls(config)
    if api.find(resource, target.name, target.scope) is None:
        if target.subresource:
            raise not_found(resource.group_resource, target.name)
        document = clone(config)
        document.setdefault("metadata", {}).setdefault("name", target.name)
        applied = api.create(resource, document, target.scope, dry_run=request.dry_run)
        code = 201
    else:
        force = is_set(request.query, "force")

        def change(present: Json) -> Json:
            return api.applied.merge(present, config, manager=manager, force=force)

        applied, code = _edit(api, target, request, change), 200
    if not request.dry_run:
        api.applied.remember(uid_of(applied), config, manager=manager)
    return WriteResponse(applied, code, warnings=warnings)


def _without_metadata_nulls(config: Json) -> Json:
    meta = config.get("metadata")
    if not isinstance(meta, dict):
        return config
    dropped = ("creationTimestamp", "managedFields")
    return {**config, "metadata": {key: each for key, each in meta.items() if key not in dropped}}


def _delete(api: ApiServer, target: Target, request: WriteRequest) -> WriteResponse:
    options = _delete_options(request)
    last, is_removed = delete(api, target.resource, target.name, target.scope, options)
    if not is_removed:
        return WriteResponse(last)
    details = {
        "name": name_of(last),
        "group": target.resource.group,
        "kind": target.resource.plural,
        "uid": uid_of(last),
    }
    return WriteResponse(_SUCCESS | {"details": details}, is_object=False)


def _delete_options(request: WriteRequest) -> DeleteOptions:
    body, query = request.body, request.query
    grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
    if body.get("orphanDependents") is not None:
        raise bad_request("orphanDependents is not served, use propagationPolicy")
    return DeleteOptions(
        grace_seconds=None if grace is None else int(grace),
        policy=query.get("propagationPolicy") or body.get("propagationPolicy") or "",
        dry_run=request.dry_run or bool(body.get("dryRun")),
        preconditions=body.get("preconditions") or {},
    )


def _unknown_fields(target: Target, request: WriteRequest, document: Json) -> tuple[str, ...]:
    mode = request.query.get("fieldValidation", "Warn")
    if mode == "Ignore":
        return ()
    unknown = [f'unknown field "{path}"' for path in target.resource.unknown_fields(document)]
    if unknown and mode == "Strict":
        raise RequestError(
            400,
            "BadRequest",
            f"{target.resource.kind} in version {target.resource.version} cannot be handled as a "
            f"{target.resource.kind}: strict decoding error: {', '.join(unknown)}",
        )
    return tuple(unknown)
