"""Helm's own rendering and linting of a chart, built once per machine.

`main.go` beside this file says what it does. It is compiled (about a minute and a half on two idle
cores) into the user's cache beside the control plane, and again only when these files change.
"""

import hashlib
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.cluster.controlplane.binaries import BuildError, locked, user_cache
from tests.cluster.controlplane.toolchain import compiled_packages, go_environment

MODULE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go")


def render(chart: Path, namespace: str, values: str) -> subprocess.CompletedProcess[str]:
    """Lint and render; the exit code is 1 and standard error says why where helm refuses."""
    command = [_program(), chart, namespace]
    return subprocess.run(command, input=values, check=False, capture_output=True, text=True)


@cache
def _program() -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go on the PATH to build helm's rendering with")
    directory = user_cache() / "kai-py" / "helm"
    target = directory / _fingerprint()
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / "lock"):
        if not target.exists():
            _build(go, target, directory)
    return target


def _build(go: str, target: Path, directory: Path) -> None:
    environment = go_environment(directory)
    fetched = subprocess.run(
        [go, "mod", "download"], cwd=MODULE, env=environment, check=False, capture_output=True
    )
    if fetched.returncode != 0:
        pytest.skip("the modules of helm cannot be downloaded")
    unfinished = target.with_name(target.name + ".unfinished")
    built = subprocess.run(
        [go, "build", "-ldflags=-s -w", "-o", unfinished, "."],
        cwd=MODULE,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if built.returncode != 0:
        raise BuildError(f"go build of helm's rendering failed:\n{built.stderr[-4000:].strip()}")
    unfinished.rename(target)
    shutil.rmtree(compiled_packages(directory), ignore_errors=True)


def _fingerprint() -> str:
    parts = [(MODULE / name).read_bytes() for name in SOURCES]
    parts.append(f"{platform.system()} {platform.machine()}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
