"""Whom the API server knows and what it lets them read; cluster/test_readers.py asks a real one."""

import asyncio

from kai_py.observe import token_review
from kai_py.observe.token_review import (
    AccessStatus,
    SubjectAccessReview,
    TokenReview,
    TokenReviews,
    TokenStatus,
    UserInfo,
)
from kai_py.watch.errors import Unreachable


class ApiServer:
    """Knows the token "anna"; ``allowed`` are the paths that anna may get."""

    def __init__(self, *allowed):
        self.allowed = allowed
        self.asked = []
        self.down = False

    async def review(self, resource, body):
        if self.down:
            raise Unreachable("no route")
        self.asked.append((resource.kind.name, body["spec"]))
        if resource.kind.name == "TokenReview":
            anna = UserInfo(username="anna", uid="7", groups=("g",), extra={"k": ("v",)})
            known = body["spec"]["token"] == "anna"
            return TokenReview(status=TokenStatus(authenticated=known, user=anna))
        path = body["spec"]["nonResourceAttributes"]["path"]
        return SubjectAccessReview(status=AccessStatus(allowed=path in self.allowed))


async def test_a_user_is_asked_about_with_all_that_is_known_of_it():
    server = ApiServer("/v1/state")
    assert await TokenReviews(server)("anna", "/v1/state") is None
    (_, token), (_, access) = server.asked
    assert token == {"token": "anna"}
    assert access == {
        "user": "anna",
        "uid": "7",
        "groups": ("g",),
        "extra": {"k": ("v",)},
        "nonResourceAttributes": {"path": "/v1/state", "verb": "get"},
    }


async def test_unknown_is_401_and_not_allowed_is_403():
    reviews = TokenReviews(ApiServer("/v1/state"))
    assert (await reviews("eve", "/v1/state")).status == 401
    refusal = await reviews("anna", "/v1/nodes")
    assert refusal.status == 403
    assert "anna may not get /v1/nodes" in refusal.reason


async def test_answers_are_kept_a_while_per_token_and_path(monkeypatch):
    now = 100.0
    monkeypatch.setattr(token_review.time, "monotonic", lambda: now)
    server = ApiServer("/v1/state")
    reviews = TokenReviews(server)
    for _ in range(3):
        assert await reviews("anna", "/v1/state") is None
    assert len(server.asked) == 2
    assert (await reviews("anna", "/v1/nodes")).status == 403
    server.allowed = ()
    assert await reviews("anna", "/v1/state") is None
    now += token_review.CACHE_SECONDS
    assert (await reviews("anna", "/v1/state")).status == 403


async def test_few_answers_are_kept_and_no_token(monkeypatch):
    monkeypatch.setattr(token_review, "CACHE_SIZE", 3)
    reviews = TokenReviews(ApiServer())
    for number in range(10):
        await reviews(f"secret-{number}", "/v1/state")
        await reviews("anna", f"/v1/{number}")
    kept = (reviews._users, reviews._rights)
    assert [len(cache._answers) for cache in kept] == [3, 3]
    assert "secret" not in repr(kept)
    assert "anna" not in repr(reviews._users._answers.keys())


async def test_a_server_that_does_not_answer_opens_nothing_and_is_asked_again():
    server = ApiServer("/v1/state")
    reviews = TokenReviews(server)
    server.down = True
    assert (await reviews("anna", "/v1/state")).status == 503
    server.down = False
    assert await reviews("anna", "/v1/state") is None


async def test_a_review_that_hangs_opens_nothing_and_ends(monkeypatch):
    monkeypatch.setattr(token_review, "REVIEW_SECONDS", 0.05)

    class Hanging(ApiServer):
        async def review(self, resource, body):
            await asyncio.Event().wait()

    refusal = await TokenReviews(Hanging("/v1/state"))("anna", "/v1/state")
    assert refusal.status == 503


async def test_bytes_that_are_no_text_are_not_sent_on():
    server = ApiServer("/v1/state")
    token = b"anna\xff".decode(errors="surrogateescape")
    assert (await TokenReviews(server)(token, "/v1/state")).status == 401
    assert not server.asked


async def test_an_enormous_token_is_not_sent_on():
    server = ApiServer("/v1/state")
    assert (await TokenReviews(server)("x" * 100_000, "/v1/state")).status == 401
    assert server.asked == []
