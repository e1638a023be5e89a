"""Process 1 of a node: it mounts what the node sees, starts its programs, and reaps them.

    python init.py DIRECTORY MOUNTS

What the node writes to the machine's directories goes to DIRECTORY. MOUNTS is JSON: a list of
[directory or file, where the node sees it, shared]. Then one JSON request a line on standard input,
one answer a line: {"start": NAME, "command": [...], "log": PATH, "environment":
{...}}, {"signal": NAME, "number": N}, {"exited": NAME}. Standard input ends when the tests do,
however they end; then this ends, and the kernel kills everything in its PID namespace, containers
too, and drops the mounts.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_children: dict[str, int] = {}
_codes: dict[int, int] = {}


OVERLAID = ("/etc", "/opt", "/run", "/var/lib", "/var/log")


def main(directory: Path, mounts: list[tuple[str, str, bool]]) -> None:
    """Serve requests until there are no more."""
    for path in OVERLAID:
        _overlay(path, directory / "written" / path.lstrip("/"))
    for source, target, shared in mounts:
        if Path(source).is_dir():
            Path(target).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", source, target], check=True)
        if shared:
            subprocess.run(["mount", "--make-rshared", target], check=True)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: _reap())
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _overlay(path: str, directory: Path) -> None:
    upper, work = directory / "upper", directory / "work"
    for each in (upper, work):
        each.mkdir(parents=True)
    options = f"lowerdir={path},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, path], check=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if "start" in request:
        return _start(**request)
    if "signal" in request:
        pid = _children[request["signal"]]
        if pid not in _codes:
            os.kill(pid, request["number"])
        return {"code": _codes.get(pid)}
    _reap()
    return {"code": _codes.get(_children[request["exited"]])}


def _start(start: str, command: list[str], log: str, environment: dict[str, str]) -> dict[str, Any]:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(command[0], command, {**os.environ, **environment})
    os.close(output)
    _children[start] = pid
    return {"pid": pid}


def _reap() -> None:
    """Take leave of every process that ended, also of containers that lost their shim."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _codes[pid] = os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
