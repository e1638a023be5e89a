import subprocess

import pytest
import yaml

from kai_py.cli.main import main
from tests.support.repository import KAI_PY

LINT = [*KAI_PY, "lint"]
CLAIM = """\
# keep me
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: n}
spec:
  devices:
    requests:
    - name: gpu # and me
      deviceClassName: gpu.nvidia.com
"""
GOOD = CLAIM.replace("      device", "      exactly:\n        device")


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["lint", *map(str, arguments)])
    output = capsys.readouterr()
    return left.value.code or 0, output.out, output.err


def test_findings_are_lines_on_stdout_and_the_exit_code(tmp_path, capsys):
    file = tmp_path / "c.yaml"
    file.write_text(CLAIM)
    code, out, err = run(capsys, file)
    (line,) = [line for line in out.splitlines() if "hint" not in line]
    assert code == 1
    assert line.startswith(
        f"{file}:9: ResourceClaim/c: spec.devices.requests[0].deviceClassName: a request itself has"
    )
    assert line.endswith("[--fix corrects this]")
    assert err == ""


def test_findings_as_a_document(tmp_path, capsys):
    file = tmp_path / "c.yaml"
    file.write_text(CLAIM)
    code, out, _ = run(capsys, file, "-o", "yaml")
    [answer] = yaml.safe_load(out)
    assert code == 1
    assert answer["file"] == str(file)
    fields = [each["field"] for each in answer["findings"]]
    assert "spec.devices.requests[0].deviceClassName" in fields
    code, out, err = run(capsys, "--fix", file, "-o", "json")
    assert (code, out) == (2, "")
    assert "--fix cannot be combined" in err


def test_fix_prints_only_yaml_on_stdout(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(CLAIM)
    code, out, err = run(capsys, "--fix", tmp_path / "c.yaml")
    assert code == 0
    assert out == GOOD
    assert "[fixed]" in err


def test_hints_do_not_count(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(GOOD)
    code, out, _ = run(capsys, tmp_path / "c.yaml")
    assert code == 0
    assert "hint: namespace n is not among these manifests" in out


def test_what_is_left_to_the_user_counts_under_fix(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(GOOD.replace("gpu.nvidia.com", '""'))
    code, _, err = run(capsys, "--fix", tmp_path / "c.yaml")
    assert code == 1
    assert "names no deviceClassName" in err
    assert "[fixed]" not in err


def test_several_files_end_as_one_stream(tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(CLAIM.replace("name: c", f"name: {name}"))
    _, out, _ = run(capsys, "--fix", tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert [document["metadata"]["name"] for document in yaml.safe_load_all(out)] == ["a", "b"]


def test_a_file_that_cannot_be_read(tmp_path, capsys):
    code, _, err = run(capsys, tmp_path / "none.yaml")
    assert code == 2
    assert err == f"kai-py: {tmp_path / 'none.yaml'}: No such file or directory\n"
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    code, _, err = run(capsys, tmp_path / "latin.yaml")
    assert code == 2
    assert "is not UTF-8 text" in err


def test_files_without_any_text_are_an_error(tmp_path, capsys):
    (tmp_path / "empty.yaml").write_text("\n")
    code, out, err = run(capsys, "--fix", tmp_path / "empty.yaml")
    assert (code, out) == (2, "")
    assert err == f"kai-py: {tmp_path / 'empty.yaml'}: there are no Kubernetes objects\n"
    (tmp_path / "good.yaml").write_text(GOOD)
    assert run(capsys, tmp_path)[0] == 0


@pytest.mark.slow
def test_a_pipe_in_a_process():
    result = subprocess.run(
        [*LINT, "--fix", "-"], input=CLAIM, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, GOOD)
    assert result.stderr.startswith("stdin:")


def test_a_directory_stands_for_its_files(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(CLAIM)
    (tmp_path / "notes.txt").write_text("no manifest")
    code, out, _ = run(capsys, tmp_path)
    assert (code, f"{tmp_path / 'c.yaml'}:9" in out) == (1, True)
    (tmp_path / "c.yaml").unlink()
    assert "has no YAML or JSON files" in run(capsys, tmp_path)[2]


def test_a_kustomization_is_no_object_without_a_name(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(GOOD)
    (tmp_path / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [c.yaml]\n"
    )
    code, out, _ = run(capsys, tmp_path)
    assert code == 0
    assert "kustomization.yaml" not in out
