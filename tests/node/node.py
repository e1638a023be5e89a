"""One real node: a kubelet and a containerd in namespaces of their own, with drivers beside them.

with node("node-a", plane, directory) as running:
    running.start_example_driver()
    ...

Paths that programs have fixed (`/var/lib/kubelet`, `/etc/cdi`) are directories of the node. What
the kubelet would set for the whole machine it finds set already: files with the values that it
wants cover the sysctls. Nothing listens but sockets in these directories and a port on loopback.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import ControlPlane, StartError
from tests.node import init, keeper
from tests.node.configuration import CONTAINERD, kubelet_configuration
from tests.node.image import write_images
from tests.node.programs import programs
from tests.node.workloads import TOLD
from tests.support.patience import patience

SYSCTLS = {"vm/overcommit_memory": 1, "kernel/panic": 10, "kernel/panic_on_oops": 1}
"""What the kubelet wants to find (its container manager's setupKernelTunables)."""
DIRECTORIES = {
    "kubelet": "/var/lib/kubelet",
    "containerd-state": "/run/containerd",
    "containerd-data": "/var/lib/containerd",
    "cdi": "/etc/cdi",
    "cdi-run": "/var/run/cdi",
    "cni": "/etc/cni/net.d",
    "cni-programs": "/opt/cni/bin",
    "pods": "/var/log/pods",
    "containers": "/var/log/containers",
    "told": TOLD,
}
"""Directories of the node, by their names in its own directory, and where the node sees them."""
_SHARED = {"kubelet", "containerd-state"}  # mounts of containers have to reach their users
_CNI = {"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}
_NO_NETWORK = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'"}],
  "ips": [{"address": "192.0.2.1/32", "interface": 0}]}'
"""
"""A CNI plugin that connects pods to nothing, with an address for documentation (RFC 5737)."""
_SOCKET = "/run/containerd/containerd.sock"
_START_SECONDS = 30.0


@dataclass(frozen=True)
class Node:
    """A node at work; its programs can be stopped, killed and started."""

    name: str
    directory: Path
    kubeconfig: Path
    _init: subprocess.Popen[str]
    _cgroup: str
    _started: set[str] = field(default_factory=set)

    def start_containerd(self) -> None:
        """Start containerd and wait until it answers."""
        configuration = self.directory / "containerd.toml"
        configuration.write_text(CONTAINERD)
        self._start("containerd", programs() / "containerd", "--config", configuration)
        self._wait("containerd", lambda: self.ctr("version").returncode == 0)

    def start_kubelet(self) -> None:
        """Start the kubelet and wait until drivers can register; the node is ready later."""
        configuration = self.directory / "kubelet.json"
        configuration.write_text(json.dumps(kubelet_configuration(self._cgroup, _SOCKET)))
        self._start(
            "kubelet",
            programs() / "kubelet",
            f"--config={configuration}",
            f"--kubeconfig={self.kubeconfig}",
            f"--hostname-override={self.name}",
            "--v=2",
        )
        # A driver that finds no directory for its socket ends at once.
        registrations = self.directory / "kubelet" / "plugins_registry"
        self._wait("kubelet", registrations.is_dir)

    def start_example_driver(self, *, devices: int = 8) -> None:
        """Start the example driver of upstream, `gpu.example.com`, with so many GPUs."""
        self._start(
            "example-driver",
            programs() / "dra-example-kubeletplugin",
            f"--node-name={self.name}",
            f"--kubeconfig={self.kubeconfig}",
            f"--num-devices={devices}",
            "--cdi-root=/var/run/cdi",
        )

    def start_parts_driver(self, *, resources: dict[str, Any]) -> "PartsDriver":
        """Start the driver of these tests, `parts.kai.test`, which offers `resources`."""
        driver = PartsDriver(self.directory / "parts")
        shutil.rmtree(driver.directory, ignore_errors=True)
        driver.directory.mkdir()
        driver.publish(resources)
        self._start(
            "parts-driver",
            programs() / "parts-driver",
            self.name,
            self.kubeconfig,
            driver.directory,
        )
        return driver

    def start_device_plugin(self, *, gpus: int) -> None:
        """Start a device plugin that offers so many of nvidia.com/gpu, named GPU-NODE-NUMBER."""
        self._start("gpu-plugin", programs() / "gpu-plugin", self.name, gpus)

    def stop(self, program: str, number: int = signal.SIGTERM, *, within: float = 20.0) -> None:
        """Send a signal that ends a program, SIGTERM or SIGKILL, and wait until it has ended."""
        self._ask({"signal": program, "number": number})
        deadline = time.monotonic() + patience(within)
        while not self.exited(program):
            assert time.monotonic() < deadline, f"{self.name}: {program} does not end"
            time.sleep(0.05)
        self._started.discard(program)

    def exited(self, program: str) -> bool:
        """Whether a program that was started has ended."""
        return self._ask({"exited": program})["code"] is not None

    def runs(self, program: str) -> bool:
        """Whether a program was started and has not ended."""
        return program in self._started and not self.exited(program)

    def ctr(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run containerd's client outside the node, on the node's socket."""
        socket = self.directory / "containerd-state" / Path(_SOCKET).name
        command = [programs() / "ctr", "--address", socket, "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    def log_of(self, program: str) -> str:
        """What a program wrote since the node started."""
        return (self.directory / f"{program}.log").read_text(errors="replace")

    def output_of(self, pod: str, container: str = "main") -> str:
        """What a container of tests.node.workloads wrote, also when its pod has gone."""
        return (self.directory / "told" / f"{pod}.{container}").read_text()

    def log_of_container(self, namespace: str, pod: str, container: str) -> str:
        """What any container wrote, by the runtime's log, which goes with its pod."""
        found = sorted((self.directory / "pods").glob(f"{namespace}_{pod}_*/{container}/*.log"))
        lines = [line for path in found for line in path.read_text().splitlines()]
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def cdi_files(self) -> list[str]:
        """The names of the CDI files of claims, there while they are prepared."""
        paths = sorted((self.directory / "cdi-run").iterdir())
        return [path.name for path in paths if "common" not in path.name]

    def _start(self, name: str, *command: str | Path | int) -> None:
        log = self.directory / f"{name}.log"
        # The shim is looked for on PATH.
        environment = {"PATH": f"{programs()}:{os.environ['PATH']}"}
        self._ask(
            {
                "start": name,
                "command": [str(part) for part in command],
                "log": str(log),
                "environment": environment,
            }
        )
        self._started.add(name)

    def _wait(self, program: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience(_START_SECONDS)
        while not ready():
            if self.exited(program) or time.monotonic() > deadline:
                raise StartError(f"{self.name}: {program}:\n{self.log_of(program)[-4000:]}")
            time.sleep(0.1)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._init.stdin
        self._init.stdin.write(json.dumps(request) + "\n")
        self._init.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._init.stdout
        line = self._init.stdout.readline()
        if not line:
            raise StartError(f"{self.name}: {self.log_of('init')}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True)
class PartsDriver:
    """The driver `parts.kai.test` of one node, told what to do by files."""

    directory: Path

    def publish(self, resources: dict[str, Any]) -> None:
        """Offer other devices: a resourceslice.DriverResources."""
        unfinished = self.directory / "resources.tmp"
        unfinished.write_text(json.dumps(resources))
        unfinished.rename(self.directory / "resources.json")

    def refuse(self, text: str) -> None:
        """Let every prepare fail with the text from now on."""
        (self.directory / "refusal").write_text(text)

    def comply(self) -> None:
        """Prepare again."""
        (self.directory / "refusal").unlink()

    def calls(self, name: str) -> list[str]:
        """The uids of claims of all calls `prepare`, `refuse` or `unprepare`, in order."""
        path = self.directory / "calls.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [uid for call, uid in (line.split() for line in lines) if call == name]


@contextmanager
def node(name: str, plane: ControlPlane, directory: Path) -> Iterator[Node]:
    """Run a node for the duration of the block; nothing of it is left afterwards."""
    cgroup = f"kai-{name}-{os.getpid()}"
    mounts = _prepare(directory)
    with (directory / "init.log").open("w") as log:
        keeping = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", keeper.__file__, cgroup, directory),
                *(sys.executable, "-I", "-S", init.__file__, directory, json.dumps(mounts)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    running = Node(name, directory, plane.kubeconfig, keeping, cgroup)
    try:
        running._answer()
        running.start_containerd()
        write_images(directory / "images.tar")
        imported = running.ctr("images", "import", directory / "images.tar")
        assert imported.returncode == 0, imported.stderr
        running.start_kubelet()
        yield running
    finally:
        assert keeping.stdin
        keeping.stdin.close()
        keeping.wait(patience(60.0))


def _prepare(directory: Path) -> list[tuple[str, str, bool]]:
    """Make what the node sees in place of the machine's; gives what is mounted over what."""
    mounts = []
    for name, seen in DIRECTORIES.items():
        (directory / name).mkdir(parents=True)
        mounts.append((str(directory / name), seen, name in _SHARED))
    (directory / "cni" / "loopback.conflist").write_text(json.dumps(_CNI))
    plugin = directory / "cni-programs" / "loopback"
    plugin.write_text(_NO_NETWORK)
    plugin.chmod(0o755)
    for name, value in SYSCTLS.items():
        covering = directory / name.replace("/", ".")
        covering.write_text(f"{value}\n")
        mounts.append((str(covering), f"/proc/sys/{name}", False))
    return mounts
