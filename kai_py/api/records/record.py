"""The base of all records."""

import msgspec

QuantityText = str | int | float


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all records: the API's camelCase outside, snake_case inside."""
