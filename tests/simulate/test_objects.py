import json

import pytest

from kai_py.config import Configuration
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.objects import ObjectsError, load_objects, write_objects
from kai_py.simulate.redaction import redact
from tests.simulate.clusters import NOW, job, objects, queue, simulated


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
def test_what_is_written_is_read(tmp_path, name):
    documents = objects(simulated(queue("team", 8), job("four", 4, "team")))
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


def test_a_redacted_cluster_decides_the_same_and_names_nobody():
    cluster = simulated(queue("secret-team", 6), job("secret-six", 6, "secret-team"))
    cluster.embedded.create(job("secret-four", 4, "secret-team"))
    cluster.clock.run_due()
    documents = objects(cluster)
    hidden = redact(documents)
    assert "secret" not in json.dumps(hidden)
    courses = []
    for each in (documents, hidden):
        copy = SimulatedCluster(Configuration(), start=NOW, seed=1)
        copy.load(each)
        courses.append(copy.settle(60))
    plain, other = (
        [sorted(len(gang.pods) for gang in course.placements) for course in courses],
        [[each.stage for each in course.last.unplaced] for course in courses],
    )
    assert plain[0] == plain[1]
    assert other[0] == other[1]
    assert plain[0]
