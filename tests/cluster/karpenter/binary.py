"""Where is Karpenter?

In the user's cache, built there once from the Go module beside this file (about five minutes of
processor time), at low priority, with the modules of the frameworks' cache.

    python -m tests.cluster.karpenter.binary     builds if needed, prints the program
"""

import hashlib
import subprocess
from functools import cache
from pathlib import Path

from tests.cluster.controlplane.binaries import BuildError, locked, user_cache
from tests.cluster.controlplane.toolchain import find_go
from tests.cluster.frameworks.binaries import LINK, NICE
from tests.cluster.frameworks.modules import cache_directory, environment

MODULE = Path(__file__).parent
PACKAGE = "sigs.k8s.io/karpenter/kwok"


@cache
def karpenter() -> Path:
    """The program, building it if needed."""
    cached = user_cache() / "kai-py" / "karpenter"
    cached.mkdir(parents=True, exist_ok=True)
    target = cached / _fingerprint()
    with locked(cached / "lock"):
        if not target.exists():
            unfinished = target.with_name(f"{target.name}.unfinished")
            command = [*NICE, find_go(MODULE, cached), "build", LINK, "-o", unfinished, PACKAGE]
            answer = _go(command)
            if answer.returncode != 0:
                raise BuildError(f"go build {PACKAGE} failed:\n{answer.stderr[-4000:].strip()}")
            unfinished.rename(target)
    return target


@cache
def sources() -> Path:
    """The directory of Karpenter's Go module, downloaded if needed."""
    go = find_go(MODULE, cache_directory())
    _go([go, "mod", "download", "sigs.k8s.io/karpenter"])
    answer = _go([go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"])
    if answer.returncode != 0:
        raise BuildError(answer.stderr[-4000:].strip())
    return Path(answer.stdout.strip())


def _go(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=MODULE, env=environment(), check=False, capture_output=True, text=True
    )


def _fingerprint() -> str:
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


if __name__ == "__main__":
    print(karpenter())
