"""How is one row measured? In a process of its own, which is ended when it takes too long."""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

import msgspec

from benchmarks.machine import ROOT, commit, load, machine
from benchmarks.row import OUT_OF_TIME, Benchmark, Measured, Row

LONGEST_SECONDS = 300.0
TOTAL_SECONDS = 3600.0


def measure_all(chosen: Iterable[Benchmark], *, limit: float, total: float) -> Iterator[Row]:
    """Measure rows one after another.

    ``limit``: seconds for one of them, set-up included; ``total``: seconds for all, after which
    the rest is told as not measured.
    """
    version, measured_on = commit(), machine()
    ends = time.monotonic() + total
    for each in chosen:
        before = load()
        found = _measure(each, limit, ends - time.monotonic())
        yield Row(
            part=each.part,
            name=each.name,
            title=each.title,
            seconds=found.seconds,
            peak_mb=found.peak_mb,
            outcome=found.outcome,
            peer=found.peer or each.peer,
            aim=each.aim,
            commit=version,
            load=before,
            date=date.today().isoformat(),
            machine=measured_on,
        )


def _measure(row: Benchmark, limit: float, left: float) -> Measured:
    """``left``: seconds for this row and all that follow."""
    if left <= 0:
        return Measured(seconds=None, outcome=OUT_OF_TIME)
    command = [sys.executable, "-m", "benchmarks.runner", row.key]
    if left < limit:
        return in_process(command, limit=left, late=OUT_OF_TIME)
    return in_process(command, limit=limit)


def in_process(command: Sequence[str], *, limit: float, late: str = "") -> Measured:
    """Run a command that prints a ``Measured`` as its last line.

    ``late``: the outcome if that is not done within ``limit`` seconds.
    """
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, cwd=ROOT, check=False
        )
    except subprocess.TimeoutExpired:
        return Measured(seconds=None, outcome=late or f"not done after {limit:g} s")
    lines = answer.stdout.splitlines()
    if answer.returncode or not lines:
        said = answer.stderr.strip().splitlines() or ["no output"]
        return Measured(seconds=None, outcome=f"FAILED: {said[-1]}")
    return msgspec.json.decode(lines[-1], type=Measured)


def main(key: str) -> None:
    """Measure the row ``key`` in this process."""
    from benchmarks.registry import benchmarks  # noqa: PLC0415 - the registry imports this module

    chosen = next(each for each in benchmarks() if each.key == key)
    print(msgspec.json.encode(chosen.run()).decode())


if __name__ == "__main__":
    main(sys.argv[1])
