"""Copies of records with some fields changed, whether they are dataclasses or Structs."""

import dataclasses

from msgspec import Struct, structs


def replace(value, /, **changes):
    """``value`` with these fields changed."""
    copied = structs.replace if isinstance(value, Struct) else dataclasses.replace
    return copied(value, **changes)
