"""``python -m tests.soak.run 1000000``: lets so many pods live, and says what memory that takes.

A line per step tells what has happened so far and the resident memory; ``--sizes`` makes it a JSON
document with the sizes of all containers. Those are taken in a copy of the process, so that looking
leaves no trace in what is measured. All bounds of caches are those of the product.
"""

import argparse
import gc
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kai_py.watch.mirror import freeze_memory
from tests.soak.cluster import GANGS_AT_ONCE, ChurningCluster


class Sample(msgspec.Struct, frozen=True):
    """After ``pods`` lives; ``resident`` in MiB, ``seconds`` of processor time."""

    pods: int
    claims: int
    evicted: int
    queues: int
    seconds: float
    resident: float
    blocks: int
    sizes: dict[str, int] = {}

    def __str__(self) -> str:
        return (
            f"{self.pods} pods, {self.claims} claims allocated, {self.evicted} pods evicted, "
            f"{self.queues} queues: {self.seconds:.0f} s of processor time, "
            f"{self.resident:.1f} MiB, {self.blocks} blocks"
        )


def soak(pods: int, step: int, *, with_sizes: bool) -> Iterator[Sample]:
    """Let ``pods`` pods live, with a sample after each ``step`` of them."""
    soaked, gangs = ChurningCluster(), 0
    freeze_memory()  # as the scheduler's process does after its first lists
    while soaked.lives < pods:
        due = soaked.lives + step
        while soaked.lives < due:
            soaked.live_through(range(gangs, gangs + GANGS_AT_ONCE))
            gangs += GANGS_AT_ONCE
        # Garbage in cycles is no growth, and the process collects it all but seldom by itself.
        gc.collect()
        yield Sample(
            pods=soaked.lives,
            claims=soaked.allocated,
            evicted=soaked.evicted,
            queues=gangs,
            seconds=time.process_time(),
            resident=_resident_mib(),
            blocks=sys.getallocatedblocks(),
            sizes=_sizes_in_a_copy(soaked) if with_sizes else {},
        )


def _resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(each for each in status.splitlines() if each.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _sizes_in_a_copy(soaked: ChurningCluster) -> dict[str, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gc.unfreeze()
            with os.fdopen(writing, "wb") as answer:
                answer.write(msgspec.json.encode(soaked.sizes()))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        sizes = msgspec.json.decode(answer.read(), type=dict[str, int])
    os.waitpid(child, 0)
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pods", type=int, help="how many pods are to live")
    parser.add_argument("--step", type=int, default=25_000, help="pods between two samples")
    parser.add_argument("--sizes", action="store_true", help="JSON, with the sizes of containers")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for sample in soak(options.pods, options.step, with_sizes=options.sizes):
        print(msgspec.json.encode(sample).decode() if options.sizes else sample, flush=True)


if __name__ == "__main__":
    main()
