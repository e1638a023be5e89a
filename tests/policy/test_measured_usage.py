"""Past use that was measured elsewhere: a part of the cluster, for as long as it is fresh."""

import numpy as np

from kai_py.policy.usage_history import ExternalUsage


def test_amounts_are_parts_of_the_cluster_until_they_are_stale():
    usage = ExternalUsage(300.0)
    queues, rows, total = ("a", "b"), ("gpu", "cpu"), np.array([8.0, 0.0])
    assert not usage.fractions(0.0, queues, rows, total).any(), "nothing was measured"
    usage.record({"a": {"gpu": 2.0, "cpu": 500.0}, "gone": {"gpu": 8.0}}, 1000.0)
    assert usage.fractions(1300.0, queues, rows, total).tolist() == [[0.25, 0.0], [0.0, 0.0]]
    assert not usage.fractions(1301.0, queues, rows, total).any()
