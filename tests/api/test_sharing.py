"""Equal parts of decoded records are kept once, and nothing else changes."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.records import interning
from kai_py.api.records.core import Pod
from kai_py.api.records.interning import interned
from kai_py.api.records.node import Node

plain = msgspec.json.Decoder(Pod).decode


def pod(name, image_cpu="1", team="a", at="2026-01-01T00:00:00Z"):
    return json.dumps(
        {
            "metadata": {"name": name, "namespace": "here", "uid": name, "labels": {"team": team}},
            "spec": {
                "nodeName": "node-1",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": image_cpu}}}],
                "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}],
            },
        }
    ).encode()


def test_equal_parts_are_one_object():
    decode = interned(plain)
    one, other = decode(pod("one")), decode(pod("other"))
    assert (one.metadata.name, other.metadata.name) == ("one", "other")
    assert one.spec.containers is other.spec.containers
    assert one.spec.tolerations is other.spec.tolerations
    assert one.metadata.labels is other.metadata.labels
    assert one.spec.node_name is other.spec.node_name
    assert one.spec.overhead is other.spec.overhead


def test_words_are_shared_within_parts_that_differ():
    decode = interned(plain)
    one, other = decode(pod("one")), decode(pod("other", at="2026-01-01T00:00:01Z"))
    (ready,), (later,) = one.status.conditions, other.status.conditions
    assert ready != later
    assert ready.type is later.type


def test_equal_encodings_of_different_fields_stay_apart():
    decode = interned(msgspec.json.Decoder(Node).decode)
    text = {"status": {"allocatable": {"cpu": "1"}, "capacity": {"cpu": "1"}}}
    node = decode(json.dumps(text).encode())
    assert node == msgspec.json.decode(json.dumps(text), type=Node)


quantities = st.sampled_from(["1", "2", 1, 1.0, 2, "1000m"])
pods = st.builds(pod, st.sampled_from("pqr"), quantities, st.sampled_from(["a", "b", ""]))


@given(st.lists(pods, max_size=12))
def test_nothing_else_changes(texts):
    decode = interned(plain)
    found = [decode(text) for text in texts]
    expected = [plain(text) for text in texts]
    assert found == expected
    assert [msgspec.json.encode(each) for each in found] == [
        msgspec.json.encode(each) for each in expected
    ]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(interning, "MAX_INTERNED", 3)
    kept = interning.Interning()
    for i in range(50):
        kept.intern(plain(pod("p", team=f"team-{i}")))
    assert len(kept._strings) <= 3
    assert all(len(table) <= 3 for table in kept._parts.values())
