"""Parts of kube-scheduler as programs, compiled once from the control plane's module.

`make controlplane` builds them, as a test would wait for minutes:

    python -m tests.cluster.controlplane.oracles    builds them if needed
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.binaries import MODULE, build, controlplane_cache, locked


def filter_program() -> Path:
    """Return kube-scheduler's filter plugins, built if the user's cache lacks them (minutes).

    What it compiles is most of kube-scheduler; it stays until the control plane is built.
    """
    return _program("filters")


def allocation_program() -> Path:
    """Return kube-scheduler's allocator of devices, built if the user's cache lacks it.

    That takes seconds after the filter plugins, which need nearly all that it compiles.
    """
    return _program("allocations")


def ask(program: Path, questions: Iterable[Any]) -> list[Any]:
    """The answers of a program that reads questions and writes answers as JSON, one a line."""
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def _program(name: str) -> Path:
    source = MODULE / name / "main.go"
    parts = [path.read_bytes() for path in (source, MODULE / "go.mod", MODULE / "go.sum")]
    directory = controlplane_cache()
    fingerprint = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    target = directory / f"{name}-{fingerprint}"
    with locked(directory / "lock"):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            build(f"./{name}", unfinished)
            os.replace(unfinished, target)
    return target


if __name__ == "__main__":
    filter_program()
    allocation_program()
