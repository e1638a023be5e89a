"""How does a program not outlive the one that started it, even when that one is killed?

    python attached.py PARENT_PID PROGRAM ARGUMENT...

becomes PROGRAM after asking the kernel (Linux; elsewhere nothing is asked) to kill it when its
parent ends. Done in a process of its own, because Python code between fork and exec is not safe
in a program with threads. The request follows the *thread* that started this process.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Attach to `parent` and become `command`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that ended before the request was made sends no signal any more.
    if os.getppid() == parent:
        os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
