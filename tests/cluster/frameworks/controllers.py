"""How does a framework's controller run as a plain process on loopback?

Its CRDs and webhook configurations are those of its module. Webhooks are called by URL, with a
certificate of the suite; probes, metrics and webhooks listen on 127.0.0.1 only.
"""

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kai_py.admission.certificate import CERTIFICATE, KEY, issue
from tests.cluster.controlplane.access import answers
from tests.cluster.controlplane.ports import unlikely_port
from tests.cluster.controlplane.processes import Process, running
from tests.cluster.frameworks.binaries import framework_binaries
from tests.cluster.frameworks.modules import definitions, documents, module_directory
from tests.support import yaml_text
from tests.support.cluster.api import Api, ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.scheduling import DEFINITIONS, define

START_SECONDS = 60.0


@dataclass(frozen=True)
class Ports:
    """Where a controller listens."""

    webhook: int
    probes: int


@dataclass(frozen=True)
class Controller:
    """A controller: its module, where that has its CRDs, and how it is started.

    ``program``: the binary, where it is not called like the controller; ``folder``: that of its Go
    module, where it has one of its own.
    """

    name: str
    module: str
    definitions: str
    arguments: Callable[[Path, Ports], Sequence[str]]
    webhooks: tuple[str, ...] = ()
    patches: Mapping[str, str] = field(default_factory=dict)
    """JSON patches of its webhook configurations, by kind, as its kustomization applies them."""
    program: str = ""
    folder: str = ""


def _configured(api_version: str) -> Callable[[Path, Ports], Sequence[str]]:
    """Arguments of a controller that reads a file."""

    def arguments(directory: Path, ports: Ports) -> Sequence[str]:
        path = directory / "configuration.json"
        document = {
            "apiVersion": api_version,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{ports.probes}"},
            "webhook": {"host": "127.0.0.1", "port": ports.webhook, "certDir": str(directory)},
            "clientConnection": {"qps": 500, "burst": 500},
        }
        path.write_text(json.dumps(document))
        return [f"--config={path}"]

    return arguments


JOB_SET = Controller(
    name="jobset",
    module="sigs.k8s.io/jobset",
    definitions="config/components/crd/bases/*.yaml",
    arguments=_configured("config.jobset.x-k8s.io/v1alpha1"),
    webhooks=("config/components/webhook/manifests.yaml",),
    patches={
        "MutatingWebhookConfiguration": "config/components/webhook/patches/mutating-patch.yaml",
        "ValidatingWebhookConfiguration": "config/components/webhook/patches/validating-patch.yaml",
    },
)
LEADER_WORKER_SET = Controller(
    name="lws",
    module="sigs.k8s.io/lws",
    definitions="config/crd/bases/*.yaml",
    arguments=lambda directory, ports: (
        *_configured("config.lws.x-k8s.io/v1alpha1")(directory, ports),
        "--leader-elect=false",
        "--metrics-bind-address=0",
    ),
    webhooks=("config/webhook/manifests.yaml",),
    patches={
        "MutatingWebhookConfiguration": "config/webhook/mutating-patch.yaml",
        "ValidatingWebhookConfiguration": "config/webhook/validating-patch.yaml",
    },
)
KUBERAY = Controller(
    name="kuberay",
    module="github.com/ray-project/kuberay/ray-operator",
    definitions="config/crd/bases/*.yaml",
    arguments=lambda _directory, ports: (
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address=127.0.0.1:{ports.probes}",
    ),
)


def _kubeflow(name: str, module: str, crds: str, webhooks: tuple[str, ...] = ()) -> Controller:
    """A controller of Kubeflow, in the program that sets them up on loopback."""
    return Controller(
        name=name,
        module=f"github.com/kubeflow/{module}",
        definitions=crds,
        arguments=lambda directory, ports: (
            f"--controllers={name}",
            f"--certificates={directory}",
            f"--webhook-port={ports.webhook}",
            f"--probes=127.0.0.1:{ports.probes}",
        ),
        webhooks=webhooks,
        program="kubeflow",
    )


WEBHOOKS = ("manifests/base/webhook/manifests.yaml",)
TRAINING_OPERATOR = _kubeflow(
    "training-operator", "training-operator", "manifests/base/crds/*.yaml", WEBHOOKS
)
TRAINER = _kubeflow("trainer", "trainer/v2", "manifests/base/crds/*.yaml", WEBHOOKS)
MPI_OPERATOR = Controller(
    name="mpi-operator",
    module="github.com/kubeflow/mpi-operator",
    definitions="manifests/base/*mpijobs.yaml",
    arguments=lambda _directory, ports: (f"--probes=127.0.0.1:{ports.probes}",),
    folder="mpi",
)


def _kserve(name: str, crds: str) -> Controller:
    """A controller of KServe, in the program that sets them up on loopback."""
    return Controller(
        name=name,
        module="github.com/kserve/kserve",
        definitions=crds,
        arguments=lambda _directory, ports: (
            f"--controllers={name}",
            f"--probes=127.0.0.1:{ports.probes}",
        ),
        program="kserve",
        folder="kserve",
    )


KSERVE = _kserve("kserve", "config/crd/full/llmisvc/serving*.yaml")
INFERENCE_SERVICES = _kserve("kserve-inferenceservices", "config/crd/full/serving*.yaml")

