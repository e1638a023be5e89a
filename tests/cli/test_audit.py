"""kai-py audit: forms of input and output, exit codes, the second reading of a live cluster."""

import asyncio
import gzip
import json

import pytest
import yaml
from typer.testing import CliRunner

from kai_py.api.crd import crds
from kai_py.cli import audit, main
from kai_py.cli.errors import CommandError
from kai_py.embedded.cluster import EmbeddedCluster
from tests.audit.objects import claim, node, pod, result

SOUND = [node(), pod("a", claims=["c"]), claim("c", result("gpu-0"), users=["a"])]
LOST = [node(), pod("a", claims=["c"]), claim("c")]


def run(*arguments, text=None):
    runner = CliRunner()
    found = runner.invoke(main.app, ["audit", *arguments], input=text, obj=main.Invocation())
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def exit_code(*arguments):
    try:
        return run(*arguments).exit_code
    except CommandError as error:
        return error.exit_code


def kubectl_list(objects):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def typed_lists(objects):
    """As ``kubectl get --raw`` returns them: items without kind and version."""
    documents = []
    for each in objects:
        bare = {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
        kind, version = each["kind"] + "List", each["apiVersion"]
        documents.append({"kind": kind, "apiVersion": version, "items": [bare]})
    return yaml.safe_dump_all(documents)


@pytest.mark.parametrize("form", [kubectl_list, yaml.safe_dump_all, typed_lists])
def test_forms_of_input(form, tmp_path):
    path = tmp_path / "objects"
    path.write_text(form(SOUND))
    assert run(str(path)).exit_code == 0
    path.write_text(form(LOST))
    assert run(str(path)).exit_code == 1
    assert run("-", text=form(LOST)).exit_code == 1


def test_a_compressed_file_and_a_directory(tmp_path):
    (tmp_path / "pods.json.gz").write_bytes(gzip.compress(kubectl_list(LOST[:2]).encode()))
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump(LOST[2]))
    found = run(str(tmp_path))
    assert found.exit_code == 1
    assert "claim default/c is not allocated" in found.output


def test_what_is_sound_is_told_in_one_line(tmp_path):
    path = tmp_path / "objects.json"
    path.write_text(kubectl_list(SOUND))
    assert run(str(path)).output == "nothing found in 3 objects\n"


@pytest.mark.parametrize("wrong", [{"spec": {"resourceClaims": 5}},
                                   {"status": {"resourceClaimStatuses": 5}}])  # fmt: skip
def test_a_pod_group_whose_claims_cannot_be_read_is_left_out(wrong):
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"} | wrong
    found = run("-", text=kubectl_list([{**group, "metadata": {"name": "g", "uid": "g"}}, *SOUND]))
    assert "PodGroup/g: Expected `array`, got `int`" in found.output
    assert "nothing found in 4 objects; 1 could not be read" in found.output


def test_json_has_the_documented_fields():
    document = json.loads(run("-", "-o", "json", text=kubectl_list(LOST)).output)
    assert list(document) == ["findings", "objects", "rejected"]
    (finding,) = document["findings"]
    assert finding == {
        "kind": "pod-without-claim",
        "objects": ["Pod default/a", "ResourceClaim default/c"],
        "message": finding["message"],
    }


def test_overlapping_lists_count_every_object_once(tmp_path):
    pods = [pod("a", requests={"cpu": "5"})]
    for name in ("first.json", "second.json"):
        (tmp_path / name).write_text(kubectl_list([node(), *pods]))
    assert run(str(tmp_path)).exit_code == 0


def test_objects_written_by_hand_need_no_uids():
    objects = json.loads(kubectl_list(SOUND))
    for each in objects["items"]:
        del each["metadata"]["uid"]
    objects["items"][2]["status"]["reservedFor"][0].pop("uid")
    assert run("-", text=json.dumps(objects)).exit_code == 0


@pytest.mark.parametrize("text", ["", "kind: [", "- 1", "{}", '{"kind": "Pod"}'])
def test_unusable_input_is_no_clean_bill(text, tmp_path):
    path = tmp_path / "objects"
    path.write_text(text)
    assert exit_code(str(path)) == 2


def test_an_object_that_cannot_be_read_is_named():
    broken = pod("b")
    broken["spec"] = "nothing"
    found = run("-", text=kubectl_list([*SOUND, broken]))
    assert found.exit_code == 2
    assert "Pod/default/b" in found.output
    found = run("-", text=kubectl_list([*LOST, broken]))
    assert found.exit_code == 1


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"none\.json: No such file"):
        run(str(tmp_path / "none.json"))


def test_the_time_of_a_file_is_when_it_was_written(tmp_path):
    path = tmp_path / "objects.json"
    path.write_text(
        kubectl_list([pod("a", claims=["c"], bound=path.parent.stat().st_mtime), LOST[2]])
    )
    assert run(str(path)).exit_code == 0
    assert run(str(path), "--now", str(path.stat().st_mtime + 60)).exit_code == 1


@pytest.mark.parametrize(("second", "code"), [(LOST, 1), (SOUND, 0)])
def test_a_cluster_is_read_again_where_something_was_found(second, code, monkeypatch):
    readings = iter([LOST, second])

    async def read_now(kubeconfig, context):
        return next(readings)

    monkeypatch.setattr(audit, "read_now", read_now)
    assert run("--again-after", "0.01").exit_code == code
    assert next(readings, None) is None


@pytest.mark.cluster
async def test_a_live_cluster(tmp_path):
    async with EmbeddedCluster() as cluster:
        cluster.create_all(crds().values())
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        found = await asyncio.to_thread(run, "--kubeconfig", str(path))
    assert (found.exit_code, found.output[:13]) == (0, "nothing found")
