"""What does a machine need for real nodes, and what of it is missing here?

    python -m tests.node.requirements    fails, with one sentence for each thing that is missing

`.ci/run` installs the Debian packages where it may.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.node.keeper import CGROUPS, NAMESPACES

PACKAGES = {
    "runc": "runc",
    "busybox": "busybox-static",
    "unshare": "util-linux",
    "mount": "mount",
    "nice": "coreutils",
}
"""Programs, and the packages of Debian and Ubuntu that have them."""


def missing() -> Iterator[str]:
    """One sentence for each thing that is not there."""
    if sys.platform != "linux":
        yield "nodes run on Linux only"
        return
    if os.geteuid() != 0:
        yield "nodes are run by root only: they need namespaces, mounts and cgroups"
        return
    lacking = [name for name in PACKAGES if shutil.which(name) is None]
    for name in lacking:
        yield f"no {name}: apt-get install {PACKAGES[name]}"
    if "\toverlay\n" not in Path("/proc/filesystems").read_text():
        yield "the kernel has no overlay file system"
    if not os.access(CGROUPS, os.W_OK) or not _controllers():
        yield f"no cgroups can be made below {CGROUPS}"
    if "unshare" not in lacking and not _namespaces():
        yield f"unshare {' '.join(NAMESPACES)} is refused"


def _controllers() -> bool:
    """Whether this machine's own hierarchies have the memory controller, in version 1 or 2."""
    unified = CGROUPS / "cgroup.controllers"
    if unified.exists():
        return "memory" in unified.read_text().split()
    return (CGROUPS / "memory").is_dir()


def _namespaces() -> bool:
    command = ["unshare", *NAMESPACES, "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def main() -> None:
    """Say what is missing."""
    found = list(missing())
    for sentence in found:
        print(f"tests on real nodes are skipped: {sentence}", file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
