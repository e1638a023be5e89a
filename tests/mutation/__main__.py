"""``python -m tests.mutation --count 200 --seed 1``: which mutants survive, and the rate."""

import argparse

from tests.mutation.mutants import sample
from tests.mutation.run import REPOSITORY, survivors


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--near", action="store_true", help="run the module's own folder only")
    options = parser.parse_args()
    mutants = sample(REPOSITORY, options.count, options.seed)
    alive = 0
    for mutant in survivors(mutants, near_only=options.near):
        alive += 1
        print(f"survived: {mutant.module}:{mutant.line}: {mutant.change}", flush=True)
    killed = len(mutants) - alive
    print(f"{killed} of {len(mutants)} killed, {100 * killed / len(mutants):.0f} %")


if __name__ == "__main__":
    main()
