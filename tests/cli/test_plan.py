"""kai-py plan: its forms of output, standard input, its errors."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.errors import CommandError
from tests.simulate.manifests import QUEUE, job, node, pod

WORLD = [node("n0"), QUEUE, pod("a"), pod("large", gpus=9)]


def run(*arguments, text=None):
    result = CliRunner().invoke(main.app, ["plan", *arguments], input=text, obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def world(tmp_path):
    path = tmp_path / "world.yaml"
    path.write_text(yaml.safe_dump_all(WORLD), encoding="utf-8")
    return str(path)


def test_tables_list_what_is_placed_and_what_waits(world):
    result = run(world, "--until-rest")
    assert result.exit_code == 0, result.output
    assert "default/a   1       n0" in result.output
    assert "default/Pod/large" in result.output
    assert "at rest after 2 cycles" in result.output


def test_json_has_the_documented_fields(world):
    found = json.loads(run(world, "-o", "json").output)
    assert list(found) == [
        "version",
        "cycles",
        "rest",
        "placements",
        "evictions",
        "nominations",
        "pending",
        "rejected",
    ]
    [pending] = found["pending"]
    assert (pending["gang"], pending["pods"]) == ("default/Pod/large", ["default/large"])


def test_objects_come_from_standard_input(world):
    text = yaml.safe_dump_all(WORLD)
    assert run("-", "-o", "json", text=text).output == run(world, "-o", "json").output


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"none\.yaml: No such file"):
        run(str(tmp_path / "none.yaml"))


def test_what_other_node_pools_have_is_counted(tmp_path):
    path, pools = tmp_path / "pools.yaml", [node("n0"), QUEUE, pod("a"), job("j", 2)]
    for each in (pools[0], pools[2], pools[3]["spec"]["template"]):
        each.setdefault("metadata", {})["labels"] = {"kai.scheduler/node-pool": "other"}
    path.write_text(yaml.safe_dump_all(pools), encoding="utf-8")
    result = run(str(path))
    for kind in ("Nodes", "Pods", "Workloads"):
        left_out = f"{kind} of other node pools (label kai.scheduler/node-pool) are left out: 1;"
        assert left_out in result.stderr


def test_what_waits_for_other_schedulers_is_counted(tmp_path):
    others, path = [pod("b"), pod("c", node="n0"), pod("d"), job("j", 2)], tmp_path / "others.yaml"
    del others[0]["spec"]["schedulerName"], others[3]["spec"]["template"]["spec"]["schedulerName"]
    others[1]["spec"]["schedulerName"] = others[2]["spec"]["schedulerName"] = "volcano"
    path.write_text(yaml.safe_dump_all([*WORLD, *others]), encoding="utf-8")
    left_out = "of other schedulers are left out: default-scheduler 2, volcano 1; only those with"
    assert left_out in run(str(path)).stderr


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "Deployment", "apiVersion": "apps/v1", "spec": "x"},
        {"kind": "Deployment", "apiVersion": "apps/v1", "spec": [1]},
        {"kind": "Job", "apiVersion": "batch/v1", "spec": {"template": [1]}},
        {"kind": "Pod", "apiVersion": "v1", "spec": {"schedulerName": [1]}},
        {"kind": "Pod", "apiVersion": "v1", "spec": 7},
        {"kind": "Pod", "apiVersion": "v1", "status": 7},
        {"kind": "Pod", "apiVersion": "v1", "status": {"phase": [1]}, "spec": {}},
    ],
)
def test_objects_of_other_types_harm_nothing_else(fields, world, tmp_path):
    odd = {**fields, "metadata": {"name": "odd", "namespace": "default"}}
    (tmp_path / "odd.json").write_text(json.dumps(odd), encoding="utf-8")
    found = json.loads(run(world, str(tmp_path / "odd.json"), "-o", "json").stdout)
    assert [each["pod"] for each in found["placements"]] == ["default/a"]
    assert f"{fields['kind']} default/odd" in [each["object"] for each in found["rejected"]]


def test_the_configuration_decides_the_scheduler_name(tmp_path, world):
    config = tmp_path / "config.yaml"
    config.write_text("schedulerName: another\n", encoding="utf-8")
    result = run(world, "--config", str(config), "-o", "json")
    found = json.loads(result.stdout)
    assert (found["placements"], found["pending"]) == ([], [])
    assert "no pod among these objects waits for schedulerName another" in result.stderr
    assert "schedulerName" not in run(world).stderr


@pytest.mark.parametrize("text", ["", "# nothing\n---\n"])
def test_no_objects_at_all_are_an_error(text):
    """As where a command that ought to list the cluster failed."""
    with pytest.raises(CommandError, match="stdin: there are no Kubernetes objects"):
        run("-", text=text)


def test_a_directory_without_objects_is_named(tmp_path):
    with pytest.raises(CommandError, match="there are no Kubernetes objects") as raised:
        run(str(tmp_path))
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Pod\nmetadata:\n  {{- if .Values.x }}\n  name: a\n", "(a template? render it"),
        ("kind: Pod\nmetadata: {name: {{ .Values.x }}}\n", "a key is no text (a template? render"),
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a]\n",
            "Kustomization is read by kustomize alone: give what kubectl kustomize prints",
        ),
    ],
)
def test_what_has_to_be_rendered_first_is_told(text, problem, world, tmp_path):
    alone = run("-", "-o", "json", text=text)
    [rejected] = json.loads(alone.stdout)["rejected"]
    assert (alone.exit_code, problem in rejected["problem"]) == (2, True)
    (tmp_path / "other.yaml").write_text(text, encoding="utf-8")
    beside = run(world, str(tmp_path / "other.yaml"), "-o", "json")
    assert (beside.exit_code, json.loads(beside.stdout)["rejected"] != []) == (0, True)


def test_odd_labels_and_specs_are_rejected_by_name(tmp_path):
    odd = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": "pool=a"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "labels": ["a"]}, "spec": []},
    ]
    path = tmp_path / "world.yaml"
    path.write_text(yaml.safe_dump_all([*WORLD, *odd]), encoding="utf-8")
    found = json.loads(run(str(path), "-o", "json").stdout)
    assert [each["object"] for each in found["rejected"]] == ["Node n1", "Pod default/b"]
    assert [each["pod"] for each in found["placements"]] == ["default/a"]
