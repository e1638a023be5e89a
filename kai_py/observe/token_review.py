"""Authentication and authorization of tokens by the API server.

TokenReview returns the user of a token, SubjectAccessReview what that user may do, as for any API
extension (Kubernetes, "Delegated authentication and authorization"). Answers are cached for
``CACHE_SECONDS``, as API servers do, for at most ``CACHE_SIZE`` tokens and as many rights; of
tokens only their digests are stored, and nothing of them is logged.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.record import Record
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, TimedOut
from kai_py.watch.resource import define_kind

log = logging.getLogger(__name__)
TOKEN_VARIABLE = "KAI_PY_HTTP_TOKEN"  # the variable's name, not a token
OWN_HEADER = "X-Kai-Authorization"
"""For tokens that come through the API server's proxy, which removes the header Authorization."""
CACHE_SECONDS = 10.0
CACHE_SIZE = 1000
MAX_CONCURRENT = 4
REVIEW_SECONDS = 10.0
"""Longest wait for one review, the queue for it included."""
MAX_TOKEN = 32_768
"""Longest token; those of OIDC providers with many groups have some thousand characters."""
T = TypeVar("T")


class UserInfo(Record, frozen=True):
    """A user as in TokenReview's status and SubjectAccessReview's spec."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class TokenStatus(Record, frozen=True):
    """Status of a TokenReview."""

    authenticated: bool = False
    user: UserInfo = UserInfo()


class TokenReview(Record, frozen=True):
    """authentication.k8s.io/v1, the fields that we read."""

    metadata: ObjectMeta = ObjectMeta()
    status: TokenStatus = TokenStatus()


class AccessStatus(Record, frozen=True):
    """Status of a SubjectAccessReview."""

    allowed: bool = False


class SubjectAccessReview(Record, frozen=True):
    """authorization.k8s.io/v1, the fields that we read."""

    metadata: ObjectMeta = ObjectMeta()
    status: AccessStatus = AccessStatus()


TOKEN_REVIEWS = define_kind(
    TokenReview,
    "TokenReview",
    "tokenreviews",
    "v1",
    group="authentication.k8s.io",
    namespaced=False,
).at()
ACCESS_REVIEWS = define_kind(
    SubjectAccessReview,
    "SubjectAccessReview",
    "subjectaccessreviews",
    "v1",
    group="authorization.k8s.io",
    namespaced=False,
).at()


class AccessDenial(Struct, frozen=True):
    """Why a request is refused, and the HTTP status of the answer."""

    status: int
    reason: str


UNREVIEWED = AccessDenial(503, "the API server could not review this token")
UNKNOWN = AccessDenial(401, "this token is unknown here and to the API server")


class ObjectAccess(Struct, frozen=True):
    """A verb on objects of a kind, in a namespace ("": in all) or of one name ("": of any)."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes as a SubjectAccessReview has them."""
        names = ("verb", "resource", "group", "namespace", "name")
        return {name: text for name in names if (text := getattr(self, name))}


class TokenReviews:
    """Reviews tokens through ``client``; belongs to one event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._limiter = asyncio.Semaphore(MAX_CONCURRENT)
        self._users = _Cache[UserInfo | AccessDenial]()
        self._rights = _Cache[bool]()

    async def __call__(self, token: str, path: str) -> AccessDenial | None:
        """Why the bearer of ``token`` may not get ``path``; None if it may."""
        user = await self.user(token)
        if isinstance(user, AccessDenial):
            return user
        attributes = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        try:
            if await self._may(user, path, attributes):
                return None
        except ApiError as error:
            log.warning("cannot review a token: %s", error)
            return UNREVIEWED
        return AccessDenial(403, f"{user.username} may not get {path}: a ClusterRole must allow it")

    async def user(self, token: str) -> UserInfo | AccessDenial:
        """The user whose ``token`` it is, or why that is not known."""
        # No token of the API server has other characters; a header may have any bytes.
        if len(token) > MAX_TOKEN or not token.isascii():
            return UNKNOWN
        digest = hashlib.sha256(token.encode()).digest()
        try:
            return await self._users.get(digest, lambda: self._limited(self._identify(token)))
        except ApiError as error:
            log.warning("cannot review a token: %s", error)
            # Not cached: the next request asks the API server again.
            return UNREVIEWED

    async def may(self, user: UserInfo, access: ObjectAccess) -> bool:
        """Whether the user may do what ``access`` says; raises ApiError."""
        return await self._may(user, access, {"resourceAttributes": dict(access.attributes)})

    async def _may(self, user: UserInfo, asked: Hashable, attributes: Mapping[str, Any]) -> bool:
        # The same name may stand for other groups in another token: all of it is the key.
        key = (msgspec.json.encode(user), asked)
        return await self._rights.get(key, lambda: self._limited(self._authorize(user, attributes)))

    async def _limited(self, review: Awaitable[T]) -> T:
        task = asyncio.ensure_future(review)
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                return await task
        except TimeoutError as error:
            raise TimedOut(f"no review within {REVIEW_SECONDS:.0f} s") from error
        finally:
            task.cancel()

    async def _identify(self, token: str) -> UserInfo | AccessDenial:
        async with self._limiter:
            review = await self._client.review(TOKEN_REVIEWS, {"spec": {"token": token}})
        return review.status.user if review.status.authenticated else UNKNOWN

    async def _authorize(self, user: UserInfo, attributes: Mapping[str, Any]) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            **attributes,
        }
        async with self._limiter:
            review = await self._client.review(ACCESS_REVIEWS, {"spec": spec})
        return review.status.allowed


@dataclass
class _Cache(Generic[T]):
    """The last answers by question, each for ``CACHE_SECONDS``; failures are not kept."""

    _answers: OrderedDict[Hashable, tuple[float, T]] = field(default_factory=OrderedDict)

    async def get(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """The kept answer, or that of ``ask``."""
        kept = self._answers.get(question)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        answer = await ask()
        self._answers[question] = time.monotonic() + CACHE_SECONDS, answer
        self._answers.move_to_end(question)
        while len(self._answers) > CACHE_SIZE:
            self._answers.popitem(last=False)
        return answer
