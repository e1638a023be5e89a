"""CustomResourceDefinitions: registers the resources they define.

On every change of a CRD its versions are registered with the schema's pruning, defaults, checks and
CEL rules, and its columns; deleting it deletes its objects. Objects of all versions are stored once
and differ in apiVersion only (conversion strategy None; webhooks are refused).
"""

import json
from functools import lru_cache, partial
from typing import Any

from kai_py.api.records.unstructured import value_at
from kai_py.embedded import schema as structural
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.cel_rules import check_rules
from kai_py.embedded.cel_validation import Validator, make_validator
from kai_py.embedded.columns import AGE, CRD, NAME, Column, age_since, json_path
from kai_py.embedded.deletion import delete_all
from kai_py.embedded.documents import Json, with_condition
from kai_py.embedded.errors import FieldError, invalid_value, not_implemented, required
from kai_py.embedded.kinds import KindRules
from kai_py.embedded.resources import ServedResource
from kai_py.embedded.store import Change, ChangeType

STORAGE = "customresourcedefinitions.apiextensions.k8s.io"
SCHEMAS_KEPT = 32
"""Clusters of one process compile the rules of these once; a simulation makes many clusters."""
_ESTABLISHED = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


class CustomResources:
    """Keeps the registry in line with the CRDs in the store."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._definitions = definitions_resource()
        api.registry.add(self._definitions)
        api.store.subscribe(self._receive)

    def _receive(self, change: Change) -> None:
        if change.storage != STORAGE:
            return
        spec = change.object["spec"]
        storage = f"{spec['names']['plural']}.{spec['group']}"
        if change.type is ChangeType.DELETED:
            self._withdraw(storage)
            return
        self._api.registry.remove(storage)
        for version in spec["versions"]:
            if version.get("served"):
                self._api.registry.add(custom_resource(change.object, version))
        if change.type is ChangeType.ADDED:
            self._establish(change.object)

    def _withdraw(self, storage: str) -> None:
        for resource in self._api.registry:
            if resource.storage == storage:
                delete_all(self._api, resource, self._api.list(resource))
                break
        self._api.registry.remove(storage)

    def _establish(self, definition: Json) -> None:
        spec, status = definition["spec"], dict(definition.get("status") or {})
        for kind, reason, message in _ESTABLISHED:
            condition = {"type": kind, "status": "True", "reason": reason, "message": message}
            status = with_condition(status, condition, now=self._api.clock.now())
        status["acceptedNames"] = spec["names"]
        status["storedVersions"] = [
            each["name"] for each in spec["versions"] if each.get("storage")
        ]
        self._api.patch_status(self._definitions, definition, status)


def definitions_resource() -> ServedResource:
    """The resource of CRDs themselves."""
    return ServedResource(
        group="apiextensions.k8s.io",
        version="v1",
        plural="customresourcedefinitions",
        kind="CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        subresources=("status",),
        columns=CRD,
        rules=KindRules(
            default=_default_definition,
            validate=_validate_definition,
            validate_update=lambda new, _old: _validate_definition(new),
        ),
    )


def custom_resource(definition: Json, version: Json) -> ServedResource:
    """The resource that one version of a CRD serves."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    schema = value_at(version, "schema.openAPIV3Schema") or {}
    subresources = version.get("subresources") or {}
    stored = next(each["name"] for each in spec["versions"] if each.get("storage"))
    fields = version.get("selectableFields") or ()
    return ServedResource(
        group=group,
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=("status",) if "status" in subresources else (),
        selectable=tuple(each["jsonPath"].lstrip(".") for each in fields),
        columns=_columns(version),
        rules=_rules(schema),
        custom=True,
        to_stored=partial(_with_version, api_version=f"{group}/{stored}"),
        to_served=partial(_with_version, api_version=f"{group}/{version['name']}"),
        unknown_fields=partial(structural.unknown_fields, schema=schema),
    )


def _with_version(document: Json, *, api_version: str) -> Json:
    if document["apiVersion"] == api_version:
        return document
    return {**document, "apiVersion": api_version}


