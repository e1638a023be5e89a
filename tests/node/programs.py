"""Where are the programs of a real node?

In the user's cache, built there once from the pinned Go modules in `programs/`, like the control
plane's (about twenty minutes on two cores). runc, busybox and util-linux are the machine's.
"""

import hashlib
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
    target = cached / _fingerprint()
    if not target.exists():
        cached.mkdir(parents=True, exist_ok=True)
        with locked(cached / "lock"):
            if not target.exists():
                _build(target, cached)
    return target


def _build(target: Path, cached: Path) -> None:
    environment = go_environment(cached)
    unfinished = target.with_name(target.name + ".unfinished")
    unfinished.mkdir(exist_ok=True)
    for program in PROGRAMS:
        if not (unfinished / program.name).exists():
            _build_program(program, unfinished, cached, environment)
    unfinished.rename(target)
    shutil.rmtree(compiled_packages(cached), ignore_errors=True)


def _build_program(
    program: Program, directory: Path, cached: Path, environment: dict[str, str]
) -> None:
    module = MODULES / program.module
    print(f"node: building {program.name} (once; minutes when nothing is compiled)", flush=True)
    started = time.monotonic()
    built = directory / f"{program.name}.unfinished"
    flags = [f"-ldflags={_LINK} {program.link}", f"-tags={program.tags}"]
    command = [find_go(module, cached), "build", *flags, "-o", built]
    answer = subprocess.run(
        ["nice", "-n", "10", *command, program.package],
        cwd=module,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        raise BuildError(f"go build {program.package} failed:\n{answer.stderr[-4000:].strip()}")
    built.rename(directory / program.name)
    print(f"node: built {program.name} in {time.monotonic() - started:.0f} s", flush=True)


def _fingerprint() -> str:
    parts = [path.read_bytes() for path in sorted(MODULES.rglob("*")) if path.is_file()]
    parts.append(f"{platform.system()} {platform.machine()} {PROGRAMS} {_LINK}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


if __name__ == "__main__":
    print(programs())
