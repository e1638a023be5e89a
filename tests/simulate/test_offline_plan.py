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


def placed_on(found):
    return {each["pod"]: each["node"] for each in found["placements"]}


def test_names_of_made_pods_do_not_depend_on_the_order_of_files():
    documents = [node("n0"), QUEUE, *(job(name, 1) for name in "abc")]
    assert plan(*documents) == plan(*reversed(documents))


def test_of_two_states_of_an_object_the_newest_that_can_be_read_counts():
    def state(version, gpus, api="v1"):
        given = node("n0", gpus)
        return given | {"apiVersion": api, "metadata": {"name": "n0", "resourceVersion": version}}

    states = [state("9", 0), state("10", 4), state("11", 0, api="v9"), node("n0", 0)]
    for given in (states, states[::-1]):
        found = plan(*given, QUEUE, pod("a"))
        assert placed_on(found) == {"default/a": "n0"}
        assert [each["object"] for each in found["rejected"]] == ["Node n0"]
        assert "newest state" in found["rejected"][0]["problem"]


def test_a_pod_on_a_node_takes_its_room_though_a_field_cannot_be_read():
    bound = pod("odd", gpus=4, node="n0", tolerations=5)
    found = plan(node("n0"), QUEUE, bound, pod("a"))
    assert found["placements"] == []
    assert [each["object"] for each in found["rejected"]] == ["Pod default/odd"]


def test_claims_of_pods_that_are_gone_are_released_after_the_first_cycle():
    device = {"request": "gpu", "driver": "d", "pool": "n0", "device": "gpu-0"}
    users = [{"resource": "pods", "name": "gone", "uid": "gone"}]
    slice_ = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "ResourceSlice",
        "metadata": {"name": "n0"},
        "spec": {
            "driver": "d",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }

    def claim(name, **status):
        request = {"name": "gpu", "deviceClassName": "any"}
        return {
            "apiVersion": "resource.k8s.io/v1beta1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
            "status": status,
        }

    left = claim("left", allocation={"devices": {"results": [device]}}, reservedFor=users)
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": {}}
    asks = pod("a", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "own"}])
    found = plan(
        node("n0"), QUEUE, slice_, kind | {"metadata": {"name": "any"}}, left, claim("own"), asks,
        until_rest=True,
    )  # fmt: skip
    [placed] = found["placements"]
    assert (placed["pod"], placed["cycle"]) == ("default/a", 2)
    assert [*placed["claims"]] == ["default/own"]
    assert found["rest"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_hold_nothing(phase):
    ended = pod("ended", gpus=4, node="n0") | {"status": {"phase": phase}}
    found = plan(node("n0"), QUEUE, ended, pod("a"))
    assert (placed_on(found), found["pending"]) == ({"default/a": "n0"}, [])


@pytest.mark.parametrize("selector", [[1], {"matchLabels": [1]}, {"matchExpressions": [1]}])
def test_a_workload_whose_selector_cannot_be_read_is_named(selector):
    wrong = job("d", 1) | {"apiVersion": "apps/v1", "kind": "Deployment"}
    wrong["spec"]["selector"] = selector
    found = plan(node("n0"), QUEUE, wrong, pod("a"))
    assert [each["object"] for each in found["rejected"]] == ["Deployment default/d"]
    assert placed_on(found) == {"default/a": "n0"}


def test_all_pods_of_a_stateful_set_are_made():
    workload = job("s", 1) | {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    labels = {"app": "s", "scheduling.kai.io/queue-name": "team"}
    template = {"metadata": {"labels": labels}, "spec": pod("unused")["spec"]}
    template["spec"]["containers"][0]["image"] = "i"
    workload["spec"] = {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "s"}},
        "template": template,
    }
    assert [*placed_on(plan(node("n0"), QUEUE, workload))] == [f"default/s-{n}" for n in range(3)]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"parallelism": 2**31, "completions": None}, "asks for 2,147,483,648 pods"),
        ({"parallelism": "3"}, "Expected `int | null`, got `str`"),
        ({"template": []}, "Expected `object`, got `array`"),
        ({"priorityClassName": "none"}, "gets no pods: "),
        ({"suspend": True, "parallelism": 2**31}, "it is suspended"),
    ],
)
def test_a_workload_whose_pods_cannot_be_made_is_named_once(fields, problem):
    wrong = job("train", 3)
    named = {k: fields.pop(k) for k in ("priorityClassName",) if k in fields}
    wrong["spec"]["template"]["spec"] |= named
    wrong["spec"] |= fields
    found = plan(node("n0"), QUEUE, wrong, pod("a"))
    assert [each["object"] for each in found["rejected"]] == ["Job default/train"]
    assert all(problem in each["problem"] for each in found["rejected"])
    assert placed_on(found) == {"default/a": "n0"}


@pytest.mark.parametrize("number", [2**63, 2**64, 10**30, 1e300, "1e400"])
def test_enormous_numbers_hurt_only_their_own_pod(number):
    found = plan(node("n0"), QUEUE, pod("large", gpus=number), pod("a"))
    assert placed_on(found) == {"default/a": "n0"}
    assert [each["stage"] for each in found["pending"]] == ["Invalid"]


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


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"name": "a\x1b[2J"}, "Pod has no metadata.name"),
        ({"name": "a", "uid": 5}, "Pod a: metadata.uid is not a text"),
        ({"name": "a", "ownerReferences": 5}, "Pod a: metadata.ownerReferences is not a list"),
    ],
)
def test_metadata_that_cannot_be_read_is_told(tmp_path, metadata, problem):
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    items = {"apiVersion": "v1", "kind": "PodList", "items": 5}
    found = read(tmp_path, a_json=json.dumps([value, items]))
    assert [each.problem for each in found.rejected] == [problem, "items of PodList is not a list"]
