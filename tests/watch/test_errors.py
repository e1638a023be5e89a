import json

import msgspec
import pytest

from kai_py.watch import errors


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.StatusError),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
    ],
)
def test_code_and_reason_choose_the_type(code, reason, kind):
    body = {"kind": "Status", "code": code, "reason": reason, "message": "because"}
    error = errors.from_response("PUT /x", code, json.dumps(body).encode(), {})
    assert type(error) is kind
    assert (error.code, error.reason) == (code, reason)
    hint = f": {errors._CREDENTIALS_HINT}" if code == 401 else ""
    assert str(error) == f"PUT /x: {code} {reason}: because{hint}"


@pytest.mark.parametrize(
    ("code", "reason", "name", "absent"),
    [
        (404, "NotFound", "a", True),
        (404, "NotFound", "b", False),
        (404, "NotFound", None, False),
        (404, "", "a", False),
        (410, "NotFound", "a", False),
    ],
)
def test_only_an_answer_about_the_object_itself_says_that_it_is_absent(code, reason, name, absent):
    details = {"name": name} if name else None
    body = json.dumps({"code": code, "reason": reason, "details": details}).encode()
    assert errors.is_absent(errors.from_response("GET /a", code, body, {}), "a") is absent
    assert not errors.is_absent(errors.TimedOut("GET /a"), "a")


def test_a_missing_role_is_told_with_what_helps():
    said = 'pods "a" is forbidden: User "u" cannot patch resource "pods" in API group ""'
    body = {"code": 403, "reason": "Forbidden", "message": said}
    error = errors.from_response("PATCH /x", 403, json.dumps(body).encode(), {})
    assert type(error) is errors.RoleMissing
    assert str(error) == (
        f"PATCH /x: 403 Forbidden: {said}: permission denied (kai-py install prints the "
        "roles of the scheduler and its users)"
    )


def test_whom_the_server_does_not_know_is_told_to_log_in():
    message = 'pods is forbidden: User "system:anonymous" cannot list resource "pods"'
    error = errors.from_status("GET /pods", errors.Status(403, "Forbidden", message))
    assert isinstance(error, errors.RoleMissing)
    assert str(error).endswith(f"{message}: {errors._CREDENTIALS_HINT}")


def test_invalid_names_the_fields():
    body = {
        "code": 422,
        "reason": "Invalid",
        "message": "Queue is invalid",
        "details": {
            "causes": [
                {"reason": "FieldValueInvalid", "message": "must be >= 0", "field": "spec.maxGPUs"}
            ]
        },
    }
    error = errors.from_response("POST /x", 422, json.dumps(body).encode(), {})
    assert error.causes == (errors.Cause("FieldValueInvalid", "must be >= 0", "spec.maxGPUs"),)


ABSURD = [("9" * 400, None, 0), ("9" * 18, None, 300), ("", 2**62, 300), ("-7", None, 0)]


@pytest.mark.parametrize(
    ("header", "seconds", "expected"),
    [("7", None, 7), ("", 3, 3), ("2", 5, 5), ("soon", None, 0), *ABSURD],
)
def test_retry_after_comes_from_header_or_details(header, seconds, expected):
    body = {"code": 429, "details": {"retryAfterSeconds": seconds} if seconds else None}
    error = errors.from_response("GET /x", 429, json.dumps(body).encode(), {"Retry-After": header})
    assert error.retry_after == expected


def test_failure_that_is_no_status_shows_its_text():
    error = errors.from_response("GET /x", 502, b"<html>Bad Gateway \xff</html>", {})
    assert isinstance(error, errors.ServerError)
    assert "Bad Gateway" in str(error)


def test_a_code_without_a_reason_is_followed_by_the_text():
    body = b"Client sent an HTTP request to an HTTPS server.\n"
    error = errors.from_response("GET /x", 400, body, {})
    assert str(error) == "GET /x: 400: Client sent an HTTP request to an HTTPS server."


def test_error_event_without_a_status_is_a_server_error():
    error = errors.from_event("GET /x", msgspec.Raw(b'"boom"'))
    assert isinstance(error, errors.ServerError)
