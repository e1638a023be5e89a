"""Helm, built once per machine.

It is compiled from the Go module beside this file (six minutes of processor time) into the user's
cache beside the control plane, and again only when the module changes. Where that is not possible
in fifteen minutes, for want of Go or of its modules or because the machine is too slow, tests that
need it are skipped; what was compiled until then is kept for the next time.
"""

import hashlib
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from tests.cluster.controlplane.binaries import BuildError, locked, user_cache
from tests.cluster.controlplane.toolchain import (
    ToolchainError,
    compiled_packages,
    find_go,
    go_environment,
)
from tests.support.patience import patience, time_limit

MODULE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum")
PACKAGE = "helm.sh/helm/v4/cmd/helm"
DOWNLOAD_SECONDS, BUILD_SECONDS = 180, 720
Test = TypeVar("Test", bound=Callable[..., object])
FLAGS = ("-gcflags=all=-N -l", "-ldflags=-s -w")
"""Not optimised, which takes a quarter of the time away, and without symbols of debuggers."""


def built_once(test: Test) -> Test:
    """Mark a test that may have to build helm first."""
    limit = time_limit(DOWNLOAD_SECONDS + BUILD_SECONDS + 300)
    return pytest.mark.slow(pytest.mark.timeout(limit)(test))


class _NotToBeHad(Exception):
    """The program cannot be built here and now; the text says why."""


def helm(*arguments: str | Path, values: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm, with ``values`` for ``--values=-``."""
    program = _program()
    if isinstance(program, _NotToBeHad):
        pytest.skip(str(program))
    command = [program, *arguments]
    return subprocess.run(command, input=values, check=False, capture_output=True, text=True)


def render(chart: Path, namespace: str, values: str) -> subprocess.CompletedProcess[str]:
    """The templates as they would be applied; standard error says why where helm refuses."""
    return helm(
        "template", "release", chart, f"--namespace={namespace}", "--values=-", values=values
    )


def missing() -> str | None:
    """Build it if needed; say why it cannot be built here and now, None when it is there."""
    program = _program()
    return str(program) if isinstance(program, _NotToBeHad) else None


@cache
def _program() -> Path | _NotToBeHad:
    directory = user_cache() / "kai-py" / "helm"
    target = directory / _fingerprint()
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / "lock"):
        if not target.exists():
            try:
                _build(target, directory)
            except _NotToBeHad as reason:
                return reason
    return target


def _build(target: Path, directory: Path) -> None:
    try:
        go = find_go(MODULE, user_cache() / "kai-py" / "controlplane")
    except ToolchainError as error:
        raise _NotToBeHad(f"helm is not built: {error}") from None
    environment = go_environment(directory)
    fetched = _run([go, "mod", "download"], environment, DOWNLOAD_SECONDS)
    if fetched.returncode != 0:
        raise _NotToBeHad("helm is not built: its modules cannot be downloaded")
    unfinished = target.with_name(target.name + ".unfinished")
    command = [go, "build", *FLAGS, "-o", unfinished, PACKAGE]
    built = _run(command, environment, BUILD_SECONDS)
    if built.returncode != 0:
        raise BuildError(f"go build of helm failed:\n{built.stderr[-4000:].strip()}")
    unfinished.rename(target)
    shutil.rmtree(compiled_packages(directory), ignore_errors=True)


def _run(
    command: list[str | Path], environment: dict[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run Go's program; compilers that it started end with it."""
    process = subprocess.Popen(
        command,
        cwd=MODULE,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = process.communicate(timeout=patience(seconds))[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        name = " ".join(map(str, command[1:3]))
        raise _NotToBeHad(f"helm is not built: go {name} took {seconds} s") from None
    return subprocess.CompletedProcess(command, process.returncode, "", said)


def _fingerprint() -> str:
    parts = [(MODULE / name).read_bytes() for name in SOURCES]
    parts.append(f"{platform.system()} {platform.machine()}".encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
