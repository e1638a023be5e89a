"""What the documentation tells to type beside `kai-py` and kubectl exists: make, helm, pip, podman.

kubectl is run by tests/cluster/docs/test_commands.py.
"""

import itertools
import json
import re
import shlex

import pytest
import yaml

from benchmarks import __main__ as command
from tests.deploy.helm import built_once, render
from tests.docs.pages import PAGES, shell_lines
from tests.support.repository import CHART, ROOT

LINES = sorted({line.partition(" #")[0].strip() for page in PAGES for line in shell_lines(page)})
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z]+) \?=", MAKEFILE, re.MULTILINE))
OTHERS = (
    "python -m tests.mutation --package lint --count 40 --seconds 6 tests/lint",
    "python -m tests.mutation --count 200 --seed 1",
    "python -m tests.soak.run 1000000",
    ". .venv/bin/activate",
    "pip install .",
    "podman build -t YOUR-REGISTRY/kai-py:0.1.0 .",
)
"""Tried by tests/{mutation,soak}, tests/test_packaging.py, tests/deploy/test_containerfile.py."""
PROGRAMS = re.compile(r"(?:\.|pip3?|podman|docker|curl|python3?|git|bash|sh|promtool|go|uv) ")
"""Those that pages might tell to type, but for those that the tests look at one by one."""


def starting_with(word):
    return [line for line in LINES if line.startswith(f"{word} ")]


def test_every_target_of_make_exists():
    words = {word for line in starting_with("make") for word in line.split()[1:]}
    told = {word for word in words if "=" not in word}
    assert told >= {"demo", "test", "setup"}
    assert told <= TARGETS
    assert {word.partition("=")[0] for word in words - told} <= VARIABLES


def test_benchmarks_take_their_options(monkeypatch):
    for line in starting_with("python -m benchmarks"):
        monkeypatch.setattr("sys.argv", shlex.split(line)[2:])
        command._options()


@built_once
@pytest.mark.parametrize("line", starting_with("helm"))
def test_the_chart_takes_the_values(line):
    words = shlex.split(line)
    values = {"image": "i"}
    for option, text in itertools.pairwise(words):
        if option == "--set":
            path, _, value = text.partition("=")
            *above, last = path.split(".")
            place = values
            for part in above:
                place = place.setdefault(part, {})
            place[last] = yaml.safe_load(value)
    done = render(CHART, "gpu", json.dumps(values))
    assert done.returncode == 0, done.stderr


def test_nothing_else_is_told_to_be_typed():
    typed = [line for line in LINES if PROGRAMS.match(line)]
    left = [line for line in typed if not line.startswith("python -m benchmarks")]
    assert sorted(left) == sorted(OTHERS)
