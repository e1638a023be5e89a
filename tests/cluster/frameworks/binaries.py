"""Where are the controllers of frameworks?

In the user's cache, built there once from the Go module beside this file (five minutes of
processor time), at low priority, like the control plane but apart from it. What only nightly tests
need has Go modules of its own in the folders of `NIGHTLY`.

    python -m tests.cluster.frameworks.binaries [FOLDER]    builds if needed, prints the directory
"""

import hashlib
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.cluster.controlplane.binaries import BuildError, locked
from tests.cluster.controlplane.toolchain import compiled_packages, find_go
from tests.cluster.frameworks.modules import MODULE, cache_directory, environment

PACKAGES = {
    "jobset": "sigs.k8s.io/jobset",
    "lws": "sigs.k8s.io/lws/cmd",
    "kuberay": "github.com/ray-project/kuberay/ray-operator",
    "kubeflow": "./kubeflow",
}
NIGHTLY = {
    "mpi": {"mpi-operator": "."},
    "kserve": {"kserve": "."},
    "kwok": {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
}
"""By folder with a Go module the programs built there."""
LINK = "-ldflags=-s -w"
NICE = ("nice", "-n", "10")


@cache
def framework_binaries(folder: str = "") -> Path:
    """The directory with the programs of `PACKAGES`, or of a folder, building them if needed."""
    cached = cache_directory()
    cached.mkdir(parents=True, exist_ok=True)
    target = cached / _fingerprint(MODULE / folder)
    with locked(cached / "lock"):
        if not target.exists():
            _build(target, cached, MODULE / folder, NIGHTLY.get(folder, PACKAGES))
    return target


def _build(target: Path, cached: Path, module: Path, packages: dict[str, str]) -> None:
    go = find_go(module, cached)
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name, package in packages.items():
        print(f"frameworks: building {name} (once)", flush=True)
        answer = subprocess.run(
            [*NICE, go, "build", LINK, "-o", unfinished / name, package],
            cwd=module,
            env=environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        if answer.returncode != 0:
            raise BuildError(f"go build {package} failed:\n{answer.stderr[-4000:].strip()}")
    unfinished.rename(target)
    shutil.rmtree(compiled_packages(cached), ignore_errors=True)


def _fingerprint(module: Path) -> str:
    sources = [module / "go.mod", module / "go.sum", *sorted(module.glob("*.go"))]
    if module == MODULE:
        sources += sorted(module.glob("kubeflow/*.go"))
    parts = [source.read_bytes() for source in sources]
    parts.append(f"{platform.system()} {platform.machine()} {LINK}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


if __name__ == "__main__":
    print(framework_binaries(*sys.argv[1:]))
