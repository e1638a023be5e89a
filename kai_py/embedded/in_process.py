"""One cluster in this process: store, server, controllers, kubelet, wired together.

cluster = InProcessCluster(clock=SimulatedClock())
cluster.start(); cluster.create({...}); cluster.clock.advance(60)

It is apart from ``cluster.py``, which serves it over HTTP, because aiohttp takes long to import.
"""

from collections.abc import Iterable, Sequence

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.clock import Clock, RealClock
from kai_py.embedded.controllers import standard_controllers
from kai_py.embedded.controllers.runtime import Runtime
from kai_py.embedded.crds import CustomResources
from kai_py.embedded.documents import Identity, Json
from kai_py.embedded.kubelet import Kubelet, PodTiming
from kai_py.embedded.resources import NAMESPACES, PRIORITY_CLASSES, Registry
from kai_py.embedded.store import Store

DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class InProcessCluster:
    """A cluster in this process.

    `seed` determines uids and generated names. `controllers` and `kubelet` may be switched off, for
    tests that play these parts themselves. `timing` is how fast pods start and stop.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        controllers: bool = True,
        kubelet: bool = True,
        timing: PodTiming | None = None,
    ) -> None:
        self.clock: Clock = clock or RealClock()
        self.store = Store()
        self.registry = Registry()
        self.api = ApiServer(
            store=self.store,
            clock=self.clock,
            identity=Identity(seed),
            registry=self.registry,
        )
        self.custom_resources = CustomResources(self.api)
        self.runtime = Runtime(self.api)
        if controllers:
            for controller in standard_controllers():
                self.runtime.add(controller)
        self.kubelet = Kubelet(timing)
        if kubelet:
            self.runtime.add(self.kubelet.controller())
        self._started = False

    def start(self) -> None:
        """Create the objects that every cluster has; with a real clock inside a running loop."""
        if self._started:
            return
        self._started = True
        for name in DEFAULT_NAMESPACES:
            self.api.create(NAMESPACES, {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITIES.items():
            self.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})

    def stop(self) -> None:
        """Stop controllers and kubelet; the objects stay readable."""
        self.runtime.stop()

    def create(self, document: Json) -> Json:
        """Create one object from a complete document; the namespace defaults to `default`."""
        resource = self.registry.of_kind(document["apiVersion"], document["kind"])
        namespace = document["metadata"].get("namespace") or "default"
        return self.api.create(resource, document, namespace if resource.namespaced else "")

    def create_all(self, documents: Iterable[Json]) -> Sequence[Json]:
        """Create objects in the given order."""
        return [self.create(document) for document in documents]
