import subprocess

import pytest
from typer.testing import CliRunner

from kai_py.cli import main
from tests.support import yaml_text
from tests.support.program import KAI_PY


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
