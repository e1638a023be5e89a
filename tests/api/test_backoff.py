"""The wait after failures in a row."""

import pytest

from kai_py.api.times import backoff_seconds


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 10.0), (2, 20.0), (3, 40.0), (4, 60.0), (5000, 60.0)]
)
def test_it_doubles_with_each_failure_up_to_the_longest(failures, seconds):
    assert backoff_seconds(failures, first=10.0, longest=60.0) == seconds
