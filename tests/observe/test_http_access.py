"""Who may read /v1."""

import pytest

from kai_py.observe.http_access import HttpAccess
from kai_py.observe.token_review import TOKEN_VARIABLE


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:1", "[::1]:8080", "localhost"])
def test_the_machine_itself_needs_no_token(host):
    assert HttpAccess("127.0.0.1").denial("", host) == ""


@pytest.mark.parametrize(
    "host",
    ["evil.example:8080", "", "10.0.0.1", "127.0.0.1.evil.example", "[", "[::1", "[::1:80", "]["],
)
def test_loopback_under_another_name_is_refused(host):
    assert "localhost" in HttpAccess("127.0.0.1").denial("", host)


@pytest.mark.parametrize("listening", ["0.0.0.0", "::", "10.1.2.3", "scheduler"])
def test_elsewhere_nothing_is_open_without_a_token(listening):
    refusal = HttpAccess(listening).denial("Bearer ", "localhost:8080")
    assert "http.tokenFile" in refusal


async def test_elsewhere_a_reviewed_token_opens_and_no_token_does_not():
    async def allow_all(token, path):
        return None

    access = HttpAccess("0.0.0.0", review=allow_all)
    assert await access.denial_after_review("Bearer x", "any", "/v1/state") is None
    for nothing in ("", "Bearer", "Bearer ", "Basic x"):
        refusal = await access.denial_after_review(nothing, "localhost", "/v1/state")
        assert refusal.status == 401
        assert "bearer token" in refusal.reason


def test_the_token_opens(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text("secret\n")
    access = HttpAccess("0.0.0.0", path)
    assert access.denial("Bearer secret", "any") == ""
    for wrong in ("", "Bearer", "Bearer secre", "Basic secret", "secret", "Bearer sécret"):
        assert "bearer token" in access.denial(wrong, "any")
    path.write_text("changed")
    assert access.denial("Bearer changed", "any") == ""
    monkeypatch.setenv(TOKEN_VARIABLE, "from-env")
    assert HttpAccess("0.0.0.0").denial("bearer from-env", "any") == ""
    assert HttpAccess("127.0.0.1").denial("", "localhost")


def test_bytes_that_are_no_text_open_nothing(tmp_path):
    path = tmp_path / "token"
    path.write_text("secret")
    header = b"Bearer \xff".decode(errors="surrogateescape")
    assert "bearer token" in HttpAccess("0.0.0.0", path).denial(header, "any")


def test_a_token_file_that_says_nothing_opens_nothing(tmp_path):
    path = tmp_path / "token"
    assert "cannot be read" in HttpAccess("127.0.0.1", path).denial("Bearer x", "localhost")
    path.write_text("\n")
    assert "is empty" in HttpAccess("127.0.0.1", path).denial("Bearer ", "localhost")
