"""What a user installs: the wheel, in an environment that knows nothing of this repository."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import yaml_text
from tests.support.repository import CRDS, ROOT

pytestmark = pytest.mark.slow


def pip(*arguments: str | Path) -> None:
    """Run pip offline, with the build backend of this environment on the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        env=os.environ | {"PATH": path, "PIP_NO_INDEX": "1"},
        check=True,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, ROOT)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def kai_py(wheel, tmp_path_factory):
    """`kai-py ARGUMENTS` of the installed wheel, away from the repository; gives its output."""
    home = tmp_path_factory.mktemp("home")
    environment = home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip("--python", python, "install", "--no-deps", wheel)
    (site_packages,) = environment.glob("lib/python3*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def run(*arguments: str) -> str:
        return subprocess.run(
            [environment / "bin" / "kai-py", *arguments],
            cwd=home,
            env={"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    return run


def test_the_wheel_holds_the_package_its_types_and_its_licence_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "kai_py/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "kai_py").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"kai_py"}


def test_kubectl_finds_it_as_a_plugin(wheel):
    archive = zipfile.ZipFile(wheel)
    (entries,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
    programs = {line.partition(" ")[0] for line in archive.read(entries).decode().splitlines()}
    assert {"kai-py", "kubectl-kai", "kubectl_complete-kai"} <= programs


def test_an_installed_command_needs_no_repository(kai_py):
    assert "Commands:" in kai_py("--help")
    assert kai_py("--version") == "kai-py 0.1.0\n"


def test_installed_definitions_are_those_of_the_repository(kai_py):
    printed = yaml_text.read_all(kai_py("crds"))
    files = sorted(CRDS.glob("*.yaml"))
    assert printed == [yaml_text.read(path.read_text(encoding="utf-8")) for path in files]


def test_rules_and_dashboards_are_installed_too(kai_py):
    printed = yaml_text.read_all(kai_py("install", "--image", "kai-py", "--monitoring"))
    kinds = {document["kind"] for document in printed}
    assert {"ServiceMonitor", "PrometheusRule"} <= kinds


def test_the_installed_demo_tells_its_story_as_plain_lines_and_ends(kai_py):
    told = kai_py("demo", "--until-idle", "--speed", "20")
    assert "\x1b" not in told
    assert len(told.splitlines()) > 20


PERMISSIVE = re.compile(r"MIT|Apache|BSD|PSF|Python-2\.0|ISC")
NOT_PERMISSIVE = {"certifi": "MPL-2.0"}
UNDECLARED = {"cel-python"}
"""Apache-2.0 by the file in its repository; its metadata does not say so."""


def installed_with(name: str, found: set[str]) -> set[str]:
    """The packages that an installation of one brings along."""
    if (key := canonicalize_name(name)) not in found:
        found.add(key)
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                installed_with(needed.name, found)
    return found


def test_the_bill_of_materials_has_every_package_with_its_licence(tmp_path):
    bill = tmp_path / "sbom.cdx.json"
    program = Path(sys.executable).with_name("cyclonedx-py")
    command = [program, "environment", "--output-file", bill, sys.executable]
    subprocess.run(command, check=True, capture_output=True)
    components = {canonicalize_name(each["name"]): each
                  for each in json.loads(bill.read_text())["components"]}  # fmt: skip
    names = installed_with("kai-py", set())
    assert len(names) > 30
    for name in names:
        licences = json.dumps(components[name].get("licenses", []))
        assert components[name]["version"]
        if name in NOT_PERMISSIVE:
            assert NOT_PERMISSIVE[name] in licences
        elif name not in UNDECLARED:
            assert PERMISSIVE.search(licences), (name, licences)
