import subprocess

import pytest
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.errors import CommandError
from kai_py.cli.install import command
from tests.support import yaml_text
from tests.support.repository import KAI_PY


@pytest.mark.parametrize(
    "image", ["a b", "a:b:c d", "-x", "a/", "a:", "a\nkind: Secret", "http://a/b"]
)
def test_what_is_no_name_of_an_image_is_refused(image):
    with pytest.raises(CommandError, match="is not an image name"):
        command(image=image)


@pytest.mark.parametrize("namespace", ["", "Team", "a.b", "-a", "a-", "a" * 64, "a\nb"])
def test_what_is_no_name_of_a_namespace_is_refused(namespace):
    with pytest.raises(CommandError, match="is not the name of a namespace"):
        command(image="a/b", namespace=namespace)


@pytest.mark.parametrize(
    "image",
    ["kai-py", "kai-py:0.1.0", "host.example:5000/a/kai_py:v1-rc.1", f"a/b@sha256:{'0a' * 32}"],
)
def test_names_of_images_are_taken(image, capsys):
    command(image=image)
    assert f"image: {image}\n" in capsys.readouterr().out


def printed(capsys, **options):
    command(image="i", **options)
    return yaml_text.read_all(capsys.readouterr().out)


def test_kais_api_is_left_out_unless_it_is_wanted(capsys):
    assert not [each for each in printed(capsys) if "run.ai" in each["metadata"]["name"]]


@pytest.mark.slow
def test_kais_api_has_its_definitions_classes_and_queues(capsys, tmp_path):
    found = printed(capsys, with_kai_api=True)
    names = {each["metadata"]["name"] for each in found}
    assert names >= {
        *("queues.scheduling.run.ai", "podgroups.scheduling.run.ai", "topologies.kai.scheduler"),
        *("train", "build", "build-preemptible", "inference"),
        *("default-parent-queue", "default-queue"),
    }
    (configuration,) = [each for each in found if each["kind"] == "ConfigMap"]
    assert "rules: kai" in configuration["data"]["config.yaml"]
    file = tmp_path / "config.yaml"
    file.write_text("rules: native\n")
    found = printed(capsys, with_kai_api=True, config=file)
    (configuration,) = [each for each in found if each["kind"] == "ConfigMap"]
    assert "rules: kai" not in configuration["data"]["config.yaml"]


@pytest.mark.slow
def test_prints_crds_that_kubectl_can_read_from_a_pipe():
    command = [*KAI_PY, "crds"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    documents = yaml_text.read_all(result.stdout)
    assert [document["metadata"]["name"] for document in documents] == ["queues.scheduling.kai.io"]


def test_writes_one_file_per_crd(tmp_path):
    result = CliRunner().invoke(
        main.app, ["crds", "--output-dir", str(tmp_path / "new")], obj=main.Invocation()
    )
    assert result.exit_code == 0, result.output
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["scheduling.kai.io_queues.yaml"]


def test_an_unwritable_directory_is_an_error_that_names_it(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="2"):
        main.main(["crds", "--output-dir", str(tmp_path / "file" / "below")])
    assert "cannot write" in capsys.readouterr().err
