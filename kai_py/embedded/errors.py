"""Refusals of the server: a metav1.Status with Kubernetes' codes, reasons and wording."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from kai_py.api.name_patterns import DNS_LABEL
from kai_py.embedded.documents import Json

_DNS_LABEL = re.compile(DNS_LABEL)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


class RequestError(Exception):
    """A request was refused; `code` and `reason` are those of metav1.Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def status(self) -> Json:
        """The answer's body."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details:
            body["details"] = details
        return body


class FieldError(Struct, frozen=True):
    """An invalid field of an object."""

    path: str
    kind: str
    message: str

    def cause(self) -> Json:
        """The entry of Status.details.causes."""
        return {"reason": self.kind, "message": self.message, "field": self.path}


def required(path: str, detail: str = "") -> FieldError:
    """Report a field that must be set."""
    return FieldError(path, "FieldValueRequired", _with_detail("Required value", detail))


def invalid_value(path: str, value: Any, detail: str) -> FieldError:
    """Report a field with an invalid value."""
    text = f"Invalid value: {json.dumps(value, default=str)}"
    return FieldError(path, "FieldValueInvalid", _with_detail(text, detail))


def forbidden_field(path: str, detail: str) -> FieldError:
    """Report a field that may not be set or changed here."""
    return FieldError(path, "FieldValueForbidden", _with_detail("Forbidden", detail))


def duplicate(path: str, value: Any) -> FieldError:
    """Report a value that may occur only once."""
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {json.dumps(value)}")


def repeated(values: Iterable[object], path: str) -> Iterator[FieldError]:
    """Report values that occur again; ``path`` has braces for their position."""
    seen: set[object] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield duplicate(path.replace("{}", str(index), 1), value)
        seen.add(value)


def label_errors(name: object, path: str) -> list[FieldError]:
    """Report a name that is missing, or no DNS label."""
    if not name:
        return [required(path)]
    if not isinstance(name, str) or not _DNS_LABEL.fullmatch(name):
        return [invalid_value(path, name, _LABEL_RULE)]
    return []


def missing(document: Json, fields: Iterable[str], prefix: str) -> list[FieldError]:
    """Report the fields that a document must set; ``prefix``: what precedes their names."""
    return [required(f"{prefix}{field}") for field in fields if not document.get(field)]


def changed(new: Json, old: Json, fields: Iterable[str], prefix: str = "") -> Iterator[FieldError]:
    """Report the immutable fields that differ; ``prefix``: what precedes their names."""
    for field in fields:
        if new.get(field) != old.get(field):
            yield invalid_value(f"{prefix}{field}", new.get(field), "field is immutable")


def unsupported(path: str, value: Any, allowed: Sequence[Any]) -> FieldError:
    """Report a value that is none of the listed ones."""
    choices = ", ".join(json.dumps(choice) for choice in allowed)
    text = f"Unsupported value: {json.dumps(value)}: supported values: {choices}"
    return FieldError(path, "FieldValueNotSupported", text)


def _with_detail(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def not_found(group_resource: str, name: str) -> RequestError:
    """404: no such object."""
    return _about(404, "NotFound", group_resource, name, f'{group_resource} "{name}" not found')


def no_such_resource() -> RequestError:
    """404: no such path."""
    return RequestError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group_resource: str, name: str) -> RequestError:
    """409: the name is in use."""
    text = f'{group_resource} "{name}" already exists'
    return _about(409, "AlreadyExists", group_resource, name, text)


def conflict(group_resource: str, name: str, why: str) -> RequestError:
    """409: the write does not start from the present state."""
    text = f'Operation cannot be fulfilled on {group_resource} "{name}": {why}'
    return _about(409, "Conflict", group_resource, name, text)


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> RequestError:
    """422: the object has invalid fields."""
    texts = [f"{error.path}: {error.message}" for error in errors]
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    return RequestError(
        422,
        "Invalid",
        f'{qualified} "{name}" is invalid: {listed}',
        details={
            "name": name,
            "group": group,
            "kind": kind,
            "causes": [error.cause() for error in errors],
        },
    )


def forbidden(group_resource: str, name: str, why: str) -> RequestError:
    """403: the request is refused."""
    text = f'{group_resource} "{name}" is forbidden: {why}'
    return _about(403, "Forbidden", group_resource, name, text)


def bad_request(message: str) -> RequestError:
    """400: the request is malformed."""
    return RequestError(400, "BadRequest", message)


def expired(message: str) -> RequestError:
    """410: the requested revision is no longer kept."""
    return RequestError(410, "Expired", message)


def revision_too_large(asked: int, present: int) -> RequestError:
    """504: the requested revision lies in the future."""
    message = f"Too large resource version: {asked}, current: {present}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return RequestError(504, "Timeout", message, details={"causes": [cause]}, retry_after=1)


def method_not_allowed() -> RequestError:
    """405: the resource has no such verb."""
    return RequestError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def unsupported_media_type(accepted: Sequence[str]) -> RequestError:
    """415: the body's content type is not supported here."""
    return RequestError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def not_implemented(what: str) -> RequestError:
    """501: a real API server can do this, the embedded one cannot."""
    return RequestError(501, "NotImplemented", f"the embedded cluster does not implement {what}")


def _about(code: int, reason: str, group_resource: str, name: str, message: str) -> RequestError:
    """An error whose details name the object."""
    plural, _, group = group_resource.partition(".")
    details = {"name": name, "kind": plural} | ({"group": group} if group else {})
    return RequestError(code, reason, message, details=details)
