"""A cluster of two tenants, and an API server that knows what the users of tokens may do."""

from contextlib import asynccontextmanager

import aiohttp
import msgspec

from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess, reader_finder
from kai_py.observe.token_review import (
    AccessStatus,
    SubjectAccessReview,
    TokenReview,
    TokenReviews,
    TokenStatus,
    UserInfo,
)
from tests.observe.shown import Shown
from tests.support import scenario
from tests.support.records import replace


class ApiServer:
    """Knows a token per user; ``rights``: (verb, resource, namespace, name) or a path, of each."""

    def __init__(self, **rights):
        self.rights = rights
        self.reviews = []

    async def review(self, resource, body):
        spec = body["spec"]
        if resource.kind.name == "TokenReview":
            user = UserInfo(username=spec["token"])
            return TokenReview(status=TokenStatus(spec["token"] in self.rights, user))
        asked = spec.get("resourceAttributes") or spec["nonResourceAttributes"]["path"]
        if isinstance(asked, dict):
            names = ("verb", "resource", "namespace", "name")
            asked = tuple(asked.get(name, "") for name in names)
        self.reviews.append(asked)
        return SubjectAccessReview(status=AccessStatus(asked in self.rights[spec["user"]]))


def pods_of(namespace):
    return ("list", "pods", namespace, "")


def moved(objects, namespace):
    """The objects in another namespace."""
    return [
        msgspec.structs.replace(
            each,
            metadata=msgspec.structs.replace(
                each.metadata, namespace=namespace, uid=f"{namespace}-{each.metadata.uid}"
            ),
        )
        for each in objects
    ]


def tenants():
    """Team ``ml`` runs a Job and has one pending; ``vision`` has secrets; each has a queue."""
    return scenario.cluster(
        *(scenario.node(f"n{i}", 8) for i in range(3)),
        scenario.queue("company", 24),
        scenario.queue("ml-queue", 12, 12, parent="company"),
        scenario.queue("vision-queue", 12, parent="company"),
        scenario.queue("ml-queue.idle", 0),
        *moved([scenario.pod("train", 8, queue="ml-queue", node="n0")], "ml"),
        *moved([scenario.pod("more", 8, queue="ml-queue")], "ml"),
        *moved([scenario.pod("secret-run", 8, queue="vision-queue", node="n1")], "vision"),
        *moved([scenario.pod("secret-wait", 16, queue="vision-queue")], "vision"),
    )


@asynccontextmanager
async def asking(server, token_file, **source):
    """Serve the tenants' cluster; yields a function of token and path, for status and text."""
    shown = Shown(tenants().snapshot())
    probes = shown.probes()
    probes = replace(probes, source=replace(probes.source, **source))
    reviews = TokenReviews(server)
    access = HttpAccess("127.0.0.1", token_file, reviews, reader_finder(reviews))
    async with serve(probes, access, 0) as port, aiohttp.ClientSession() as session:

        async def ask(token, path, **headers):
            headers = {"X-Kai-Authorization": f"Bearer {token}", **headers}
            url = f"http://127.0.0.1:{port}{path}"
            async with session.get(url, headers=headers) as answer:
                return answer.status, await answer.text()

        async def stream(token, path):
            """The first part of a stream."""
            headers = {"Authorization": f"Bearer {token}"}
            url = f"http://127.0.0.1:{port}{path}"
            async with session.get(url, headers=headers) as answer:
                return (await answer.content.readany()).decode()

        ask.stream = stream
        yield ask
