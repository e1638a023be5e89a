"""Hours of varied load under faults: the auditor finds nothing.

A seed that fails here is shrunk by ``make simulate-faults SEED=… HOURS=… SHRINK=1``.
"""

import pytest

from tests.fault_simulation.schedule import draw, format_schedule
from tests.fault_simulation.simulation import simulate

HOURS = 10.0
SEEDS = range(12)
"""120 simulated hours, in the time of the suite."""
NIGHTLY_SEEDS = range(1000)
"""10,000 simulated hours."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_found_in_hours_of_faults(seed):
    assert simulate(draw(seed, HOURS)).findings == (), explanation(seed)


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_nothing_is_found_in_ten_thousand_hours_of_faults():
    failed = {}
    for seed in NIGHTLY_SEEDS:
        outcome = simulate(draw(seed, HOURS))
        if outcome.findings:
            failed[seed] = outcome.findings[0]
    assert not failed


def explanation(seed):
    return f"seed {seed} over {HOURS} hours:\n{format_schedule(draw(seed, HOURS))}"
