"""kube-scheduler's filter plugins as a program, compiled once from the control plane's module."""

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from tests.cluster.controlplane.binaries import MODULE, BuildError, locked, user_cache
from tests.cluster.controlplane.toolchain import find_go, go_environment

SOURCE = MODULE / "filters" / "main.go"


@cache
def filter_program() -> Path:
    """Return the program, building it if the user's cache lacks it (minutes)."""
    parts = [path.read_bytes() for path in (SOURCE, MODULE / "go.mod", MODULE / "go.sum")]
    directory = user_cache() / "kai-py" / "filters"
    target = directory / hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / "lock"):
        if not target.exists():
            _build(target)
    return target


def _build(target: Path) -> None:
    cached = target.parent
    unfinished = target.with_suffix(".unfinished")
    answer = subprocess.run(
        [find_go(MODULE, cached), "build", "-ldflags=-s -w", "-o", unfinished, "./filters"],
        cwd=MODULE,
        env=go_environment(cached),
        check=False,
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        raise BuildError(f"go build ./filters failed:\n{answer.stderr[-4000:].strip()}")
    os.replace(unfinished, target)
