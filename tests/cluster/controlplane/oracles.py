"""Parts of kube-scheduler as programs, compiled once from the control plane's module.

`make controlplane` builds them, as a test would wait for minutes:

    python -m tests.cluster.controlplane.oracles    builds them if needed
"""

import hashlib
import os
from functools import cache
from pathlib import Path

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
