"""How many completions of a Job need no pod any more."""

import pytest

from kai_py.api.records.job import JobStatus


@pytest.mark.parametrize(
    ("failed_indexes", "ended"),
    [("", 2), ("7", 3), ("1,4-5", 5), ("0-9", 12), ("x,-,5-3,", 2), ("3-", 3), ("-3", 2)],
)
def test_failed_indexes_count_as_far_as_they_can_be_read(failed_indexes, ended):
    assert JobStatus(succeeded=2, failed_indexes=failed_indexes).ended_completions == ended
