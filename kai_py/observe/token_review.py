"""Authentication and authorization of tokens by the API server.

TokenReview returns the user of a token, SubjectAccessReview whether that user may ``get`` the path
as a non-resource URL, as for any API extension (Kubernetes, "Delegated authentication and
authorization"). Answers are cached for ``CACHE_SECONDS``, as API servers do, for at most
``CACHE_SIZE`` pairs of token and path; of tokens only their digests are stored.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from kai_py.api.records.core import ObjectMeta, Record
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError
from kai_py.watch.resource import define_kind

log = logging.getLogger(__name__)
CACHE_SECONDS = 10.0
CACHE_SIZE = 1000
MAX_CONCURRENT = 4


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


@dataclass(frozen=True, slots=True)
class AccessDenial:
    """Why a request is refused, and the HTTP status of the answer."""

    status: int
    reason: str


@dataclass
class TokenReviews:
    """Reviews tokens through ``client``; belongs to one event loop."""

    client: Client
    _cache: OrderedDict[tuple[bytes, str], tuple[float, AccessDenial | None]] = field(
        default_factory=OrderedDict
    )
    _limiter: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT))

    async def __call__(self, token: str, path: str) -> AccessDenial | None:
        """Why the bearer of ``token`` may not get ``path``; None if it may."""
        key = hashlib.sha256(token.encode()).digest(), path
        cached = self._cache.get(key)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]
        try:
            async with self._limiter:
                refusal = await self._review(token, path)
        except ApiError as error:
            log.warning("cannot review a token: %s", error)
            # Not cached: the next request asks the API server again.
            return AccessDenial(503, "the API server could not review this token")
        self._cache[key] = time.monotonic() + CACHE_SECONDS, refusal
        self._cache.move_to_end(key)
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return refusal

    async def _review(self, token: str, path: str) -> AccessDenial | None:
        review = await self.client.create(TOKEN_REVIEWS, {"spec": {"token": token}})
        if not review.status.authenticated:
            return AccessDenial(401, "this token is unknown here and to the API server")
        user = review.status.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        access = await self.client.create(ACCESS_REVIEWS, {"spec": spec})
        if access.status.allowed:
            return None
        return AccessDenial(403, f"{user.username} may not get {path}: a ClusterRole must allow it")
