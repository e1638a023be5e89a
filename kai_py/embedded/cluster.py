"""The embedded cluster over HTTP, in real time.

async with EmbeddedCluster() as cluster:
    cluster.url, cluster.create({...}), cluster.write_kubeconfig(path)
"""

from pathlib import Path
from typing import Self

import yaml

from kai_py.embedded.http import HttpFront
from kai_py.embedded.in_process import InProcessCluster

CONTEXT = "kai-py-embedded"


def kubeconfig(url: str) -> str:
    """The text of a kubeconfig for the server at `url`, without credentials."""
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url}}],
        "users": [{"name": CONTEXT, "user": {}}],
        "contexts": [{"name": CONTEXT, "context": context}],
        "current-context": CONTEXT,
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


class EmbeddedCluster(InProcessCluster):
    """A cluster in this process that is served over HTTP within ``async with``."""

    front: HttpFront
    front_type = HttpFront

    async def __aenter__(self) -> Self:
        self.start()
        self.front = self.front_type(self.api)
        await self.front.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.stop()
        await self.front.stop()

    @property
    def url(self) -> str:
        """The address of the HTTP front."""
        return self.front.url

    def kubeconfig(self) -> str:
        """The text of a kubeconfig for this cluster."""
        return kubeconfig(self.url)

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig to a file."""
        path.write_text(self.kubeconfig(), encoding="utf-8")
