"""Errors of the API server, as types a caller can act on.

    ApiError
    ├── Unreachable            no answer: refused, reset, broken TLS, connection cut
    │   └── TimedOut           no answer within the time given; a write may still have happened
    ├── Malformed              an answer that is not what the API promises
    ├── CredentialsError       no usable kubeconfig or service account
    ├── InvalidName            no object can have this name; nothing was sent
    └── StatusError            the server answered with a failure
        ├── BadRequest         400
        ├── Unauthorized       401
        ├── Forbidden          403
        │   └── RoleMissing    403 of RBAC
        ├── NotFound           404
        ├── AlreadyExists      409 on create: the name is in use
        ├── Conflict           409 otherwise: read again, then retry
        ├── Gone               410: the resourceVersion or continue token is too old, list again
        ├── Invalid            422, ``causes`` name the fields
        ├── TooManyRequests    429, retry after ``retry_after`` seconds
        └── ServerError        5xx, ``retry_after`` seconds where the server says so

Source: metav1.Status and its reasons (k8s.io/apimachinery/pkg/apis/meta/v1/types.go).
"""

from collections.abc import Mapping

import msgspec

from kai_py.api.numbers import parse_int64

MAX_RETRY_AFTER = 300.0
"""Seconds; what asks for a longer wait gets this one."""


class ApiError(Exception):
    """Base of all errors between us and the API server."""

    retry_after: float = 0.0
    """Seconds the server asks us to wait before the next attempt; 0 where it does not say."""


class Unreachable(ApiError):
    """No answer from the server."""


class TimedOut(Unreachable):
    """No answer within the time given; a write may still have happened."""


class Malformed(ApiError):
    """The answer is not valid."""


class CredentialsError(ApiError):
    """No usable credentials; the text says where they were looked for."""


class InvalidName(ApiError):
    """No object can have this name, so no request was made."""


class Cause(msgspec.Struct, frozen=True):
    """One reason of a rejected object, ``field`` as a path such as ``spec.maxGPUs``."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.StatusDetails, the fields that we read."""

    name: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: float = 0


class Status(msgspec.Struct, frozen=True):
    """metav1.Status, the body of every failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class StatusError(ApiError):
    """The server answered with a failure; the text names the call and the server's message."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        name: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.name = name
        self.causes = causes
        self.retry_after = retry_after


class BadRequest(StatusError):
    """400."""


class Unauthorized(StatusError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(StatusError):
    """403: an RBAC rule or an admission policy forbids the call."""


class RoleMissing(Forbidden):
    """403 of RBAC: no role of ours allows the call."""


class NotFound(StatusError):
    """404: neither the object nor, for a missing CRD, the collection (``is_absent`` tells)."""


class AlreadyExists(StatusError):
    """409 on create: an object of that name exists."""


class Conflict(StatusError):
    """409: the object has changed since it was read."""


class Gone(StatusError):
    """410: the server no longer has that point in history."""


class Invalid(StatusError):
    """422: the object breaks a rule of its kind; ``causes`` name the fields."""


class TooManyRequests(StatusError):
    """429: the server is busy, or a disruption budget forbids the eviction now."""


class ServerError(StatusError):
    """5xx."""


def is_absent(error: ApiError, name: str) -> bool:
    """Whether the API server says that the object ``name`` does not exist.

    Any other 404 (a proxy without a route, a group that is not served yet) says nothing of it.
    """
    return isinstance(error, NotFound) and error.reason == "NotFound" and error.name == name


_BY_CODE: dict[int, type[StatusError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_STATUS = msgspec.json.Decoder(Status)
_RBAC_MARKER = " cannot "
"""Part of RBAC's messages, ``User "U" cannot VERB resource "R"``, not of admission policies'."""
_ROLE_HINT = "permission denied (kai-py install prints the roles of the scheduler and its users)"
_ANONYMOUS = 'User "system:anonymous"'
_CREDENTIALS_HINT = (
    "the credentials are missing, wrong or expired (log in again, or name another kubeconfig)"
)


def from_status(call: str, status: Status, *, code: int = 0, wait: float = 0.0) -> StatusError:
    """The error for a metav1.Status; ``call`` is the request, ``code`` the HTTP code."""
    code = code or status.code
    kind = _BY_CODE.get(code, ServerError if code >= 500 else StatusError)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    details = status.details or StatusDetails()
    text = f"{call}: {' '.join(filter(None, (str(code), status.reason)))}: {status.message}"
    is_unknown = kind is Unauthorized or _ANONYMOUS in status.message
    if kind is Forbidden and _RBAC_MARKER in status.message:
        kind = RoleMissing
    if is_unknown or kind is RoleMissing:
        text = f"{text}: {_CREDENTIALS_HINT if is_unknown else _ROLE_HINT}"
    return kind(
        text,
        code=code,
        reason=status.reason,
        name=details.name,
        causes=details.causes or (),
        retry_after=min(max(wait, details.retry_after_seconds), MAX_RETRY_AFTER),
    )


def from_response(call: str, code: int, body: bytes, headers: Mapping[str, str]) -> StatusError:
    """The error for an HTTP failure, also one that does not come from an API server."""
    try:
        status = _STATUS.decode(body)
    except ValueError:
        status = Status(message=body[:200].decode(errors="replace").strip())
    return from_status(call, status, code=code, wait=_seconds(headers.get("Retry-After", "")))


def from_event(call: str, body: msgspec.Raw) -> StatusError:
    """The error for the object of an ERROR event."""
    try:
        return from_status(call, _STATUS.decode(body))
    except ValueError:
        return ServerError(f"{call}: an ERROR event without a Status")


def _seconds(text: str) -> float:
    return float(parse_int64(text) or 0)
