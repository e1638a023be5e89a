"""Which flags make each component part of a fast cluster on loopback?

Flags are written without the dashes in front; a bool becomes `true` or `false`; later mappings
win, so a caller's flags replace those set here. etcd never waits for the disk, kube-apiserver and
kube-controller-manager have limits high enough that they are never what a benchmark measures.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.cluster.controlplane.binaries import binaries

Flag = str | int | float | bool | Path


def command(program: str, *flags: Mapping[str, Flag]) -> list[str | Path]:
    """Return the command line of one of the built programs."""
    merged: dict[str, Flag] = {}
    for mapping in flags:
        merged |= mapping
    return [binaries() / program, *(f"--{name}={_text(v)}" for name, v in merged.items())]


def etcd_flags(directory: Path, client_url: str, peer_url: str) -> dict[str, Flag]:
    """Return the flags of etcd: one member whose data may be lost with the machine."""
    return {
        "data-dir": directory / "etcd",
        "listen-client-urls": client_url,
        "advertise-client-urls": client_url,
        "listen-peer-urls": peer_url,
        "initial-advertise-peer-urls": peer_url,
        "initial-cluster": f"default={peer_url}",
        "socket-reuse-port": True,
        "unsafe-no-fsync": True,
        # As kubeadm has it; by default a kind that never changes has no bookmarks for ten minutes.
        "watch-progress-notify-interval": "5s",
        "quota-backend-bytes": 8 << 30,
        "log-level": "warn",
    }


def apiserver_flags(directory: Path, etcd_url: str, port: int, tokens: Path) -> dict[str, Flag]:
    """Return the flags of kube-apiserver: RBAC, bearer tokens and our certificate."""
    return {
        "etcd-servers": etcd_url,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "permit-port-sharing": True,
        "endpoint-reconciler-type": "none",  # a loopback address is no valid endpoint
        "cert-dir": certificate(directory).parent,
        "token-auth-file": tokens,
        "authorization-mode": "RBAC",
        "service-cluster-ip-range": "10.0.0.0/16",
        "service-account-issuer": "https://kubernetes.default.svc",
        # Its public half; the API server reads it from no key in the form that openssl writes.
        "service-account-key-file": certificate(directory),
        "service-account-signing-key-file": key(directory),
        "allow-privileged": True,
        "max-requests-inflight": 4000,
        "max-mutating-requests-inflight": 2000,
    }


def controller_manager_flags(directory: Path, kubeconfig: Path) -> dict[str, Flag]:
    """Return the flags of kube-controller-manager: every default controller."""
    return {
        "kubeconfig": kubeconfig,
        "service-account-private-key-file": key(directory),
        "root-ca-file": certificate(directory),
        "leader-elect": False,
        "secure-port": 0,
        # Kubelets live in the process of the tests: one that is busy for a minute loses no nodes.
        "node-monitor-grace-period": "5m",
        "kube-api-qps": 2000,
        "kube-api-burst": 4000,
        "concurrent-deployment-syncs": 20,
        "concurrent-gc-syncs": 40,
        "concurrent-job-syncs": 40,
        "concurrent-replicaset-syncs": 40,
        "concurrent-statefulset-syncs": 20,
        "concurrent-resourceclaim-syncs": 50,
    }


def scheduler_flags(kubeconfig: Path, configuration: Path, port: int) -> dict[str, Flag]:
    """Return the flags of kube-scheduler, its health and metrics on `port`."""
    return {
        "config": configuration,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "permit-port-sharing": True,
    }


def feature_gate_flags(gates: Mapping[str, bool]) -> dict[str, Flag]:
    """Return the flag that switches `gates`, none when there are none."""
    return {"feature-gates": _pairs(gates)} if gates else {}


def runtime_config_flags(versions: Mapping[str, bool]) -> dict[str, Flag]:
    """Return the flag that serves or withholds API versions."""
    return {"runtime-config": _pairs(versions)} if versions else {}


def certificate(directory: Path) -> Path:
    """Return where kube-apiserver has its certificate, which is its own authority."""
    return directory / "certificates" / "apiserver.crt"


def key(directory: Path) -> Path:
    """Return where the key of that certificate is, which signs tokens as well."""
    return directory / "certificates" / "apiserver.key"


def _pairs(switches: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={_text(switches[name])}" for name in sorted(switches))


def _text(value: Flag) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
