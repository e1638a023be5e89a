import asyncio

import pytest

from kai_py.simulate.objects import ObjectsError, load_objects, read_objects, write_objects
from kai_py.watch.client import Client
from kai_py.watch.errors import Unreachable
from tests.simulate.clusters import job, queue, simulated
from tests.watch.cluster_server import CLAIMS, ClusterServer


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
def test_what_is_written_is_read(tmp_path, name):
    documents = simulated(queue("team", 8), job("four", 4, "team")).documents()
    write_objects(tmp_path / name, documents)
    assert load_objects(tmp_path / name) == documents


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\x1f\x8bnot gzip", b'{"items": [{}]}', b'{"items": [{"kind": "Pod"}]}'],
)
def test_what_is_no_snapshot_is_told(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ObjectsError, match="file"):
        load_objects(tmp_path / "file")


def test_no_kind_is_left_out_because_its_server_does_not_answer():
    server = ClusterServer(CLAIMS.format("v1"))
    assert asyncio.run(read_objects(Client(server))) == []
    server.broken.add("/apis/resource.k8s.io/v1")
    with pytest.raises(Unreachable, match=r"deviceclasses\.resource\.k8s\.io.*503"):
        asyncio.run(read_objects(Client(server)))
