import subprocess
import sys

import pytest

from kai_py.cli.errors import ExitCode
from kai_py.cli.main import COMMANDS

pytestmark = pytest.mark.slow


def run(entry, *arguments):
    code = f"from kai_py.cli.kubectl import {entry}; {entry}()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_as_a_plugin_it_calls_itself_kubectl_kai():
    told = run("run", "gangs", "--help")
    assert told.returncode == ExitCode.OK
    assert told.stdout.lstrip().startswith("Usage: kubectl kai gangs")
    wrong = run("run", "gangz")
    assert wrong.returncode == ExitCode.USAGE
    assert "kubectl kai" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["gangs", "--pen"], ["--pending"]),
        (["ga"], ["gangs"]),
        (["gangs", "-o", "y"], ["yaml"]),
    ],
)
def test_kubectl_completes_its_words(words, offered):
    told = run("complete", *words)
    assert told.stdout.splitlines() == [*offered, ":4"]


def test_kubectl_lists_every_command():
    assert set(run("complete", "").stdout.splitlines()) >= {
        each.name for each in COMMANDS if not each.hidden
    }
