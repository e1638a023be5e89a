"""On what was it measured? The machine, the commit, and how busy it was."""

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def machine() -> str:
    """Processor, cores, memory and Python in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {python}"


def commit() -> str:
    """The short hash of the commit, with a plus when the code differs from it."""
    found = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "kai_py", "benchmarks")
    return found + ("+" if changed else "")


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 1)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _git(*arguments: str) -> str:
    answer = subprocess.run(
        ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or ("unknown" if answer.returncode else "")
