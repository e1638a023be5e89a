"""A server of several collections that come and go, in memory."""

import asyncio
import json
from contextlib import asynccontextmanager

from kai_py.watch import kinds
from kai_py.watch.errors import Unreachable
from tests.watch.collection_server import CollectionServer, MemoryTransport, failure

CLAIMS = "/apis/resource.k8s.io/{}/resourceclaims"
QUEUES = "/apis/scheduling.kai.io/v1alpha1/queues"
PODS = "/api/v1/pods"
KINDS = (kinds.PODS, kinds.RESOURCE_CLAIMS, kinds.QUEUES)


class ClusterServer:
    """Collections by path, served in memory; ``broken`` paths answer 503, ``refused`` ones 403."""

    def __init__(self, *paths):
        self.collections = {path: CollectionServer() for path in (PODS, *paths)}
        self.broken = set()
        self.refused = set()
        self.down = False
        self.asked = []

    async def send(self, call, *, timeout_seconds=None):
        self.asked.append(call.path)
        await asyncio.sleep(0)
        if self.down:
            raise Unreachable("down")
        if call.path in self.broken:
            raise failure(503)
        if call.path in self.refused:
            raise failure(403)
        if call.path in self.collections:
            return self.collections[call.path].list(call.parameters)
        return json.dumps(self._discovery(call.path)).encode()

    @asynccontextmanager
    async def stream(self, call, *, idle):
        if self.down:
            raise Unreachable("down")
        if call.path in self.refused:
            raise failure(403)
        if call.path not in self.collections:
            raise failure(404)
        transport = MemoryTransport(self.collections[call.path])
        async with transport.stream(call, idle=idle) as chunks:
            yield chunks

    def remove(self, path):
        self.collections.pop(path).cut()

    def _discovery(self, path):
        if path == "/apis":
            groups = {}
            for served in self.collections:
                if served.startswith("/apis/"):
                    _, _, group, version, _ = served.split("/")
                    groups.setdefault(group, []).append({"version": version})
            return {"groups": [{"name": name, "versions": of} for name, of in groups.items()]}
        found = [served for served in self.collections if served.rpartition("/")[0] == path]
        if not found:
            raise failure(404)
        verbs = ["create", "get", "list", "watch"]
        names = [{"name": served.rpartition("/")[2], "verbs": verbs} for served in found]
        return {"resources": [*names, {"name": "pods/binding", "verbs": ["create"]}]}
