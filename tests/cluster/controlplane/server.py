"""How do etcd, kube-apiserver and kube-controller-manager become one cluster?

They start in that order, each waited for until it answers; one administrator is known by bearer
token. There are no nodes: see `tests.cluster.fake_kubelet`. There is no scheduler until
`ControlPlane.kube_scheduler` is entered. Start takes about three seconds; leaving the block stops
everything in reverse order.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import components
from tests.cluster.controlplane.access import answers, write_certificate, write_kubeconfig
from tests.cluster.controlplane.binaries import binaries
from tests.cluster.controlplane.components import Flag
from tests.cluster.controlplane.ports import reserved_port
from tests.cluster.controlplane.processes import Process, running

EVERY_RESOURCE_API = {f"resource.k8s.io/{v}": True for v in ("v1", "v1beta2", "v1beta1")}
_START_SECONDS = 60.0
_NO_FLAGS: Mapping[str, Flag] = {}


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane and the ways to reach it."""

    url: str
    etcd_url: str
    token: str
    kubeconfig: Path
    directory: Path
    feature_gates: Mapping[str, bool]
    processes: dict[str, Process]
    start_apiserver: Callable[[], Process]
    """Starts kube-apiserver once more, where it was, and waits until it answers."""

    @property
    def kubectl(self) -> Path:
        """The kubectl of the same release; give it `--kubeconfig`."""
        return binaries() / "kubectl"

    @contextmanager
    def without_apiserver(self) -> Iterator[None]:
        """Kill kube-apiserver, and start it again on the same etcd when the block is left."""
        killed = self.processes["kube-apiserver"].popen
        killed.kill()
        killed.wait()
        yield
        self.processes["kube-apiserver"] = self.start_apiserver()

    @contextmanager
    def kube_scheduler(
        self,
        configuration: Mapping[str, Any] | None = None,
        *,
        flags: Mapping[str, Flag] = _NO_FLAGS,
    ) -> Iterator[Process]:
        """Run the default scheduler beside; `configuration` extends KubeSchedulerConfiguration."""
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 5000, "burst": 5000},
            **(configuration or {}),
        }
        path = self.directory / "kube-scheduler.json"
        path.write_text(json.dumps(document))
        with reserved_port() as port:
            command = components.command(
                "kube-scheduler",
                components.scheduler_flags(self.kubeconfig, path, port),
                components.feature_gate_flags(self.feature_gates),
                flags,
            )
            with running(command, self.directory / "kube-scheduler.log") as scheduler:
                ready = f"https://127.0.0.1:{port}/readyz"
                scheduler.wait_until(lambda: answers(ready), within=_START_SECONDS)
                yield scheduler


@contextmanager
def control_plane(
    directory: Path,
    *,
    feature_gates: Mapping[str, bool] | None = None,
    runtime_config: Mapping[str, bool] = EVERY_RESOURCE_API,
    apiserver_flags: Mapping[str, Flag] = _NO_FLAGS,
    controller_manager_flags: Mapping[str, Flag] = _NO_FLAGS,
) -> Iterator[ControlPlane]:
    """Run a control plane for the duration of the block, its files and logs in `directory`.

    `feature_gates` go to every component, `runtime_config` switches API versions ("group/version")
    on or off, the other mappings override what `components` sets. Raises StartError with the tail
    of the log when a component does not come up.
    """
    directory.mkdir(parents=True, exist_ok=True)
    gates = dict(feature_gates or {})
    gate_flags = components.feature_gate_flags(gates)
    token, tokens = _administrator(directory)
    write_certificate(components.certificate(directory), components.key(directory))
    with ExitStack() as stack:
        etcd_url = f"http://127.0.0.1:{stack.enter_context(reserved_port())}"
        peer_url = f"http://127.0.0.1:{stack.enter_context(reserved_port())}"
        port = stack.enter_context(reserved_port())
        url = f"https://127.0.0.1:{port}"

        def start(program: str, *flags: Mapping[str, Flag]) -> Process:
            command = components.command(program, *flags)
            return stack.enter_context(running(command, directory / f"{program}.log"))

        def start_apiserver() -> Process:
            apiserver = start(
                "kube-apiserver",
                components.apiserver_flags(directory, etcd_url, port, tokens),
                components.runtime_config_flags(runtime_config),
                gate_flags,
                apiserver_flags,
            )
            apiserver.wait_until(lambda: answers(f"{url}/readyz", token), within=_START_SECONDS)
            return apiserver

        etcd = start("etcd", components.etcd_flags(directory, etcd_url, peer_url))
        apiserver = start_apiserver()  # keeps trying until etcd answers

        kubeconfig = directory / "kubeconfig"
        write_kubeconfig(kubeconfig, url, token, components.certificate(directory))
        controllers = start(
            "kube-controller-manager",
            components.controller_manager_flags(directory, kubeconfig),
            gate_flags,
            controller_manager_flags,
        )
        controllers.wait_until(lambda: _admits_pods(url, token), within=_START_SECONDS)
        yield ControlPlane(
            url=url,
            etcd_url=etcd_url,
            token=token,
            kubeconfig=kubeconfig,
            directory=directory,
            feature_gates=gates,
            processes={p.name: p for p in (etcd, apiserver, controllers)},
            start_apiserver=start_apiserver,
        )


def _admits_pods(url: str, token: str) -> bool:
    """Whether the namespace has its service account, without which pods are refused."""
    return answers(f"{url}/api/v1/namespaces/default/serviceaccounts/default", token)


def _administrator(directory: Path) -> tuple[str, Path]:
    """Return the administrator's token and the file that makes kube-apiserver know it."""
    token = secrets.token_urlsafe(24)
    tokens = directory / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f'{token},admin,admin,"system:masters"\n')
    return token, tokens
