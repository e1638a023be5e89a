"""An embedded cluster under simulated time, for tests that need no HTTP."""

import pytest

from kai_py.embedded.clock import SimulatedClock
from kai_py.embedded.cluster import EmbeddedCluster


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def cluster(clock):
    cluster = EmbeddedCluster(clock=clock)
    cluster.start()
    clock.run_due()
    return cluster


@pytest.fixture
def bare(clock):
    """A cluster whose controllers and kubelet are played by the test."""
    cluster = EmbeddedCluster(clock=clock, controllers=False, kubelet=False)
    cluster.start()
    return cluster
