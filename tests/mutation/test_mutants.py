"""The sampler of mutants, how they are judged, and the nightly run."""

import ast
import json
import subprocess
import sys

import pytest

from tests.mutation.mutants import SWITCH, sample, switched
from tests.mutation.run import BUDGET, Judge
from tests.mutation.switch import REPOSITORY, Switch, nearest_first

pytestmark = pytest.mark.slow

KILLED = 0.9
"""The least part of a sample that tests notice."""


def test_mutants_differ_from_their_module_in_one_place_and_come_from_the_seed():
    mutants = sample(REPOSITORY, 25, seed=3)
    assert mutants == sample(REPOSITORY, 25, seed=3)
    elsewhere = sample(REPOSITORY, 25, 3, ["lint", "plan/cycle"])
    assert {each.module.split("/")[1] for each in elsewhere} == {"lint", "plan"}
    for mutant in mutants:
        source = (REPOSITORY / mutant.module).read_text(encoding="utf-8")
        before, after = mutant.change.split(" -> ")
        assert before != after
        switches = [
            node
            for node in ast.walk(switched(source, {mutant.place: 7}))
            if isinstance(node, ast.IfExp) and ast.unparse(node.test) == f"{SWITCH}(7)"
        ]
        assert [(ast.unparse(e.body), ast.unparse(e.orelse)) for e in switches] == [(after, before)]


SOURCE = """
def less(a, b, c):
    if any((a < b, b < c)) and not a > c:
        return min(a, b) + c
    return 0
"""
PLACES = 8


@pytest.mark.parametrize("active", [None, *range(PLACES)])
def test_all_mutants_of_a_module_are_compiled_into_it_and_one_of_them_is_active(active):
    switch = Switch(active)
    names = {SWITCH: switch}
    exec(compile(switched(SOURCE, {place: place for place in range(PLACES)}), "m", "exec"), names)
    original: dict = {}
    exec(SOURCE, original)
    given = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    same = [names["less"](*each) == original["less"](*each) for each in given]
    assert all(same) is (active is None)
    if active is None:
        assert switch.executed[""] == set(range(PLACES))


def test_tests_of_the_own_folder_are_asked_first_and_of_these_the_quick_ones():
    tests = ["tests/dra/test_a.py::a", "tests/plan/test_b.py::b", "tests/plan/state/test_c.py::c"]
    seconds = {tests[0]: 0.0, tests[1]: 1.0, tests[2]: 2.0}
    assert nearest_first("kai_py/plan/state/x.py", tests, seconds) == tests[::-1]
    assert nearest_first("kai_py/snapshot/x.py", tests, seconds) == tests


def test_quick_tests_elsewhere_are_asked_though_those_of_the_own_folder_take_long():
    judge = Judge([], Switch(), budget=BUDGET)
    judge._seconds = {"near": BUDGET / 2, "far": 1.0, "farther": BUDGET, "last": 2.0}
    assert judge._affordable([*judge._seconds]) == ["near", "far", "last"]
    judge.budget = 6.0
    assert judge._affordable([*judge._seconds]) == ["far", "last"]


@pytest.mark.nightly
def test_most_mutants_are_killed():
    command = [sys.executable, "-m", "tests.mutation", "--count", "200", "--seed", "1", "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] >= KILLED * found["mutants"], "\n".join(found["survived"])
