"""The command; see ``benchmarks``."""

import argparse
import sys
from pathlib import Path

from benchmarks.registry import benchmarks, chosen
from benchmarks.runner import LONGEST_SECONDS, TOTAL_SECONDS, measure_all
from benchmarks.table import duration, merged, read_rows, render, write_document, write_rows


def main() -> None:
    """Measure and print."""
    options = _options()
    wanted = chosen(options.only)
    if not wanted:
        sys.exit(f"no row is called {', '.join(options.only)}")
    rows = []
    for row in measure_all(wanted, limit=options.limit, total=options.total):
        print(f"{row.part}/{row.name}: {duration(row.seconds)}, {row.outcome}", file=sys.stderr)
        rows.append(row)
    print(render(rows))
    if options.json:
        write_rows(options.json, rows)
    if options.write:
        kept = options.write.with_suffix(".json")
        every = merged(read_rows(kept), rows, [each.key for each in benchmarks()])
        write_document(every, options.write)
        write_rows(kept, every)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="renew the table in docs/benchmarks.md"
    )
    parser.add_argument(
        "--limit", type=float, default=LONGEST_SECONDS, metavar="SECONDS", help="for one row"
    )
    parser.add_argument(
        "--total", type=float, default=TOTAL_SECONDS, metavar="SECONDS", help="for all rows"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
