import pytest

from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.watch.credentials import Anonymous
from kai_py.watch.http_transport import connect


@pytest.fixture
async def client():
    """Reaches an API server with nothing in it."""
    async with (
        EmbeddedCluster(kubelet=False) as cluster,
        connect(Anonymous(cluster.url)) as client,
    ):
        yield client
