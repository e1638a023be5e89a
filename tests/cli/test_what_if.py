"""What-if from a saved cluster: what it prints, what it refuses, its exit codes."""

import asyncio
import json

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.simulate.files.objects import write_objects
from tests.simulate import manifests
from tests.simulate.clusters import job, queue, simulated
from tests.simulate.test_changes import PATTERN


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    cluster = simulated(queue("team", 0, 4), job("one", 4, "team"), job("two", 4, "team"))
    cluster.settle(60)
    path = tmp_path_factory.mktemp("saved") / "cluster.json.gz"
    write_objects(path, cluster.documents())
    return str(path)


def what_if(*arguments):
    result = CliRunner().invoke(main.app, ["what-if", *arguments], obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_change_is_told_in_words(saved):
    result = what_if("--from", saved, "--set", "team.maxGPUs=8")
    assert result.exit_code == 0, result.output
    assert "Starts:" in result.output
    assert "default/Job/two" in result.output
    assert "4 -> 8" in result.output


def test_no_change_leaves_the_same_gangs_pending(saved):
    result = what_if("--from", saved)
    assert result.exit_code == 1
    assert "makes no difference" in result.output
    assert "QueueMax" in result.output


def test_as_json(saved):
    result = what_if("--from", saved, "--remove", "default/Job/one", "--json")
    comparison = json.loads(result.output)
    assert [each["gang"] for each in comparison["starts"]] == ["default/Job/two"]
    assert [each["gang"] for each in comparison["stops"]] == ["default/Job/one"]


@pytest.mark.slow
def test_a_manifest_is_tried(saved, tmp_path):
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump_all([queue("other", 4), job("mine", 9, "other")]))
    result = what_if("--from", saved, "-f", str(manifest))
    assert result.exit_code == 1
    assert "default/Job/mine" in result.output.split("Pending:")[1]
    needed = what_if(
        "--from", saved, "-f", str(manifest), "--set", "team.maxGPUs=", "--until-placed", "node-0"
    )
    assert needed.output == "with 3 more nodes like node-0, no gang is short of capacity\n"


def test_objects_of_kai_are_tried_where_none_is_yet(saved, tmp_path):
    manifest = tmp_path / "kai.yaml"
    share = {"quota": -1, "limit": -1}
    spec = {"resources": dict.fromkeys(("gpu", "cpu", "memory"), share)}
    group = {"minMember": 2, "queue": "kais"}
    kais = ("scheduling.run.ai/v2", "Queue", "kais", spec)
    grouped = ("scheduling.run.ai/v2alpha2", "PodGroup", "g", group)
    objects = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": content}
        for version, kind, name, content in (kais, grouped)
    ]
    pods = [manifests.pod(f"p-{number}", gpus=0) for number in range(2)]
    for pod in pods:
        pod["metadata"]["annotations"] = {"pod-group-name": "g"}
        pod["spec"]["containers"][0]["image"] = "i"
    manifest.write_text(yaml.safe_dump_all([*objects, *pods]))
    result = what_if("--from", saved, "-f", str(manifest))
    assert "default/PodGroup.scheduling.run.ai/g" in result.output.split("Starts:")[1]


def test_fields_are_set_in_queues_that_a_manifest_adds(saved, tmp_path):
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump_all([queue("other", 0, 1), job("mine", 2, "other")]))
    result = what_if("--from", saved, "--set", "other.maxGPUs=2", "-f", str(manifest))
    assert "default/Job/mine" in result.output.split("Starts:")[1].split("Queues")[0]


@pytest.mark.slow
def test_what_other_schedulers_place_is_told(saved, tmp_path):
    made = job("more", 1, "team")
    del made["spec"]["template"]["spec"]["schedulerName"]
    made["metadata"]["generateName"] = made["metadata"].pop("name")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(made), encoding="utf-8")
    result = what_if("--from", saved, "-f", str(path))
    assert "other schedulers are left out: default-scheduler 1; only those" in result.stderr


@pytest.mark.slow
def test_nodes_may_be_like_one_in_a_file(saved, tmp_path):
    shape, manifest = tmp_path / "b200.yaml", tmp_path / "job.yaml"
    shape.write_text(yaml.safe_dump_all(PATTERN))
    manifest.write_text(yaml.safe_dump_all([queue("other", 4), job("mine", 14, "other")]))
    asked = ("--from", saved, "-f", str(manifest), "--set", "team.maxGPUs=")
    added = what_if(*asked, "--add-nodes", f"{shape}=2", "-o", "json")
    assert added.exit_code == 0
    [mine] = [each for each in json.loads(added.output)["starts"] if "mine" in each["gang"]]
    assert any(node.startswith("b200-added-") for node in mine["nodes"])
    needed = what_if(*asked, "--until-placed", str(shape))
    assert needed.output == "with 2 more nodes like b200, no gang is short of capacity\n"
    shape.write_text(yaml.safe_dump(queue("other", 4)))
    with pytest.raises(CommandError, match=r"b200\.yaml: must contain one Node"):
        what_if(*asked, "--add-nodes", f"{shape}=2")


