"""Starts process 1 of a node in namespaces of its own, and clears up when it has ended.

    python keeper.py NAME DIRECTORY PROGRAM ARGUMENT...

PROGRAM becomes process 1 of a new PID and mount namespace and has this program's standard input and
output. It ends when its input does, so that a killed test process leaves nothing: then the cgroups
NAME and the files in DIRECTORY are removed by this program, which no signal to the tests reaches.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private")


def main(name: str, directory: Path, command: list[str]) -> None:
    """Make the cgroups, run the command, remove what it leaves."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    make_cgroups(name)
    try:
        subprocess.run(["unshare", *NAMESPACES, *command], check=False, start_new_session=True)
    finally:
        # In every hierarchy: runc makes groups in more of them than the kubelet asks for.
        for group in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")):
            remove_cgroup(group)
        shutil.rmtree(directory, ignore_errors=True)


def make_cgroups(name: str) -> None:
    """Make the group NAME below the root of every hierarchy, or of the one there is."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    roots = [CGROUPS] if unified else _hierarchies()
    for root in roots:
        if unified:
            enabled = (root / "cgroup.controllers").read_text().split()
            controllers = " ".join(f"+{each}" for each in enabled)
            (root / "cgroup.subtree_control").write_text(controllers)
        group = root / name
        group.mkdir()
        # A new group of this hierarchy has no processors and may not hold a process.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if not unified and (root / setting).exists():
                (group / setting).write_text((root / setting).read_text())


def _hierarchies() -> list[Path]:
    mounted = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(fields[1]) for fields in mounted if fields[2] == "cgroup"]


def remove_cgroup(group: Path, *, within: float = 10.0) -> None:
    """Remove a group and those below it, as soon as the last process of them has gone."""
    deadline = time.monotonic() + within
    while group.exists() and time.monotonic() < deadline:
        for directory, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
