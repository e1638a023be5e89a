"""Where are the controllers of frameworks?

In the user's cache, built there once from the Go module beside this file (four minutes of
processor time), at low priority, like the control plane but apart from it.

    python -m tests.cluster.frameworks.binaries     builds if needed, prints the directory
"""

import hashlib
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.cluster.controlplane.binaries import BuildError, locked
from tests.cluster.controlplane.toolchain import compiled_packages, find_go
from tests.cluster.frameworks.modules import MODULE, cache_directory, environment

PACKAGES = {
    "jobset": "sigs.k8s.io/jobset",
    "lws": "sigs.k8s.io/lws/cmd",
    "kuberay": "github.com/ray-project/kuberay/ray-operator",
}
LINK = "-ldflags=-s -w"
NICE = ("nice", "-n", "10")


@cache
def framework_binaries() -> Path:
    """The directory with every program of `PACKAGES`, building them if needed."""
    cached = cache_directory()
    cached.mkdir(parents=True, exist_ok=True)
    target = cached / _fingerprint()
    with locked(cached / "lock"):
        if not target.exists():
            _build(target, cached)
    return target


def _build(target: Path, cached: Path) -> None:
    go = find_go(MODULE, cached)
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name, package in PACKAGES.items():
        print(f"frameworks: building {name} (once)", flush=True)
        answer = subprocess.run(
            [*NICE, go, "build", LINK, "-o", unfinished / name, package],
            cwd=MODULE,
            env=environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        if answer.returncode != 0:
            raise BuildError(f"go build {package} failed:\n{answer.stderr[-4000:].strip()}")
    unfinished.rename(target)
    shutil.rmtree(compiled_packages(cached), ignore_errors=True)


def _fingerprint() -> str:
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts.append(f"{platform.system()} {platform.machine()} {LINK}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


if __name__ == "__main__":
    print(framework_binaries())
