"""Records of documents."""

from typing import Any, TypeVar

import msgspec

from kai_py.api.records.resource_versions import decoder

T = TypeVar("T")


def from_json(kind: type[T], document: Any, version: str = "v1") -> T:
    """Convert a parsed JSON or YAML document; raises msgspec.ValidationError naming the path."""
    return decoder(kind, version)(msgspec.json.encode(document))
