"""Where are the programs of a real node?

In the user's cache, built there once from the pinned Go modules in `programs/`, like the control
plane's (about twenty minutes on two cores). runc, busybox and util-linux are the machine's.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.cluster.controlplane.binaries import BuildError, locked, user_cache
from tests.cluster.controlplane.toolchain import compiled_packages, find_go, go_environment

MODULES = Path(__file__).parent / "programs"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_CONTAINERD_TAGS = "no_btrfs,no_zfs,no_devmapper,no_aufs,no_tracing,no_otel"
_LINK = "-s -w"
_KUBELET_VERSION = "v1.36.3"


@dataclass(frozen=True)
class Program:
    """A program: the module that pins it, its package there, build tags and linker flags."""

    name: str
    module: str
    package: str
    tags: str = ""
    link: str = ""


PROGRAMS = (
    Program(
        "kubelet",
        "kubelet",
        "k8s.io/kubernetes/cmd/kubelet",
        link=f"-X k8s.io/component-base/version.gitVersion={_KUBELET_VERSION}",
    ),
    Program("parts-driver", "kubelet", "./driver"),
    Program("gpu-plugin", "kubelet", "./plugin"),
    Program(
        "dra-example-kubeletplugin",
        "example_driver",
        "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin",
    ),
    Program("containerd", "containerd", f"{_CONTAINERD}/containerd", _CONTAINERD_TAGS),
    Program(
        "containerd-shim-runc-v2",
        "containerd",
        f"{_CONTAINERD}/containerd-shim-runc-v2",
        _CONTAINERD_TAGS,
    ),
    Program("ctr", "containerd", f"{_CONTAINERD}/ctr", _CONTAINERD_TAGS),
)


@cache
def programs() -> Path:
    """Return the directory that holds every program of `PROGRAMS`, building them if needed."""
    cached = user_cache() / "kai-py" / "node"
    prints = " ".join(map(_fingerprint, PROGRAMS))
    target = cached / hashlib.sha256(prints.encode()).hexdigest()[:16]
    if not target.exists():
        cached.mkdir(parents=True, exist_ok=True)
        with locked(cached / "lock"):
            if not target.exists():
                _build(target, cached)
    return target


def _build(target: Path, cached: Path) -> None:
    environment = go_environment(cached)
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for program in PROGRAMS:
        # A change of one program, or a build that was broken off, costs no other one.
        built = cached / f"{program.name}-{_fingerprint(program)}"
        if not built.exists():
            _build_program(program, built, environment)
        os.link(built, unfinished / program.name)
    unfinished.rename(target)
    shutil.rmtree(compiled_packages(cached), ignore_errors=True)


def _build_program(program: Program, built: Path, environment: dict[str, str]) -> None:
    module = MODULES / program.module
    print(f"node: building {program.name} (once; minutes when nothing is compiled)", flush=True)
    started = time.monotonic()
    unfinished = built.with_name(f"{built.name}.unfinished")
    go = find_go(module, built.parent)
    flags = [f"-ldflags={_LINK} {program.link}", f"-tags={program.tags}"]
    answer = subprocess.run(
        ["nice", "-n", "10", go, "build", *flags, "-o", unfinished, program.package],
        cwd=module,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        raise BuildError(f"go build {program.package} failed:\n{answer.stderr[-4000:].strip()}")
    unfinished.rename(built)
    print(f"node: built {program.name} in {time.monotonic() - started:.0f} s", flush=True)


def _fingerprint(program: Program) -> str:
    """Changes with everything that the program is made of."""
    module = MODULES / program.module
    own = (module / program.package).glob("*.go") if program.package.startswith(".") else ()
    sources = (module / "go.mod", module / "go.sum", *sorted(own))
    parts = [path.read_bytes() for path in sources]
    parts.append(f"{platform.system()} {platform.machine()} {program} {_LINK}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


if __name__ == "__main__":
    print(programs())
