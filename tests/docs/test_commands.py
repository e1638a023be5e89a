"""Every `kai-py …` line of the documentation is one that the command line takes.

Those that need files of the repository only are run here, as processes; those that ask a cluster by
tests/cluster/docs/test_commands.py.
"""

import subprocess

import pytest

from kai_py.cli import main
from tests.docs.pages import PAGES, commands, label
from tests.support.repository import KAI_PY, ROOT

FOUND = [(label(page), command) for page in PAGES for command in commands(page)]
ALONE = {"crds", "install", "simulate", "lint"}
"""Commands that need files only."""


def test_there_are_commands():
    assert len(FOUND) > 40
    assert {command[0] for _, command in FOUND} >= {
        "run",
        "explain",
        "what-if",
        "simulate",
        "install",
    }


@pytest.mark.parametrize(
    ("page", "command"),
    FOUND,
    ids=lambda each: each if isinstance(each, str) else " ".join(each)[:60],
)
def test_the_command_line_takes_it(page, command):
    while command and command[0].startswith("-"):
        command = command[1:]
    if not command:
        return
    (entry,) = [each for each in main.COMMANDS if each.name == command[0]]
    arguments = [word for word in command[1:] if word != "…"]
    if "--help" not in arguments:
        main.load_command(entry).make_context(entry.name, arguments)


def needs_files_only(command):
    files = [word for word in command if word.endswith((".yaml", ".csv")) and "=" not in word]
    return command[0] in ALONE and all((ROOT / file).exists() for file in files)


RUN = sorted({tuple(c) for _, c in FOUND if c and needs_files_only(c) and "--help" not in c})


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN, ids=" ".join)
def test_it_does_what_it_says_where_files_are_all_it_needs(command, tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [*KAI_PY, *command],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
