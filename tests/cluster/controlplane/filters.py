"""kube-scheduler's filter plugins as a program, compiled once from the control plane's module.

`make controlplane` builds it, as a test would wait for minutes:

    python -m tests.cluster.controlplane.filters    builds it if needed
"""

import hashlib
import os
from functools import cache
from pathlib import Path

from tests.cluster.controlplane.binaries import MODULE, build, controlplane_cache, locked

SOURCE = MODULE / "filters" / "main.go"


@cache
def filter_program() -> Path:
    """Return the program, building it if the user's cache lacks it (minutes).

    What it compiles is most of kube-scheduler; it stays until the control plane is built.
    """
    parts = [path.read_bytes() for path in (SOURCE, MODULE / "go.mod", MODULE / "go.sum")]
    directory = controlplane_cache()
    fingerprint = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    target = directory / f"filters-{fingerprint}"
    with locked(directory / "lock"):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            build("./filters", unfinished)
            os.replace(unfinished, target)
    return target


if __name__ == "__main__":
    filter_program()
