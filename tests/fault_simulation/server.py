"""The API server of a simulation: the embedded one, without HTTP, with its controllers."""

import msgspec

from kai_py.embedded import discovery, writes
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.controllers import standard_controllers
from kai_py.embedded.controllers.runtime import Controller, Runtime, Work, key_of
from kai_py.embedded.crds import CustomResources
from kai_py.embedded.documents import Identity, is_deleting
from kai_py.embedded.errors import RequestError
from kai_py.embedded.kubelet import Kubelet, PodTiming
from kai_py.embedded.listing import Lister, WatchEvent
from kai_py.embedded.representation import Presenter, ResponseForm, accepted_form
from kai_py.embedded.resources import NAMESPACES, PODS, Registry
from kai_py.embedded.routing import integer, parse_path
from kai_py.embedded.store import Store
from kai_py.watch.errors import from_response
from tests.fault_simulation.loop import Process, SimulatedLoop

WATCH_SECONDS = 1800
NAMES = ("default", "kube-system", "team")


class LoopClock:
    """The loop's time as the clock of one part of the embedded cluster."""

    def __init__(self, loop: SimulatedLoop, process: Process) -> None:
        self._loop = loop
        self._process = process

    def now(self) -> float:
        return SIMULATION_START + self._loop.time()

    def call_later(self, delay, callback):
        return self._loop.call_later(delay, callback, context=self._process.context)


class Server:
    """One API server, with the controllers and the kubelet as processes of their own."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.process = Process("apiserver")
        self.parts: dict[str, Process] = {}
        """The processes of controllers and kubelets."""
        self._loop = loop
        self._runtimes: dict[str, Runtime] = {}
        self.store = Store(kept_changes=2000)
        self.registry = Registry()
        self._identity = Identity(seed)
        self.api = self._api(self.process)
        self.custom_resources = CustomResources(self.api)
        self._lister = Lister(self.api)
        self._documents: dict[str, bytes] = {}
        for name in PARTS:
            self.start_part(name)
        for name in NAMES:
            self.api.create(NAMESPACES, {"metadata": {"name": name}})

    def start_part(self, name: str) -> None:
        """Start the controllers or the kubelets, with no memory of what was before."""
        process = self.parts[name] = Process(name)
        runtime = self._runtimes[name] = Runtime(self._api(process))
        for controller in PARTS[name]():
            runtime.add(controller)
        runtime.resync()

    def kill_part(self, name: str) -> None:
        """End the controllers or the kubelets at once."""
        self._loop.kill(self.parts[name])
        self._runtimes[name].stop()

    def _api(self, process: Process) -> ApiServer:
        return ApiServer(
            store=self.store,
            clock=LoopClock(self._loop, process),
            identity=self._identity,
            registry=self.registry,
        )

    def create(self, document):
        """Create an object from a complete document."""
        resource = self.registry.of_kind(document["apiVersion"], document["kind"])
        namespace = document["metadata"].get("namespace") or "default"
        return self.api.create(resource, document, namespace if resource.namespaced else "")

    def answer(self, call):
        """The answer to a call: a body, a stream, or the error as the client raises it."""
        try:
            if call.verb == "watch":
                return self._watch(call)
            return self._body(call)
        except RequestError as refusal:
            body = msgspec.json.encode(refusal.status())
            return from_response(str(call), refusal.code, body, {})

    def _body(self, call) -> bytes:
        fixed = self._discovery(call.path)
        if fixed is not None:
            return fixed
        target = parse_path(call.path, self.registry)
        presenter = self._presenter(target, call)
        if call.verb == "list":
            return msgspec.json.encode(self._lister.list(target, call.parameters, presenter))
        if call.verb == "get":
            return msgspec.json.encode(presenter.one(writes.read(self.api, target)))
        body = msgspec.json.decode(call.body) if call.body else {}
        request = writes.WriteRequest(body, call.content_type, call.parameters)
        answer = writes.execute(self.api, call.verb, target, request)
        shown = presenter.one(answer.document) if answer.is_object else answer.document
        return msgspec.json.encode(shown)

    def _discovery(self, path: str) -> bytes | None:
        """Discovery documents, kept: definitions do not change during a simulation."""
        if path not in self._documents:
            fixed = discovery.document(self.registry, path, address="simulated")
            if fixed is None:
                return None
            self._documents[path] = msgspec.json.encode(fixed)
        return self._documents[path]

    def _presenter(self, target, call) -> Presenter:
        return Presenter(target.resource, accepted_form(call.accept), self.api.clock.now())

    def _watch(self, opening):
        call = opening.call
        target = parse_path(call.path, self.registry)
        watch = self._lister.watch(target, call.parameters)
        seconds = integer(call.parameters, "timeoutSeconds") or WATCH_SECONDS
        return opening.open(watch, _Encoder(self._presenter(target, call)), seconds)


def _collect_pod(work: Work) -> None:
    """End a pod that was deleted before it had a node, as Kubernetes' pod garbage collector."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is not None and is_deleting(pod) and not pod["spec"].get("nodeName"):
        work.api.patch_status(PODS, pod, {"phase": "Failed"})


def _deleted_pods(_api: ApiServer, change) -> list[tuple[str, ...]]:
    return [key_of(change.object)] if is_deleting(change.object) else []


_POD_GARBAGE = Controller(
    name="pod garbage",
    reconcile=_collect_pod,
    keys=_deleted_pods,
    storages=frozenset({PODS.storage}),
)


PARTS = {
    "controllers": lambda: [*standard_controllers(), _POD_GARBAGE],
    "kubelets": lambda: [Kubelet(PodTiming(start=2.0, stop=2.0)).controller()],
}
"""The controllers of each part, made again at each start."""


class _Encoder:
    """Lines of a watch in the form that its client accepts."""

    def __init__(self, presenter: Presenter) -> None:
        self._presenter = presenter

    def __call__(self, event: WatchEvent) -> bytes:
        if self._presenter.form is ResponseForm.FULL:
            encoded = event.encoded_object()
        else:
            encoded = msgspec.json.encode(self._presenter.one(event.object))
        return b'{"type":"%s","object":%s}\n' % (event.type.encode(), encoded)

    def failure(self, refusal: RequestError) -> bytes:
        """The ERROR event for a refusal."""
        return b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(refusal.status())