KWOK = Controller(
    name="kwok",
    module="sigs.k8s.io/kwok",
    definitions="kustomize/crd/bases/*.yaml",
    arguments=lambda _directory, ports: (
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--server-address=127.0.0.1:{ports.probes}",
    ),
    folder="kwok",
)


@asynccontextmanager
async def controller(cluster: Cluster, which: Controller, parent: Path) -> AsyncIterator[Process]:
    """Run a controller for the duration of the block; its kinds are served, its webhooks called."""
    directory = parent / which.name
    directory.mkdir()
    authority = certificate(directory)
    ports = Ports(webhook=unlikely_port(), probes=unlikely_port())
    defined = definitions(which.module, which.definitions)
    for each in defined:
        await define(cluster.api, each)
    program = framework_binaries(which.folder) / (which.program or which.name)
    command = [program, *which.arguments(directory, ports)]
    hooks = webhook_configurations(which, ports, authority)
    try:
        with _running(command, cluster, directory) as process:
            ready = f"http://127.0.0.1:{ports.probes}/readyz"
            process.wait_until(lambda: answers(ready), within=START_SECONDS)
            for hook in hooks:
                await cluster.api.create(hook)
            for kind in {hook["kind"] for hook in hooks}:
                await _read_by_server(cluster.api, kind)
            try:
                yield process
            finally:
                for hook in hooks:
                    await _delete(cluster.api, hook)
                await _empty(cluster.api, defined)
    finally:
        for each in defined:
            await cluster.api.delete(f"{DEFINITIONS}/{each['metadata']['name']}")


async def submit_with(cluster: Cluster, needed: Sequence[Document], document: Document) -> None:
    """Create what a workload refers to, and it as soon as webhooks know that: they read a watch."""

    async def accepted() -> bool:
        try:
            await cluster.submit(document)
        except ApiError as error:
            if error.code != 403:
                raise
            return False
        return True

    await cluster.submit(*needed)
    await eventually(accepted, what=f"{document['metadata']['name']} accepted")


def certificate(directory: Path) -> bytes:
    """Write ``tls.crt`` and ``tls.key`` for 127.0.0.1; the certificate is its own authority."""
    issued = issue(["127.0.0.1"])
    (directory / KEY).write_bytes(issued.key)
    (directory / CERTIFICATE).write_bytes(issued.served)
    return issued.served


def webhook_configurations(which: Controller, ports: Ports, authority: bytes) -> list[Document]:
    """The configurations of the module, called by URL in place of a Service."""
    found = list(documents(which.module, *which.webhooks))
    for configuration in found:
        configuration["metadata"]["name"] = f"{which.name}-{configuration['metadata']['name']}"
        path = which.patches.get(configuration["kind"])
        for patch in _patches(which, path) if path else ():
            configuration["webhooks"][int(patch["path"].rpartition("/")[2])] = patch["value"]
        for hook in configuration["webhooks"]:
            target = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] = {
                "url": f"https://127.0.0.1:{ports.webhook}{target}",
                "caBundle": base64.b64encode(authority).decode(),
            }
    return found


def _patches(which: Controller, path: str) -> list[dict[str, Any]]:
    patches = yaml_text.read((module_directory(which.module) / path).read_text())
    assert all(each["op"] == "replace" for each in patches), f"{path}: only replacements are known"
    return list(patches)


@contextmanager
def _running(command: Sequence[str | Path], cluster: Cluster, directory: Path) -> Iterator[Process]:
    """The program, which finds its cluster through the environment."""
    program = ["/usr/bin/env", f"KUBECONFIG={cluster.kubeconfig}", *command]
    with running(program, directory / "controller.log") as process:
        yield process


async def _read_by_server(api: Api, kind: str) -> None:
    """Wait until the API server calls webhooks of a kind that were created: it reads a watch.

    One that cannot be reached was created last; that it is missed is how the server says so.
    """
    marked = {"kai-py.test/webhooks": kind.lower()}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    unreachable = {
        "name": "unreachable.kai-py.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "objectSelector": {"matchLabels": marked},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    last = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": f"unreachable-{kind.lower()}"},
        "webhooks": [unreachable],
    }
    probe = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "probe", "namespace": "default", "labels": marked},
    }

    async def is_called() -> bool:
        path = "/api/v1/namespaces/default/configmaps"
        try:
            await api.request("POST", path, probe, parameters={"dryRun": "All"})
        except ApiError as error:
            if "unreachable.kai-py.test" not in str(error):
                raise
            return True
        return False

    await api.create(last)
    try:
        await eventually(is_called, what=f"{kind}s called")
    finally:
        await _delete(api, last)


async def _delete(api: Api, document: Document) -> None:
    group, plural = "admissionregistration.k8s.io/v1", f"{document['kind'].lower()}s"
    await api.delete(f"/apis/{group}/{plural}/{document['metadata']['name']}")


async def _empty(api: Api, defined: Sequence[Document]) -> None:
    """Delete all objects of the kinds while their controller still runs."""
    for each in defined:
        spec = each["spec"]
        plural, version = spec["names"]["plural"], spec["versions"][0]["name"]
        path = f"/apis/{spec['group']}/{version}"
        for item in await api.items(f"{path}/{plural}"):
            meta = item["metadata"]
            under = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
            try:
                await api.delete(f"{path}{under}/{plural}/{meta['name']}")
            except ApiError as error:
                # What another object owns goes with it.
                if error.code != 404:
                    raise
