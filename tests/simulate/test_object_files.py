"""Files of objects: every form in which people keep them, and what is wrong with them."""

import asyncio
import gzip
import json
import pickle

import pytest
import yaml

from kai_py.simulate.files import objects
from kai_py.simulate.files.objects import ObjectsError, load_objects, read_objects, write_objects
from kai_py.watch.client import Client
from kai_py.watch.errors import Unreachable
from tests.simulate.clusters import job, queue, simulated
from tests.simulate.manifests import names, node, read
from tests.watch.cluster_server import CLAIMS, ClusterServer


def test_every_form_of_file_is_read(tmp_path):
    typed = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "p"}}]}
    listed = {"apiVersion": "v1", "kind": "List", "items": [node("listed")]}
    stream = yaml.safe_dump_all([node("first"), node("second")])
    found = read(
        tmp_path,
        a_json=json.dumps(listed),
        b_json=json.dumps(typed),
        c_yaml=stream,
        d_json_gz=gzip.compress(json.dumps(listed).encode()),
        notes_txt="not read",
    )
    assert names(found) == ["listed", "p", "first", "second", "listed"]
    assert found.documents[1]["kind"] == "Pod"
    assert found.rejected == []


def test_a_broken_document_of_a_stream_is_named_by_its_line(tmp_path):
    stream = "\n".join(
        [yaml.safe_dump(node("a")), "---", "foo: [", "---", yaml.safe_dump(node("b"))]
    )
    found = read(tmp_path, a_yaml=stream)
    assert names(found) == ["a", "b"]
    [rejected] = found.rejected
    line = stream.splitlines().index("foo: [") + 1
    assert rejected.object.startswith(f"{tmp_path / 'a.yaml'}:")
    assert abs(int(rejected.object.rpartition(":")[2]) - line) <= 1


def pod_named(name):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "Pod", "metadata": {"name": "a"}}, "has no apiVersion"),
        ({"apiVersion": "v1", "kind": "Pod"}, "Pod has no metadata"),
        (pod_named(3), "Pod has no text as metadata.name"),
        (pod_named(""), "Pod has no metadata.name"),
        ({**pod_named("a"), "apiVersion": 1.0}, "has no text as apiVersion"),
        ([1], "is not a Kubernetes object"),
    ],
)
def test_what_is_no_object_is_rejected(tmp_path, value, problem):
    found = read(tmp_path, a_json=json.dumps(value))
    assert [each.problem for each in found.rejected] == [problem]


def test_a_key_that_is_set_twice_is_told_with_its_line(tmp_path):
    node_with = "kind: Node\napiVersion: v1\nmetadata:\n  name: a\n"
    found = read(tmp_path, a_yaml=f"{node_with}---\n{node_with}  name: b\n")
    assert names(found) == ["a", "b"]
    [told] = found.rejected
    assert told.object == f"{tmp_path}/a.yaml:10"
    assert told.problem == "name is set twice in one mapping: the first one is lost"


@pytest.mark.parametrize(
    "more", ["", '\n{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}}']
)
def test_a_key_that_is_set_twice_in_json_is_told(tmp_path, more):
    twice = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x", "name": "a"}}'
    found = read(tmp_path, a_json=twice + more)
    assert names(found)[:1] == ["a"]
    [told] = found.rejected
    assert told.object == f"{tmp_path}/a.json:1"
    assert told.problem == "name is set twice in one mapping: the first one is lost"


def test_a_compressed_file_that_expands_too_much_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "MAX_BYTES", 1 << 20)
    found = read(tmp_path, a_json_gz=gzip.compress(b" " * (3 << 20)))
    assert "expands to more than" in found.rejected[0].problem
    damaged = gzip.compress(b"{}")[:-4]
    found = read(tmp_path, a_json_gz=damaged)
    assert "damaged" in found.rejected[0].problem


LISTED = {"apiVersion": "v1", "kind": "List", "items": [node("a")]}


