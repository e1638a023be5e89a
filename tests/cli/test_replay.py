"""kai-py replay: from a zip of KAI's to our plan."""

import json
import zipfile

import pytest

from kai_py.cli.errors import CommandError
from kai_py.cli.kai_archive import read_archive
from kai_py.cli.replay import command


def written(tmp_path, **objects):
    document = {"config": {}, "schedulerParams": {"schedulerName": "mine"}, "rawObjects": objects}
    path = tmp_path / "snapshot.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("snapshot.json", json.dumps(document))
    return path


def node(name, gpus):
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": allocatable, "conditions": ready}
    return {"metadata": {"name": name, "uid": name}, "status": status}


def queue(name, **gpu):
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": unlimited, "memory": unlimited, "gpu": unlimited | gpu}
    return {"metadata": {"name": name, "uid": name}, "spec": {"resources": resources}}


def pod(name, group, scheduler="mine"):
    requests = {"requests": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "creationTimestamp": "2026-05-01T12:00:00Z",
            "annotations": {"pod-group-name": group},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "resources": requests}],
        },
        "status": {"phase": "Pending"},
    }


def group(name, members):
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"group-{name}"},
        "spec": {"minMember": members, "queue": "q", "priorityClassName": "train"},
    }


def replayed(path, capsys, **options):
    command(path, **options)
    return capsys.readouterr()


def test_a_gang_of_a_snapshot_is_planned_under_its_scheduler_name(tmp_path, capsys):
    path = written(
        tmp_path,
        nodes=[node("n", 2)],
        queues=[queue("q")],
        podGroups=[group("fits", 2), group("big", 3)],
        pods=[pod(f"a{i}", "fits") for i in range(2)]
        + [pod(f"b{i}", "big") for i in range(3)]
        + [pod("foreign", "fits", scheduler="default-scheduler")],
        configMaps=None,
    )
    out = replayed(path, capsys).out.splitlines()
    assert out[0].startswith("place team/PodGroup.scheduling.run.ai/fits (queue q, allocate)")
    assert out[1:3] == ["  team/a0 -> n", "  team/a1 -> n"]
    assert out[3].startswith("pending team/PodGroup.scheduling.run.ai/big")
    assert len(out) == 4


def test_a_pod_that_kai_is_binding_holds_its_room(tmp_path, capsys):
    request = {
        "metadata": {"name": "a0", "namespace": "team"},
        "spec": {"podName": "a0", "selectedNode": "n"},
        "status": {"phase": "Pending"},
    }
    objects = {
        "nodes": [node("n", 1)],
        "queues": [queue("q")],
        "podGroups": [group("a", 1), group("b", 1)],
        "pods": [pod("a0", "a"), pod("b0", "b")],
    }
    out = replayed(written(tmp_path, bindRequests=[request], **objects), capsys).out
    assert "a0" not in out
    assert out.startswith("pending team/PodGroup.scheduling.run.ai/b ")
    failed = request | {"status": {"phase": "Failed"}}
    out = replayed(written(tmp_path, bindRequests=[failed], **objects), capsys).out
    assert out.startswith("place team/PodGroup.scheduling.run.ai/a ")


def test_an_object_that_cannot_be_read_is_named_and_the_rest_planned(tmp_path, capsys):
    path = written(
        tmp_path,
        nodes=[{"metadata": {"name": 7}}, node("n", 1)],
        queues=[queue("q")],
        podGroups=[group("a", 1)],
        pods=[pod("a0", "a")],
    )
    told = replayed(path, capsys, json=True)
    assert "nodes[0] is left out" in told.err
    assert json.loads(told.out)["placements"][0]["pods"][0]["node"] == "n"


def test_another_file_is_refused_in_one_line(tmp_path, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(CommandError, match="is no snapshot of KAI-Scheduler"):
        command(path)
    with pytest.raises(CommandError, match="No such file"):
        command(tmp_path / "missing.zip")


def test_the_time_of_a_snapshot_is_its_latest_moment(tmp_path):
    path = written(tmp_path, pods=[pod("a", "g")])
    assert read_archive(path).taken == 1777636800.0
