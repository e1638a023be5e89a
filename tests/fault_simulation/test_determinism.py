"""The same seed gives the same run, whatever Python's hashes are."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.fault_simulation.schedule import Schedule, draw, format_schedule
from tests.fault_simulation.simulation import simulate
from tests.support.repository import ROOT

HOURS = 0.5
PRINT_TRACE = (
    "from tests.fault_simulation.schedule import draw;"
    "from tests.fault_simulation.simulation import simulate;"
    f"print(simulate(draw({{seed}}, {HOURS})).trace)"
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_gives_the_same_run_again(seed):
    first = simulate(draw(seed, HOURS))
    assert first.counts["call"] > 100
    assert simulate(draw(seed, HOURS)).trace == first.trace
    assert simulate(draw(seed + 100, HOURS)).trace != first.trace


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_a_seed_gives_the_same_run_with_other_hashes(hash_seed):
    code = PRINT_TRACE.format(seed=3)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    assert printed.stdout.strip() == simulate(draw(3, HOURS)).trace


def test_a_schedule_is_the_same_after_writing_and_reading(tmp_path):
    drawn = draw(5, 4.0)
    assert msgspec.json.decode(format_schedule(drawn), type=Schedule) == drawn
