"""kai-py replay: from a zip of KAI's to our plan."""

import json
import zipfile

import pytest
import typer

from kai_py.cli.errors import CommandError
from kai_py.cli.kai_archive import read_archive
from kai_py.cli.replay import command
from kai_py.simulate.files.objects import write_objects
from tests.dialects import feeding as fed
from tests.dialects.kai.objects import job, kai_queue, native_queue, with_pods


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


def test_a_pod_that_kai_is_binding_holds_its_capacity(tmp_path, capsys):
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
    assert "nodes[0] is ignored" in told.err
    assert json.loads(told.out)["placements"][0]["pods"][0]["node"] == "n"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_claims_of_a_snapshot_get_devices_in_either_shape(tmp_path, capsys, version):
    asked = {"deviceClassName": "gpu"}
    request = {"name": "r", **(asked if version == "v1beta1" else {"exactly": asked})}
    device = {"name": "gpu-0", **({"basic": {}} if version == "v1beta1" else {})}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    uses = {"name": "c", "resourceClaimName": "c"}
    users = [pod("a0", "a"), pod("a1", "a")]
    for each in users:
        each["spec"] |= {"resourceClaims": [uses], "containers": [{"name": "main"}]}
        each["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c"}]}
    spec = {"devices": {"requests": [request]}}
    found = replayed(
        written(
            tmp_path,
            nodes=[node("n", 0)],
            queues=[queue("q")],
            podGroups=[group("a", 2)],
            pods=users,
            deviceClasses=[{"metadata": {"name": "gpu", "uid": "gpu"}, "spec": {}}],
            resourceSlices=[
                {
                    "metadata": {"name": "s", "uid": "s"},
                    "spec": {"driver": "d", "nodeName": "n", "pool": pool, "devices": [device]},
                }
            ],
            resourceClaims=[
                {"metadata": {"name": "c", "namespace": "team", "uid": "c"}, "spec": spec}
            ],
            persistentVolumes=[{"metadata": {"name": "v", "uid": "v"}, "spec": {}}],
            podDisruptionBudgets=[],
            nodeResourceTopologies=None,
        ),
        capsys,
    )
    assert found.err == ""
    assert found.out.splitlines()[1:3] == ["  team/a0 -> n with n/gpu-0", "  team/a1 -> n"]


@pytest.mark.parametrize("content", ["hello", "{}", '{"kind": "Job"}', "[]", '{"items": [{}]}'])
def test_another_file_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    refusal = r"notes.txt: (is not a snapshot of a cluster \(give a file of kai-py snapshot|items)"
    with pytest.raises(CommandError, match=refusal):
        command(path)
    with pytest.raises(CommandError, match="No such file"):
        command(tmp_path / "missing.zip")


def test_the_time_of_a_snapshot_is_its_latest_moment(tmp_path):
    path = written(tmp_path, pods=[pod("a", "g")])
    assert read_archive(path).taken_at == 1777636800.0


def saved_cluster(tmp_path, *documents):
    path = tmp_path / "cluster.json.gz"
    write_objects(path, documents)
    return path


def two_jobs():
    """A Job in our words that needs 3 GPUs and one in KAI's whose pods start one by one."""
    return (
        fed.node("n", 2),
        native_queue("ours"),
        kai_queue("q", quota=8, limit=8, overQuotaWeight=1),
        *with_pods(job("whole", 3, annotations={"scheduling.kai.io/queue-name": "ours"}), 3),
        *with_pods(job("single", 1, {"kai.scheduler/queue": "q"}), 1),
    )


def complete(document):
    """The document as an API server would give it."""
    namespaced = document["kind"] not in ("Node", "Queue")
    meta = {"uid": f"uid-{document['kind']}-{document['metadata']['name']}"}
    meta |= {"namespace": "default"} if namespaced else {}
    return {**document, "metadata": {**meta, **document["metadata"]}}


def test_our_own_snapshot_is_planned_with_its_owners(tmp_path, capsys):
    path = saved_cluster(tmp_path, *map(complete, two_jobs()))
    out = replayed(path, capsys).out
    assert "place default/Job/single (queue q, allocate): " in out
    assert "pending default/Job/whole (queue ours, Resources): Infeasible: with nothing" in out


def test_owners_of_kinds_that_are_not_watched_make_the_gang(tmp_path, capsys):
    spec = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "w", "replicas": 3}]}
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "rc", "namespace": "default", "uid": "rc"},
        "spec": spec,
    }
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "rc", "uid": "rc"}
    head = pod("head", "")
    head["metadata"] = {
        "name": "head",
        "namespace": "default",
        "uid": "head",
        "labels": {"ray.io/node-type": "head", "scheduling.kai.io/queue-name": "ours"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    head |= {"apiVersion": "v1", "kind": "Pod"}
    head["spec"]["schedulerName"] = "kai-scheduler"
    path = saved_cluster(tmp_path, *map(complete, two_jobs()), cluster, head)
    told = replayed(path, capsys)
    assert told.err == ""
    assert "pending default/RayCluster/rc (queue ours, BelowMinMember): minMember is 4" in told.out


def test_what_is_not_read_of_our_own_snapshot_is_named(tmp_path, capsys):
    strange = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    broken = complete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "labels": 7}})
    path = saved_cluster(tmp_path, *map(complete, two_jobs()), strange, broken)
    told = replayed(path, capsys)
    assert "Thing/t is ignored: example.com/v1 is not supported" in told.err
    assert "Node/b is ignored" in told.err
    assert "place default/Job/single" in told.out


def test_two_configurations_are_compared(tmp_path, capsys):
    path = saved_cluster(tmp_path, *map(complete, two_jobs()))
    other, same = tmp_path / "other.yaml", tmp_path / "same.yaml"
    other.write_text("schedulerName: other-scheduler\n")
    same.write_text("cyclePeriod: 1s\n")
    assert replayed(path, capsys, diff=same).out == "the plans are the same\n"
    with pytest.raises(typer.Exit) as ended:
        command(path, diff=other)
    assert ended.value.exit_code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- defaults", f"+++ {other}"]
    assert "-  default/single-0 -> n" in lines
    assert lines[-1] == "+nothing to do"
    with pytest.raises(typer.Exit):
        command(path, diff=other, json=True)
    both = json.loads(capsys.readouterr().out)
    assert (len(both["plan"]["placements"]), both["other"]["placements"]) == (1, [])


def test_a_plan_that_another_version_printed_is_compared(tmp_path, capsys):
    path = saved_cluster(tmp_path, *map(complete, two_jobs()))
    printed = tmp_path / "plan.txt"
    printed.write_text(replayed(path, capsys).out)
    assert replayed(path, capsys, against=printed).out == "the plans are the same\n"
    printed.write_text(printed.read_text().replace("single-0 -> n", "single-0 -> elsewhere"))
    with pytest.raises(typer.Exit) as ended:
        command(path, against=printed)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "-  default/single-0 -> elsewhere",
        "+  default/single-0 -> n",
    ]
    with pytest.raises(CommandError, match="--against cannot be combined"):
        command(path, against=printed, json=True)


def test_a_file_of_neither_kind_is_refused(tmp_path):
    path = tmp_path / "list.json"
    path.write_text('{"items": [{"kind": "Pod"}]}')
    with pytest.raises(CommandError, match=r"list.json: items\[0\] has no apiVersion"):
        command(path)
