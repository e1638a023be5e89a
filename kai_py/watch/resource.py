"""Kinds of the API, and the resources at which a server serves them.

A ``Kind`` is fixed when the program is written: its names, and for every version that we understand
the decoder that turns the server's JSON into one record type. A ``Resource`` is a kind at a version
that a server serves; it knows the URL paths. Discovery maps kinds to resources.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from kai_py.api.records.interning import interned
from kai_py.api.records.record import record_decoder
from kai_py.watch.errors import InvalidName


class Metadata(Protocol):
    """The metadata that the mirror reads."""

    @property
    def name(self) -> str:
        """Name, unique within namespace and kind."""

    @property
    def namespace(self) -> str:
        """Namespace, empty for a cluster-scoped kind."""

    @property
    def uid(self) -> str:
        """Identity: an object recreated under the same name has another one."""

    @property
    def resource_version(self) -> str:
        """Opaque; equal values for one object mean equal content."""


class Identified(Protocol):
    """Any record of an API object."""

    @property
    def metadata(self) -> Metadata:
        """Identity of the object."""


T = TypeVar("T", bound=Identified)
Decode = Callable[[bytes | msgspec.Raw], T]
"""JSON of one object to a record; raises ``ValueError`` (as msgspec and pydantic do)."""
Key = tuple[str, str]
"""(namespace, name)"""
PATH_CHARACTERS = "!$&'()*+,;=:@"
"""What stands for itself in a segment of a path, beside letters, digits and ``-._~`` (RFC 3986)."""


def key_of(record: Identified) -> Key:
    """The key of a record in its collection."""
    return record.metadata.namespace, record.metadata.name


@dataclass(frozen=True, eq=False)
class Kind(Generic[T]):
    """A kind that we can read, at one or several versions; kinds are compared by identity."""

    name: str
    plural: str
    versions: dict[str, Decode[T]]
    """Decoder by version, the preferred version first."""
    group: str = ""
    namespaced: bool = True
    metadata_only: bool = False
    """Ask the server for PartialObjectMetadata only."""
    required: bool = False
    """Wait for it where it is served; other kinds may be refused to us."""
    holds_capacity: bool = False
    """An object of which some fields cannot be decoded is read without them, not left out."""

    @property
    def collection_name(self) -> str:
        """Plural name; with the group for a custom resource, for several groups have queues."""
        built_in = "." not in self.group or self.group.endswith(".k8s.io")
        return self.plural if built_in else f"{self.plural}.{self.group}"

    @property
    def permission(self) -> str:
        """Resource and group as roles and ``kubectl auth can-i`` name them."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def version_problem(self, api_version: str) -> str:
        """Why objects of this API version cannot be read; "" if they can."""
        if api_version.rpartition("/")[2] in self.versions:
            return ""
        return f"{api_version} is not supported: use {', '.join(self.versions)}"

    def at(self, version: str = "") -> "Resource[T]":
        """The resource at a version, by default the preferred one."""
        version = version or next(iter(self.versions))
        return Resource(kind=self, version=version, decode=self.versions[version])


def define_kind(
    record: type[T],
    name: str,
    plural: str,
    *versions: str,
    group: str = "",
    namespaced: bool = True,
    metadata_only: bool = False,
    required: bool = False,
    holds_capacity: bool = False,
) -> Kind[T]:
    """Declare a kind whose versions are all decoded by the same msgspec record."""
    decode = interned(record_decoder(record))
    return Kind(
        name=name,
        plural=plural,
        versions=dict.fromkeys(versions, decode),
        group=group,
        namespaced=namespaced,
        metadata_only=metadata_only,
        required=required,
        holds_capacity=holds_capacity,
    )


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind at a version that a server serves."""

    kind: Kind[T]
    version: str
    decode: Decode[T]

    @property
    def api_version(self) -> str:
        """``apiVersion`` as written in a manifest."""
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    @property
    def root(self) -> str:
        """URL path of the group and version."""
        return f"/apis/{self.api_version}" if self.kind.group else f"/api/{self.version}"

    def collection(self, namespace: str = "") -> str:
        """URL path of the collection, of all namespaces if none is given."""
        if namespace and self.kind.namespaced:
            return f"{self.root}/namespaces/{namespace}/{self.kind.plural}"
        return f"{self.root}/{self.kind.plural}"

    def object(self, name: str, namespace: str = "", subresource: str = "") -> str:
        """URL path of an object or of a subresource of it; raises InvalidName.

        Owner references and specs may name anything, also another path or a query.
        """
        if self.kind.namespaced != bool(namespace):
            scope = "needs a namespace" if self.kind.namespaced else "has no namespace"
            raise ValueError(f"{self.kind.name} {namespace}/{name}: this kind {scope}")
        # Source: IsValidPathSegmentName (k8s.io/apimachinery/pkg/api/validation/path).
        if name in ("", ".", "..") or "/" in name or "%" in name:
            raise InvalidName(f"{self.kind.name} {namespace}/{name}: no object has such a name")
        path = f"{self.collection(namespace)}/{quote(name, safe=PATH_CHARACTERS)}"
        return f"{path}/{subresource}" if subresource else path
