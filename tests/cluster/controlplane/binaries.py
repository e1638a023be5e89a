"""Where are the programs of the real control plane?

In `KUBEBUILDER_ASSETS` when that directory has all of them, otherwise in the user's cache, built
there once from the pinned Go module beside this file (about seven minutes on two cores, then
never again until `go.mod` changes). Two processes that need them at once build them once: a file
lock, and a directory that appears only when it is complete.

    python -m tests.cluster.controlplane            builds if needed, prints the directory
    python -m tests.cluster.controlplane --serve    runs one, prints its kubeconfig
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.cluster.controlplane.toolchain import compiled_packages, find_go, go_environment

MODULE = Path(__file__).parent
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
_LINK = "-ldflags=-s -w"


class BuildError(RuntimeError):
    """`go build` failed; the text carries what it said."""


@cache
def binaries() -> Path:
    """Return the directory that holds every program of `PACKAGES`, building them if needed."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        missing = [name for name in PACKAGES if not (Path(assets) / name).exists()]
        if not missing:
            return Path(assets)
        # Programs of different releases do not make a control plane: all from there, or none.
        _say(f"KUBEBUILDER_ASSETS lacks {', '.join(missing)}; using the pinned build instead")
    cached = controlplane_cache()
    target = cached / _fingerprint()
    if not target.exists():
        with locked(cached / "lock"):
            if not target.exists():
                _build(target)
    return target


def controlplane_cache() -> Path:
    """Return the directory of the user's cache for programs and what compiles them."""
    directory = user_cache() / "kai-py" / "controlplane"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def build(package: str, target: Path) -> None:
    """Compile one program of the module.

    :raises BuildError: the compiler failed.
    """
    cached = controlplane_cache()
    _say(f"building {target.stem} (once; minutes when nothing is compiled yet)")
    started = time.monotonic()
    answer = subprocess.run(
        [find_go(MODULE, cached), "build", _LINK, "-o", target, package],
        cwd=MODULE,
        env=go_environment(cached),
        check=False,
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        raise BuildError(f"go build {package} failed:\n{answer.stderr[-4000:].strip()}")
    _say(f"built {target.stem} in {time.monotonic() - started:.0f} s")


def discard_compiled() -> None:
    """Remove the packages that were compiled on the way, gigabytes of them."""
    cached = controlplane_cache()
    with locked(cached / "lock"):
        shutil.rmtree(compiled_packages(cached), ignore_errors=True)


def _build(target: Path) -> None:
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name, package in PACKAGES.items():
        build(package, unfinished / name)
    unfinished.rename(target)
    shutil.rmtree(compiled_packages(target.parent), ignore_errors=True)


def _fingerprint() -> str:
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts.append(f"{platform.system()} {platform.machine()} {_LINK}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def user_cache() -> Path:
    """Return where this user's programs keep what they can make again."""
    configured = os.environ.get("XDG_CACHE_HOME")
    if configured:
        return Path(configured)
    home = os.environ.get("HOME")
    if home and os.access(home, os.W_OK):
        return Path(home) / ".cache"
    return Path(tempfile.gettempdir()) / f"cache-{os.getuid()}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes out of the block for its duration."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"control plane: {text}", flush=True)
