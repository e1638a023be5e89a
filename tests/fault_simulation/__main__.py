"""``make simulate-faults SEED=7 HOURS=10``: simulates seeds and prints what the auditor finds.

A seed may be a range (``1-50``) or the file of a kept schedule. With ``--shrink`` a schedule that
fails is made smaller and printed, to be kept.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.fault_simulation.schedule import Schedule, draw, format_schedule, read_schedule
from tests.fault_simulation.shrink import shrink
from tests.fault_simulation.simulation import simulate

SHOWN_LINES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", help="a seed, a range of seeds, or the file of a schedule")
    parser.add_argument("--hours", type=float, default=4.0, help="simulated hours of a seed")
    parser.add_argument("--shrink", action="store_true", help="make what fails smaller")
    options = parser.parse_args()
    results = [_try(name, schedule, options) for name, schedule in _schedules(options)]
    sys.exit(not all(results))


def _schedules(options):
    if options.what.endswith(".json"):
        yield options.what, read_schedule(Path(options.what))
        return
    first, _, last = options.what.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        yield f"seed {seed}", draw(seed, options.hours)


def _try(name: str, schedule: Schedule, options) -> bool:
    started = time.process_time()
    outcome = simulate(schedule)
    seconds = time.process_time() - started
    counts = ", ".join(f"{count} {what}s" for what, count in sorted(outcome.counts.items()))
    print(f"{name}: {outcome.at / 3600:.2f} h in {seconds:.1f} s, trace {outcome.trace[:12]}")
    print(f"  {counts}", flush=True)
    for finding in outcome.findings:
        print(f"  FOUND at {outcome.at:.3f} s: {finding}")
    if outcome.findings and options.shrink:
        schedule = shrink(schedule, lambda progress: print(f"  {progress}", flush=True))
        outcome = simulate(schedule)
        print(*outcome.lines[-SHOWN_LINES:], sep="\n")
        print(format_schedule(schedule))
    return not outcome.findings


main()
