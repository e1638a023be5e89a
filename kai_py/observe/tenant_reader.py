"""Readers with limited rights: which namespaces, queues and nodes the API server lets them see.

The API server is asked for rights on the objects in an answer: to list the pods of a namespace, to
get queues, to list nodes. So a user who sees its pods with ``kubectl`` sees their gangs here, and
no role for paths is needed. The number of reviews of an answer is bounded; the namespaces that a
question names come first.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kai_py.api.queue import GROUP as QUEUE_GROUP
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.http_access import ReaderFinder
from kai_py.observe.http_answers import Reader
from kai_py.observe.token_review import AccessDenial, ObjectAccess, TokenReviews, UserInfo
from kai_py.observe.visibility import Visibility, named_queues, own_queues, workload_namespaces
from kai_py.snapshot.tables.queues import with_ancestors

MAX_NAMESPACES = 64
"""Most namespaces that are reviewed for one answer."""
MAX_QUEUES = 64
"""Most queues that are reviewed by their names for one answer."""
ALL_PODS = ObjectAccess("list", "pods")
ALL_NODES = ObjectAccess("list", "nodes")
ALL_QUEUES = ObjectAccess("get", "queues", QUEUE_GROUP)


@dataclass(frozen=True)
class TenantReader:
    """A user, and the reviews that say what it may see."""

    user: UserInfo
    reviews: TokenReviews

    @property
    def name(self) -> str:
        """The user's name."""
        return self.user.username

    async def visibility(self, view: ClusterView, asked: Collection[str] = ()) -> Visibility | None:
        """What the reader sees of ``view``; None if that is everything; raises ApiError.

        ``asked``: the namespaces in question, which are reviewed before all others.
        """
        pods, nodes, queues = await self._may_each((ALL_PODS, ALL_NODES, ALL_QUEUES))
        if pods and nodes and queues:
            return None
        known = workload_namespaces(view)
        if pods:
            namespaces, unreviewed = known | set(asked), 0
        else:
            ordered = list(dict.fromkeys((*asked, *sorted(known))))
            namespaces = frozenset(await self._with_pods(ordered[:MAX_NAMESPACES]))
            unreviewed = len(ordered[MAX_NAMESPACES:])
        seen = await self._queues(view, namespaces, may_see_all=queues)
        existing = frozenset(spec.name for spec in view.snapshot.queues)
        return Visibility(
            namespaces=namespaces,
            queues=seen,
            nodes=nodes,
            hidden=known - namespaces,
            unreviewed=unreviewed,
            hidden_queues=existing - seen - named_queues(view, namespaces),
        )

    async def _with_pods(self, namespaces: Collection[str]) -> Iterable[str]:
        questions = [ObjectAccess("list", "pods", namespace=each) for each in namespaces]
        answers = await self._may_each(questions)
        return (each for each, may in zip(namespaces, answers, strict=True) if may)

    async def _queues(
        self, view: ClusterView, namespaces: Collection[str], *, may_see_all: bool
    ) -> frozenset[str]:
        specs = view.snapshot.queues
        if may_see_all:
            return frozenset(spec.name for spec in specs)
        own = with_ancestors(own_queues(view, namespaces), specs)
        # An ancestor bounds what an own queue gets; those of other queues need the right.
        others = sorted({spec.name for spec in specs} - own)[:MAX_QUEUES]
        answers = await self._may_each(
            [ObjectAccess("get", "queues", QUEUE_GROUP, name=each) for each in others]
        )
        readable = (each for each, may in zip(others, answers, strict=True) if may)
        return own.union(readable)

    async def _may_each(self, questions: Iterable[ObjectAccess]) -> list[bool]:
        return list(await asyncio.gather(*(self.reviews.may(self.user, q) for q in questions)))


def reader_finder(reviews: TokenReviews) -> ReaderFinder:
    """Finds the reader of a token."""

    async def find(token: str) -> Reader | AccessDenial:
        user = await reviews.user(token)
        return user if isinstance(user, AccessDenial) else TenantReader(user, reviews)

    return find
