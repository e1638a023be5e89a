"""One reader of ``kai-py top``: takes keys, describes and evicts the gang that is selected."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from rich.text import Text

from kai_py.cli.errors import CommandError
from kai_py.cli.explanation_text import described
from kai_py.cli.output import count_of
from kai_py.cli.top_controls import Controls, KeyRequest
from kai_py.observe.explanation import Explanation
from kai_py.observe.live.cluster import LiveCluster
from kai_py.observe.live.feed import Feed
from kai_py.observe.live.screen import Interaction
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, NotFound
from kai_py.watch.kinds import PODS

NOT_KNOWN = "It no longer exists."


class TopSource(Protocol):
    """Where the screen's data comes from."""

    feed: Feed

    def live_cluster(self) -> LiveCluster:
        """The cluster now."""

    def headline(self) -> Sequence[Text]:
        """The line above all panels."""

    async def explain(self, gang: str) -> Explanation | None:
        """What is known of a gang; raises CommandError."""


class TopSession:
    """The view of one reader; evictions are made with the rights of ``client``, the reader's."""

    def __init__(self, source: TopSource, client: Client) -> None:
        self.controls = Controls()
        self._source, self._client = source, client
        self._details = ""

    def cluster(self) -> LiveCluster:
        """The cluster with the gangs that are shown, in order."""
        cluster = self._source.live_cluster()
        return replace(cluster, gangs=self.controls.arrange(cluster.gangs))

    def state(self) -> Interaction:
        """What is selected and asked for."""
        controls = self.controls
        details = self._details if controls.described else ""
        return Interaction(controls.selected, details, controls.status())

    async def follow(self, keys: asyncio.Queue[str]) -> None:
        """Take keys until one quits."""
        while True:
            wish = self.controls.press(await keys.get())
            gang = self.controls.selected
            if wish is KeyRequest.QUIT:
                return
            try:
                if wish is KeyRequest.DESCRIBE:
                    found = await self._source.explain(gang)
                    self._details = described(found) if found is not None else NOT_KNOWN
                elif wish is KeyRequest.EVICT:
                    self.controls.message = f"evicting the pods of {gang} …"
                    self.controls.message = await self._evict(gang)
            except CommandError as error:
                self.controls.message = str(error)

    async def _evict(self, gang: str) -> str:
        """Evict the pods of a gang through the Eviction API; what came of it."""
        found = await self._source.explain(gang)
        pods = found.running_pods if found is not None else {}
        if not pods:
            return f"{gang} has no pods on nodes"
        evicted, refusal = 0, ""
        for name, uid in sorted(pods.items()):
            try:
                await evict_pod(self._client, name, uid)
                evicted += 1
            except NotFound:
                continue
            except ApiError as error:
                refusal = str(error)
        done = f"{count_of(evicted, 'pod')} of {gang} evicted"
        return f"{done}; {refusal}" if refusal else done


async def evict_pod(client: Client, name: str, uid: str) -> None:
    """Evict the pod NAMESPACE/NAME if it still has this uid; raises ApiError."""
    namespace, _, pod = name.partition("/")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    await client.create_subresource(PODS.at(), pod, "eviction", body, namespace=namespace)
