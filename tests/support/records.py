"""Records of documents.

Copies of records with some fields changed, whether they are dataclasses or Structs.
"""

import dataclasses
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from kai_py.api.records.resource_versions import decoder

T = TypeVar("T")


def from_json(kind: type[T], document: Any, version: str = "v1") -> T:
    """Convert a parsed JSON or YAML document; raises msgspec.ValidationError naming the path."""
    return decoder(kind, version)(msgspec.json.encode(document))


def replace(value, /, **changes):
    """``value`` with these fields changed."""
    copied = structs.replace if isinstance(value, Struct) else dataclasses.replace
    return copied(value, **changes)
