import pytest

from tests.support.replacing import replace
from tests.support.worlds import gang


@pytest.mark.parametrize(
    ("last_evicted", "expected"), [(None, 310.0), (100.0, 400.0), (5.0, 310.0)]
)
def test_preemption_delay_counts_from_creation_or_the_last_eviction(last_evicted, expected):
    times = {"created": 10.0, "last_evicted": last_evicted, "preemption_delay": 300.0}
    assert replace(gang("train"), **times).preempts_from == expected
