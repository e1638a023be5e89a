"""``python -m tests.mutation --count 200 --seed 1``: which mutants survive, and the rate."""

import argparse
import json
import sys
from pathlib import Path

from tests.mutation.mutants import PACKAGES, Mutant, mutant_at, sample
from tests.mutation.run import BUDGET, BaselineError, ask, judge
from tests.mutation.switch import REPOSITORY


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package", action="append", help="below kai_py/, instead of the usual")
    parser.add_argument("--seconds", type=float, default=BUDGET, help="of tests, for each mutant")
    parser.add_argument("--only", metavar="MODULE:PLACE", action="append", help="these mutants")
    parser.add_argument("--recording", type=Path, help="keep here which tests execute what")
    parser.add_argument("--json", action="store_true", help="the result as JSON in the last line")
    parser.add_argument("--tests", type=Path, help="run the tests listed in this file, and end")
    parser.add_argument("--active", metavar="MODULE:PLACE", help="with this mutant (--tests)")
    parser.add_argument("paths", nargs="*", help="tests to ask")
    options = parser.parse_args()
    if options.tests is not None:
        return ask(options.tests, options.active and _named(options.active))
    if options.only:
        mutants = [_named(each) for each in options.only]
    else:
        packages = options.package or PACKAGES
        mutants = sample(REPOSITORY, options.count, options.seed, packages)
    try:
        verdicts = judge(mutants, options.paths, options.recording, options.seconds)
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 1
    survived = [str(verdict) for verdict in verdicts if verdict.killer is None]
    killed = len(verdicts) - len(survived)
    if options.json:
        found = {"mutants": len(verdicts), "killed": killed, "survived": survived}
        print(json.dumps(found))
        return 0
    print(*survived, sep="\n")
    print(f"{killed} of {len(verdicts)} killed, {100 * killed / len(verdicts):.1f} %")
    return 0


def _named(text: str) -> Mutant:
    module, _, place = text.rpartition(":")
    return mutant_at(REPOSITORY, REPOSITORY / module, int(place))


if __name__ == "__main__":
    sys.exit(main())
