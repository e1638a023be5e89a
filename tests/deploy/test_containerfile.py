"""The Containerfile, read: nothing here builds images. What it installs is in test_packaging.py."""

import re
import shlex

import pytest

from kai_py.deploy.parts import USER
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def instructions():
    """(stage, instruction, words) of every line."""
    text = (ROOT / "Containerfile").read_text().replace("\\\n", "")
    found, stage = [], 0
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        instruction, _, rest = line.partition(" ")
        stage += instruction == "FROM"
        found.append((stage, instruction, rest.split()))
    return found


def words(instructions, wanted, stage=None):
    return [
        each for at, instruction, each in instructions
        if instruction == wanted and stage in (None, at)
    ]  # fmt: skip


def test_two_stages_of_slim_images(instructions):
    images = [each[0] for each in words(instructions, "FROM")]
    assert len(images) == 2
    assert all(image.endswith("-slim") for image in images)
    assert len(set(images)) == 1, "the environment is copied: both stages need the same Python"


def test_everything_that_is_copied_exists(instructions):
    for copied in words(instructions, "COPY", stage=1):
        for source in copied[:-1]:
            assert (ROOT / source).exists(), source


def test_the_builder_is_sent_what_is_copied_and_nothing_else(instructions):
    copied = {source for each in words(instructions, "COPY", stage=1) for source in each[:-1]}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == copied


def test_the_wheel_finds_what_its_build_needs(instructions):
    copied = {source for each in words(instructions, "COPY", stage=1) for source in each[:-1]}
    project = (ROOT / "pyproject.toml").read_text()
    for name in re.findall(r'"(README\.md|LICENSE)"', project):
        assert name in copied


def test_nothing_is_installed_but_what_is_locked_by_hash(instructions):
    commands = [
        command
        for each in words(instructions, "RUN")
        for command in " ".join(each).split("&&")
        if "pip wheel" in command or "install" in command
    ]
    first, *rest = (shlex.split(command) for command in commands)
    assert {"--require-hashes", "-r", "requirements.lock"} <= set(first)
    assert len(rest) == 3
    assert all("--no-index" in command for command in rest)


def test_the_image_runs_as_the_user_of_the_deployment_and_holds_no_tools(instructions):
    assert words(instructions, "USER", stage=2) == [[f"{USER}:{USER}"]]
    assert words(instructions, "RUN", stage=2) == []
    assert [copied[0] for copied in words(instructions, "COPY", stage=2)] == ["--from=build"]
    (entry,) = words(instructions, "ENTRYPOINT", stage=2)
    assert " ".join(entry) == '["/opt/kai-py/bin/kai-py"]'
