"""Discovery documents, version, and the part of OpenAPI that kubectl needs.

The OpenAPI documents list paths and the parameters of writes, no schemas: enough for kubectl to
leave validation to the server, not enough for `kubectl explain`.
"""

from kai_py.embedded.documents import Json
from kai_py.embedded.errors import no_such_resource
from kai_py.embedded.resources import Registry, ServedResource

VERSION: Json = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0-kai-py-embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_POST_ONLY = {"binding": ("Binding", "v1"), "eviction": ("Eviction", "policy/v1")}


def document(registry: Registry, path: str, *, address: str) -> Json | None:
    """The document of a discovery path, None for any other path.

    Raises RequestError 404 for a discovery path of a group or version that is not served.
    """
    found: Json | None
    match path.strip("/").split("/"):
        case ["version"]:
            found = VERSION
        case ["api"]:
            found = core_versions(address)
        case ["apis"]:
            found = group_list(registry)
        case ["apis", name]:
            found = group(registry, name)
        case ["api", version]:
            found = resource_list(registry, "", version)
        case ["apis", name, version]:
            found = resource_list(registry, name, version)
        case ["openapi", "v3"]:
            found = openapi_index(registry)
        case ["openapi", "v3", *root]:
            found = openapi_document(registry, "/".join(root))
        case _:
            return None
    if found is None:
        raise no_such_resource()
    return found


def core_versions(address: str) -> Json:
    """Return /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: Registry) -> Json:
    """Return /apis."""
    names = dict.fromkeys(resource.group for resource in registry if resource.group)
    groups = [group(registry, name) for name in names]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Json | None:
    """Return /apis/GROUP, None for an unknown group."""
    versions = dict.fromkeys(each.version for each in registry if each.group == name)
    if not versions:
        return None
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": entries,
        "preferredVersion": entries[0],
    }


def resource_list(registry: Registry, group_name: str, version: str) -> Json | None:
    """Return /api/v1 or /apis/GROUP/VERSION, None for an unknown one."""
    served = [each for each in registry if (each.group, each.version) == (group_name, version)]
    if not served:
        return None
    entries = [entry for resource in served for entry in _entries(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].api_version,
        "resources": entries,
    }


def openapi_index(registry: Registry) -> Json:
    """Return /openapi/v3."""
    paths = dict.fromkeys(_root(resource) for resource in registry)
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi_document(registry: Registry, root: str) -> Json | None:
    """Return /openapi/v3/ROOT, None for an unknown one."""
    served = [resource for resource in registry if _root(resource) == root]
    if not served:
        return None
    paths = {}
    for resource in served:
        base = f"/{root}/namespaces/{{namespace}}" if resource.namespaced else f"/{root}"
        paths[f"{base}/{resource.plural}"] = {"post": _operation(resource, "post")}
        paths[f"{base}/{resource.plural}/{{name}}"] = {
            method: _operation(resource, method) for method in ("put", "patch")
        }
    info = {"title": "kai_py embedded cluster", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _entries(resource: ServedResource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return [entry, *(_subresource_entry(resource, name) for name in resource.subresources)]


def _subresource_entry(resource: ServedResource, name: str) -> Json:
    entry: Json = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["get", "patch", "update"],
    }
    if name in _POST_ONLY:
        kind, api_version = _POST_ONLY[name]
        group_name, _, version = api_version.rpartition("/")
        entry |= {"kind": kind, "verbs": ["create"], "group": group_name, "version": version}
    if name == "scale":
        entry |= {"kind": "Scale", "group": "autoscaling", "version": "v1"}
    if name == "finalize":
        entry["verbs"] = ["update"]
    return entry


def _root(resource: ServedResource) -> str:
    prefix = "apis" if resource.group else "api"
    return f"{prefix}/{resource.api_version}"


def _operation(resource: ServedResource, method: str) -> Json:
    names = ["dryRun", "fieldManager", "fieldValidation"]
    if method == "patch":
        names.append("force")
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    return {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": kind,
        "x-kubernetes-action": method,
    }
