"""Hours of varied load under faults: the auditor finds nothing."""

import pytest

from tests.fault_simulation.schedule import draw, format_schedule
from tests.fault_simulation.simulation import simulate

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [10, 15, 40])
def test_nothing_is_found_in_hours_of_faults(seed):
    assert_calm(draw(seed, 3.0))


def assert_calm(schedule):
    outcome = simulate(schedule)
    if outcome.findings:
        last = "\n".join(outcome.lines[-60:])
        found = "\n".join(outcome.findings)
        pytest.fail(f"{found}\nat {outcome.at:.3f} s of\n{format_schedule(schedule)}{last}")
