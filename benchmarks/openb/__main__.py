"""The command; see ``benchmarks.openb``."""

import argparse
import csv
import sys
import time
from pathlib import Path

from benchmarks.openb.choice import CHOICES, chosen_score
from benchmarks.openb.curve import allocation_curve
from benchmarks.openb.replay import PlacedPod, replay
from benchmarks.openb.trace import read_trace, whole_gpus

SHOWN = (100, 130)


def main() -> None:
    """Replay and print."""
    options = _options()
    try:
        trace = read_trace(options.data, options.list, options.seed)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}; --data names the directory of the trace")
    if options.whole:
        trace = whole_gpus(trace)
    began = time.perf_counter()
    placed = replay(trace, chosen_score(options.strategy, trace))
    seconds = time.perf_counter() - began
    if options.placements:
        _write(options.placements, placed)
    curve = allocation_curve(placed, trace.capacity)
    for asked in SHOWN:
        if asked in curve:
            print(f"allocated at {asked} % asked: {curve[asked]:.2f} %")
    count = sum(bool(each.node) for each in placed)
    print(f"{count} of {len(placed)} pods placed in {seconds:.2f} s")


def _write(path: Path, placed: list[PlacedPod]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        for each in placed:
            rows.writerow((each.pod.name, each.node, "-".join(str(i) for i in each.devices)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openb")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--list", default="default")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--strategy", default="fgd", choices=CHOICES)
    parser.add_argument("--whole", action="store_true", help="leave out pods that share GPUs")
    parser.add_argument("--placements", type=Path, metavar="FILE", help="write pod,node,devices")
    return parser.parse_args()


if __name__ == "__main__":
    main()
