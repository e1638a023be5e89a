"""Routing: path, method and query of a request, as data."""

from collections.abc import Mapping

from msgspec import Struct

from kai_py.embedded.errors import bad_request, method_not_allowed, no_such_resource
from kai_py.embedded.resources import Registry, ServedResource


class Target(Struct, frozen=True, kw_only=True):
    """The target of a path; `namespace` is None for a list over all namespaces."""

    resource: ServedResource
    namespace: str | None
    name: str
    subresource: str

    @property
    def scope(self) -> str:
        """The namespace of a single object, empty for a cluster-scoped one."""
        return self.namespace or ""


def parse_path(path: str, registry: Registry) -> Target:
    """Resolve /api/v1/… and /apis/GROUP/VERSION/…; raises RequestError 404 for anything else."""
    parts = [part for part in path.split("/") if part]
    group, version, rest = _split_group(parts)
    namespace = None
    if len(rest) >= 3 and rest[0] == "namespaces" and not _is_namespace_part(group, rest):
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        raise no_such_resource()
    plural, name, subresource = (*rest, "", "")[:3]
    resource = registry.at(group, version, plural)
    if resource.namespaced:
        if name and namespace is None:
            raise no_such_resource()
    elif namespace is not None:
        raise no_such_resource()
    if subresource and subresource not in resource.subresources:
        raise no_such_resource()
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource)


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """The API's verb for an HTTP method; raises RequestError 405 for an impossible one."""
    if method == "GET":
        if target.name:
            return "get"
        return "watch" if is_set(query, "watch") else "list"
    verbs = {
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete" if target.name else "deletecollection",
    }
    verb = verbs.get(method)
    if verb is None or (verb in ("update", "patch")) > bool(target.name):
        raise method_not_allowed()
    if verb == "create" and bool(target.name) != bool(target.subresource):
        raise method_not_allowed()
    return verb


def is_set(query: Mapping[str, str], name: str) -> bool:
    """A boolean query parameter."""
    return query.get(name, "").lower() in ("true", "1")


def integer(query: Mapping[str, str], name: str) -> int | None:
    """An integer query parameter, None if absent; raises RequestError 400 if malformed."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise bad_request(f'strconv.ParseUint: parsing "{text}": invalid syntax ({name})')
    return int(text)


def _split_group(parts: list[str]) -> tuple[str, str, list[str]]:
    if len(parts) >= 3 and parts[0] == "api":
        return "", parts[1], parts[2:]
    if len(parts) >= 4 and parts[0] == "apis":
        return parts[1], parts[2], parts[3:]
    raise no_such_resource()


def _is_namespace_part(group: str, rest: list[str]) -> bool:
    return group == "" and len(rest) == 3 and rest[2] in ("status", "finalize")
