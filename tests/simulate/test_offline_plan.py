"""Plans of objects in files: what is read, what is completed, what is decided."""

import gzip
import json

import msgspec
import pytest
import yaml

from kai_py.config import Configuration
from kai_py.simulate import objects
from kai_py.simulate.object_files import ObjectsInFiles, read_object_files
from kai_py.simulate.offline_plan import plan_objects

QUEUE = {
    "apiVersion": "scheduling.kai.io/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"deservedGPUs": 8},
}


def node(name, gpus=4, **status):
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": allocatable, **status},
    }


def pod(name, gpus=1, node="", **spec):
    amounts = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"scheduling.kai.io/queue-name": "team"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **placed, **spec},
    }


def job(name, pods):
    template = pod("unused")["spec"] | {"restartPolicy": "Never"}
    template["containers"][0]["image"] = "i"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"scheduling.kai.io/queue-name": "team"}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": template}},
    }


def plan(*documents, **options):
    found = plan_objects(ObjectsInFiles(list(documents)), Configuration(), **options)
    return msgspec.to_builtins(found)


def read(tmp_path, **files):
    for name, content in files.items():
        path = tmp_path / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_object_files([tmp_path])


def names(found):
    return [each["metadata"]["name"] for each in found.documents]


def test_a_pod_without_uid_or_status_is_placed():
    found = plan(node("n0"), QUEUE, pod("a"))
    assert found["placements"] == [{"pod": "default/a", "node": "n0", "cycle": 1, "claims": {}}]
    assert (found["version"], found["cycles"], found["rest"]) == (1, 1, False)


def test_a_job_that_was_never_applied_gets_its_pods():
    found = plan(node("n0"), QUEUE, job("train", 3), until_rest=True)
    assert len(found["placements"]) == 3
    assert all(each["pod"].startswith("default/train-") for each in found["placements"])
    assert (found["cycles"], found["rest"]) == (2, True)


def test_a_job_with_pods_of_its_own_gets_no_more():
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    running = pod("train-0", node="n0")
    running["metadata"]["ownerReferences"] = [owner]
    found = plan(node("n0"), QUEUE, job("train", 3), running)
    assert found["placements"] == []


def test_a_job_that_the_server_would_refuse_is_rejected():
    wrong = job("train", 3)
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    found = plan(node("n0"), QUEUE, wrong, pod("a"))
    assert [each["object"] for each in found["rejected"]] == ["Job default/train"]
    assert [each["pod"] for each in found["placements"]] == ["default/a"]


def test_claims_of_templates_are_made_and_allocated():
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n0-gpus"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }
    request = {"name": "gpu", "exactly": {"deviceClassName": "any"}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "any"},
        "spec": {},
    }
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    asking = [pod(name, gpus=0, resourceClaims=claims) for name in ("a", "b")]
    found = plan(node("n0"), QUEUE, slice_, template, device_class, *asking)
    [placed] = found["placements"]
    allocation = placed["claims"]["default/a-gpu"]
    assert allocation["devices"]["results"][0]["device"] == "gpu-0"
    assert [each["gang"] for each in found["pending"]] == ["default/Pod/b"]


def preempting():
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    ]
    low, high = pod("low", gpus=4, node="n0"), pod("high", gpus=4, priorityClassName="high")
    return [node("n0"), QUEUE, *classes, low, high]


def test_an_eviction_happens_at_once_and_the_nominated_pod_starts_in_the_next_cycle():
    found = plan(*preempting(), until_rest=True)
    [eviction] = found["evictions"]
    assert (eviction["pod"], eviction["rule"], eviction["cycle"]) == ("default/low", "preempt", 1)
    assert eviction["for"] == "default/Pod/high"
    assert [each["pod"] for each in found["nominations"]] == ["default/high"]
    assert [(each["pod"], each["cycle"]) for each in found["placements"]] == [("default/high", 2)]
    assert (found["cycles"], found["rest"]) == (3, True)


def test_a_terminating_pod_has_gone_after_the_first_cycle():
    leaving = pod("old", gpus=4, node="n0")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = plan(node("n0"), QUEUE, leaving, pod("new", gpus=4), until_rest=True)
    assert [(each["pod"], each["cycle"]) for each in found["placements"]] == [("default/new", 2)]
    assert found["evictions"] == []


def test_what_cannot_be_read_is_named_and_the_rest_planned():
    bad = pod("bad") | {"metadata": {"name": "bad", "labels": ["a"]}}
    old = QUEUE | {"apiVersion": "scheduling.kai.io/v9"}
    found = plan(node("n0"), QUEUE, bad, old, pod("a"))
    rejected = {each["object"] for each in found["rejected"]}
    assert "Pod default/bad" in rejected
    assert [each["pod"] for each in found["placements"]] == ["default/a"]


def test_a_version_that_is_not_supported_is_named():
    found = plan(node("n0"), pod("a") | {"apiVersion": "v7"})
    [rejected] = found["rejected"]
    assert rejected["object"] == "Pod default/a"
    assert "v7 is not supported: use v1" in rejected["problem"]


def test_the_same_input_gives_the_same_bytes_in_any_order_of_objects():
    documents = [*preempting(), job("train", 2)]
    first = msgspec.json.encode(plan(*documents, until_rest=True))
    again = msgspec.json.encode(plan(*reversed(documents), until_rest=True))
    assert first == again


def test_given_documents_are_not_changed():
    documents = [*preempting(), job("train", 2)]
    before = json.dumps(documents)
    plan(*documents, until_rest=True)
    assert json.dumps(documents) == before


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


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "Pod", "metadata": {"name": "a"}}, "has no apiVersion"),
        ({"apiVersion": "v1", "kind": "Pod"}, "Pod has no metadata"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 3}}, "Pod has no metadata.name"),
        ([1], "is not a Kubernetes object"),
    ],
)
def test_what_is_no_object_is_rejected(tmp_path, value, problem):
    found = read(tmp_path, a_json=json.dumps(value))
    assert [each.problem for each in found.rejected] == [problem]


def test_a_compressed_file_that_expands_too_much_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "MAX_BYTES", 1 << 20)
    found = read(tmp_path, a_json_gz=gzip.compress(b" " * (3 << 20)))
    assert "expands to more than" in found.rejected[0].problem
    damaged = gzip.compress(b"{}")[:-4]
    found = read(tmp_path, a_json_gz=damaged)
    assert "damaged" in found.rejected[0].problem