def machines(**capacity):
    """A MachineDeployment as Cluster Autoscaler scales it from zero."""
    prefix = "capacity.cluster-autoscaler.kubernetes.io/"
    given = {"cpu": "64", "memory": "512G", "maxPods": "200", "taints": "team=ml:PreferNoSchedule"}
    marks = {prefix + key.replace("_", "-"): text for key, text in (given | capacity).items()}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineDeployment",
        "metadata": {"name": "b200", "annotations": marks},
    }


@pytest.mark.parametrize("kind", [{"gpu_type": "nvidia.com/gpu"}, {"dra_driver": "gpu.nvidia.com"}])
def test_nodes_may_be_those_of_machines_that_do_not_exist_yet(saved, tmp_path, kind):
    shape, manifest = tmp_path / "machines.yaml", tmp_path / "job.yaml"
    shape.write_text(yaml.safe_dump(machines(gpu_count="8", labels="a=b,c=d", **kind)))
    mine = job("mine", 8, "other")
    if "gpu_type" in kind:
        spec = mine["spec"]["template"]["spec"]
        del spec["resourceClaims"]
        limits = {"nvidia.com/gpu": 1}
        spec["containers"] = [{"name": "main", "image": "i", "resources": {"limits": limits}}]
    mine["spec"]["template"]["spec"]["nodeSelector"] = {"c": "d"}
    manifest.write_text(yaml.safe_dump_all([queue("other", 8), mine]))
    asked = ("--from", saved, "-f", str(manifest), "--add-nodes", f"{shape}=1", "-o", "json")
    [found] = [e for e in json.loads(what_if(*asked).output)["starts"] if "mine" in e["gang"]]
    assert found["nodes"] == ["b200-added-1"] * 8


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        ({"cpu": "many"}, "allocatable.cpu"),
        ({"gpu_count": "-1", "dra_driver": "d"}, "devices"),
        ({"taints": "no-effect"}, "taints"),
        ({"gpu_count": "9223372036854775808", "dra_driver": "d"}, "devices"),
    ],
)
def test_annotations_of_machines_that_cannot_be_read_are_named(saved, tmp_path, capacity, said):
    shape = tmp_path / "machines.yaml"
    shape.write_text(yaml.safe_dump(machines(**capacity)))
    with pytest.raises(CommandError, match=rf"machines\.yaml: annotations .*{said}"):
        what_if("--from", saved, "--add-nodes", f"{shape}=1")


@pytest.mark.parametrize("text", ["nodes: 3", "apiVersion: v1\nkind: Pod", "[1]"])
def test_a_manifest_that_holds_no_object_is_named(saved, tmp_path, text):
    manifest = tmp_path / "wrong.yaml"
    manifest.write_text(text)
    with pytest.raises(CommandError, match=r"wrong\.yaml:1: (has no|is no)"):
        what_if("--from", saved, "-f", str(manifest))


def test_a_queue_that_becomes_invalid_is_told(saved):
    text = what_if("--from", saved, "--set", "team.parent=nosuch").output
    assert "parent 'nosuch' does not exist" in text.partition("Problems:")[2]
    assert "makes no difference" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "team"), "--set team: is not of the form"),
        (("--add-nodes", "node-0"), "--add-nodes node-0: is not of the form"),
        (("--set", "team.maximum=1"), "maximum"),
        (("--set", "team.maxGPUs=["), "the value is not YAML"),
        (("--drain", "nowhere"), r"node nowhere: not found \(.*gz has node-0"),
        (("--set", "nothing.maxGPUs=1"), r"nothing: not found \(.*gz has team"),
        (("--drain", "noed-0"), "did you mean node-0?"),
        (("--remove", "default/Job/on"), "did you mean default/Job/one?"),
        (("--set", "taem.maxGPUs=1"), "did you mean team?"),
        (("-f", "/nowhere.yaml"), "/nowhere.yaml: No such file"),
    ],
)
def test_what_cannot_be_tried_is_one_line(saved, arguments, message):
    with pytest.raises(CommandError, match=message):
        what_if("--from", saved, *arguments)


async def test_a_change_that_the_scheduler_does_not_accept_is_a_wrong_argument():
    async def refuse(_request):
        return web.Response(status=400, text="Queue team: spec.maxGPUs: too large\n")

    application = web.Application()
    application.router.add_get("/v1/what-if", refuse)
    async with TestServer(application) as server:
        asked = ("--set", "team.maxGPUs=8", "--url", str(server.make_url("/")).rstrip("/"))
        with pytest.raises(CommandError, match="too large") as error:
            await asyncio.to_thread(what_if, *asked)
    assert error.value.exit_code is ExitCode.USAGE