FORMS = {
    "a list after another": json.dumps(LISTED, indent=4) + "\n" + json.dumps(node("b")),
    "JSON, then YAML": json.dumps(LISTED) + "\n---\n" + yaml.safe_dump(node("b")),
    "YAML, then JSON": yaml.safe_dump(node("b")) + "---\n" + json.dumps(LISTED),
    "flow style": "{apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n"
    + json.dumps(node("b")),
    "directives, comments, nothing": "%YAML 1.1\n---\n# a\n--- # b\n\n---\nnull\n---\n"
    + yaml.safe_dump_all([node("a"), node("b")]),
    "with its mark": "\ufeff" + json.dumps({"items": [node("a"), node("b")]}),
    "files with their marks": "\ufeff"
    + json.dumps(node("a"))
    + "\n\ufeff"
    + json.dumps([])
    + "\n---\n\ufeff"
    + yaml.safe_dump(node("b")),
    "a comma after the last item": json.dumps([node("a"), node("b")]).removesuffix("]") + ",]",
    "tabs": json.dumps(node("a"), indent="\t")
    + "\n---\nkind:\tNode\t# b\napiVersion: v1\nmetadata:\n  name: b\t\n",
    "of PowerShell": json.dumps([node("a"), node("b")]).encode("utf-16"),
    "lists of lists": json.dumps(
        LISTED | {"items": [LISTED, [node("b")], LISTED | {"items": None}]}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_files_are_read_as_people_make_them(tmp_path, form):
    found = read(tmp_path, a_YAML=FORMS[form])
    assert (sorted(names(found)), found.rejected) == (["a", "b"], [])


def test_the_line_of_what_follows_json_is_told(tmp_path):
    text = json.dumps(node("a"), indent=1) + '\n{"kind": \n'
    [rejected] = read(tmp_path, a_json=text).rejected
    assert rejected.object.endswith(f":{text.count(chr(10))}")
    assert rejected.problem.startswith("is not JSON: ")


@pytest.mark.parametrize("text", ['{"kind": "Pod",', '{"kind": NaN}', '{"kind": "Pod" "a"}'])
def test_json_that_is_not_even_yaml_is_refused_as_json(tmp_path, text):
    [rejected] = read(tmp_path, a_json=text).rejected
    assert "JSON" in rejected.problem


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"name": "a\x1b[2J"}, "Pod has no text as metadata.name"),
        ({"name": "a", "uid": 5}, "Pod a: metadata.uid is not a text"),
        ({"name": "a", "ownerReferences": 5}, "Pod a: metadata.ownerReferences is not a list"),
    ],
)
def test_metadata_that_cannot_be_read_is_told(tmp_path, metadata, problem):
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    items = {"apiVersion": "v1", "kind": "PodList", "items": 5}
    found = read(tmp_path, a_json=json.dumps([value, items]))
    assert [each.problem for each in found.rejected] == [problem, "items of PodList is not a list"]


def test_names_are_generated_as_by_an_api_server(tmp_path):
    """The same ones in any order, and two for two objects with the same content."""
    meta = {"generateName": "job-" + "x" * 60, "namespace": "default"}
    jobs = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"parallelism": size}}
        for size in (1, 2, 2)
    ]
    found = read(tmp_path, a_yaml=yaml.safe_dump_all(jobs))
    assert found.rejected == []
    assert len(set(names(found))) == 3
    assert all(len(each) == 63 and each.startswith("job-xxx") for each in names(found))
    again = read(tmp_path, a_yaml=yaml.safe_dump_all(reversed(jobs)))
    assert sorted(names(again)) == sorted(names(found))


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


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("apiVersion", True, r"items\[1\] has no text as apiVersion"),
        ("kind", ["Pod"], r"items\[1\] has no text as kind"),
        ("metadata", "a", r"items\[1\] Pod has no metadata"),
        ("metadata", {"name": 7}, r"items\[1\] Pod has no text as metadata.name"),
        ("metadata", {"name": "a", "namespace": {}}, None),
        ("metadata", {"name": "a", "namespace": 7}, r"items\[1\] Pod a: metadata.namespace is not"),
        (
            "metadata",
            {"name": "a", "ownerReferences": "b"},
            "metadata.ownerReferences is not a list",
        ),
    ],
)
def test_an_object_without_a_usable_name_is_told(tmp_path, field, value, problem):
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    write_objects(tmp_path / "file", [made, {**made, field: value}])
    if problem is None:
        load_objects(tmp_path / "file")
        return
    with pytest.raises(ObjectsError, match=problem):
        load_objects(tmp_path / "file")


def test_no_kind_is_left_out_because_its_server_does_not_answer():
    server = ClusterServer(CLAIMS.format("v1"))
    assert asyncio.run(read_objects(Client(server))) == []
    server.broken.add("/apis/resource.k8s.io/v1")
    with pytest.raises(Unreachable, match=r"deviceclasses\.resource\.k8s\.io.*503"):
        asyncio.run(read_objects(Client(server)))


class OneAnswer(ClusterServer):
    """A server that lists claims with these bytes."""

    def __init__(self, answer):
        super().__init__(CLAIMS.format("v1"))
        self._answer = answer

    async def send(self, call, *, timeout_seconds=None):
        if call.path == CLAIMS.format("v1"):
            return self._answer
        return await super().send(call, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("levels", [700, 1500])
def test_one_object_nested_deeply_does_not_keep_others_from_being_read(levels):
    """Else its tenant would take suggestions and every command from all: copies are recursive."""
    deep = '{"metadata": {"name": "deep"}, "spec": {"driver": "d", "parameters": %s}}'
    plain = '{"metadata": {"name": "plain"}, "spec": {"parameters": [[]]}}'
    items = f"[{deep % ('[' * levels + ']' * levels)}, {plain}]"
    server = OneAnswer(b'{"metadata": {"resourceVersion": "1"}, "items": %s}' % items.encode())
    found = pickle.loads(pickle.dumps(asyncio.run(read_objects(Client(server)))))
    assert [each["metadata"]["name"] for each in found] == ["deep", "plain"]
    assert found[0]["spec"]["driver"] == "d"
    assert found[1]["spec"] == {"parameters": [[]]}