def _rules(schema: Json) -> KindRules:
    validator = _validator(_as_text(schema))

    def default(document: Json) -> None:
        structural.prune(document, schema, root=True)
        structural.apply_defaults(document, schema)

    def validate(document: Json, before: Json | None = None) -> list[FieldError]:
        errors = structural.validate(document, schema, "")
        if errors or validator is None:
            return errors
        return validator.validate(document, before)

    return KindRules(
        default=default,
        validate=validate,
        validate_update=validate,
        validate_status=validate,
    )


def _as_text(schema: Json) -> str:
    return json.dumps(schema, default=str)  # a file's dates are no JSON


@lru_cache(maxsize=SCHEMAS_KEPT)
def _validator(schema: str) -> Validator | None:
    """The compiled rules of a schema, written as JSON: clusters of one process share them."""
    return make_validator(json.loads(schema))


def _columns(version: Json) -> tuple[Column, ...]:
    printed = version.get("additionalPrinterColumns")
    if not printed:
        return (NAME, AGE)
    return (NAME, *(_column(each) for each in printed))


def _column(printed: Json) -> Column:
    path = printed["jsonPath"]
    is_date = printed["type"] == "date"
    return Column(
        printed["name"],
        age_since(path.lstrip(".")) if is_date else json_path(path),
        type="string" if is_date else printed["type"],
        priority=printed.get("priority", 0),
        format=printed.get("format", ""),
        description=printed.get("description", ""),
    )


def _default_definition(definition: Json) -> None:
    spec = definition.get("spec") or {}
    spec.setdefault("conversion", {"strategy": "None"})
    names = spec.get("names") or {}
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")


def _validate_definition(definition: Json) -> list[FieldError]:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    fields = {"group": spec, "scope": spec, "versions": spec, "plural": names, "kind": names}
    errors = [
        required(f"spec.{'names.' if holder is names else ''}{field}")
        for field, holder in fields.items()
        if not holder.get(field)
    ]
    if errors:
        return errors
    if spec["conversion"].get("strategy") != "None":
        raise not_implemented("conversion webhooks of CustomResourceDefinitions")
    expected = f"{names['plural']}.{spec['group']}"
    if definition["metadata"]["name"] != expected:
        rule = f'must be spec.names.plural+"."+spec.group ({expected})'
        errors.append(invalid_value("metadata.name", definition["metadata"]["name"], rule))
    if sum(bool(each.get("storage")) for each in spec["versions"]) != 1:
        rule = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", None, rule))
    for index, version in enumerate(spec["versions"]):
        errors += _validate_version(version, f"spec.versions[{index}]")
    return errors + _check_schemas(spec["versions"])


def _check_schemas(versions: list[Json]) -> list[FieldError]:
    """Check the rules of all versions; equal schemas are one, spec.validation, as upstream."""
    schemas = [value_at(version, "schema.openAPIV3Schema") or {} for version in versions]
    if all(schema == schemas[0] for schema in schemas):
        return [*_check_rules(_as_text(schemas[0]), "spec.validation.openAPIV3Schema")]
    return [
        error
        for index, schema in enumerate(schemas)
        for error in _check_rules(
            _as_text(schema), f"spec.versions[{index}].schema.openAPIV3Schema"
        )
    ]


@lru_cache(maxsize=SCHEMAS_KEPT)
def _check_rules(schema: str, path: str) -> tuple[FieldError, ...]:
    """The errors in the rules of a schema, written as JSON."""
    return tuple(check_rules(json.loads(schema), path))


def _validate_version(version: Json, path: str) -> list[FieldError]:
    schema: Any = value_at(version, "schema.openAPIV3Schema")
    if not schema:
        return [required(f"{path}.schema.openAPIV3Schema", "schemas are required")]
    if "scale" in (version.get("subresources") or {}):
        raise not_implemented("the scale subresource of custom resources")
    errors = []
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        try:
            json_path(column["jsonPath"])
        except ValueError as error:
            column_path = f"{path}.additionalPrinterColumns[{index}].jsonPath"
            errors.append(invalid_value(column_path, column["jsonPath"], str(error)))
    return errors
