import pytest

from tests.commit.cluster import Cluster


@pytest.fixture
def cluster():
    return Cluster()
