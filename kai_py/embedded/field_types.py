"""Types of the fields of built-in kinds, by the records in which the scheduler reads them.

The API server decodes into Go types and refuses a number in place of a text, or a fraction in place
of a whole number. The records declare the same types for the fields that matter here.
"""

import msgspec

from kai_py.api.records.admission import LimitRange, RuntimeClass
from kai_py.api.records.decoding import record_decoder
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import bad_request
from kai_py.embedded.resources import ServedResource
from kai_py.watch.kinds import WATCHED

_DECODERS = {
    (kind.group, version, kind.name): decode
    for kind in WATCHED
    for version, decode in kind.versions.items()
} | {
    ("node.k8s.io", "v1", "RuntimeClass"): record_decoder(RuntimeClass),
    ("", "v1", "LimitRange"): record_decoder(LimitRange),
}
_WHOLE_NUMBERS = {("scheduling.k8s.io", "PriorityClass"): (("value",), 1 << 31)}
"""Fields whose Go type is int32, and the first number that it cannot hold."""


def check_field_types(resource: ServedResource, document: Json) -> None:
    """Raise RequestError 400 for a field of another type than the API declares."""
    decode = _DECODERS.get((resource.group, resource.version, resource.kind))
    if decode is None or resource.custom:
        return
    name = f"{resource.kind} in version {resource.version!r} cannot be handled"
    try:
        decode(msgspec.json.encode(document))
    except (ValueError, RecursionError) as error:
        raise bad_request(f"{name} as a {resource.kind}: {error}") from None
    fields, limit = _WHOLE_NUMBERS.get((resource.group, resource.kind), ((), 0))
    for field in fields:
        value = document.get(field)
        if isinstance(value, int) and not -limit <= value < limit:
            raise bad_request(f"{name} as a {resource.kind}: {field}: {value} is no int32")
