"""The package in examples/plugin, installed: its score changes a placement, its action evicts."""

import subprocess
import sys
from pathlib import Path

import pytest

from kai_py.api.choices import BuiltInScore
from kai_py.config import ConfigurationError, parse_configuration
from kai_py.plan.actions import registry as actions
from kai_py.planner import Planner
from kai_py.policy.score import registry as scores
from tests.support.scenario import evicted, node, placed, pod
from tests.test_planner import plan_with

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A directory into which pip has installed the package."""
    target = tmp_path_factory.mktemp("packages")
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", target, PLUGIN]
    # --no-build-isolation: the build backend is a dependency of the tests, nothing is downloaded.
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(target)}
    subprocess.run(command, check=True, env=environment, timeout=240)
    return target


@pytest.fixture
def installed(packages, monkeypatch):
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(scores, "_DEFINITIONS", dict(scores._DEFINITIONS))
    monkeypatch.setattr(actions, "_ADDED", {})


NODES = (node("a", 4), node("b", 4), pod("runs", 2, queue="a", node="a"))


@pytest.mark.slow
def test_the_score_changes_a_placement(installed):
    waits = pod("new", 1, queue="a")
    assert placed(plan_with("placement: {strategy: best-fit}", *NODES, waits)) == {"new": "a"}
    assert placed(plan_with("placement: {strategy: most-free}", *NODES, waits)) == {"new": "b"}


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "row"), [(1, "a"), (100, "b")])
def test_it_counts_by_its_weight_beside_others(installed, weight, row):
    """Best fit tells the two apart by 25 of 100, the share of free GPUs by 50."""
    listed = f"[{{name: most-free, weight: {weight}}}, {{name: best-fit, weight: 90}}]"
    found = plan_with(f"placement: {{scores: {listed}}}", *NODES, pod("new", 1, queue="a"))
    assert placed(found) == {"new": row}


def test_the_action_evicts(installed):
    said = {"scheduling.kai.io/expected-runtime": "5m"}
    late = pod("late", 1, queue="a", node="a", annotations=said)
    waits = pod("new", 1, queue="a")
    assert evicted(plan_with("", *NODES, late, waits)) == []
    found = plan_with("extraActions: [overtime]", *NODES, late, waits)
    assert evicted(found) == ["late"]
    assert "more than twice the 300 s" in found.evictions[0].reason


def test_names_of_installed_packages_are_known_and_others_get_the_nearest(installed):
    with pytest.raises(ConfigurationError, match="no score mostfree; did you mean most-free"):
        parse_configuration("placement: {strategy: mostfree}")
    with pytest.raises(ConfigurationError, match="no installed action overtme; did you mean ov"):
        parse_configuration("extraActions: [overtme]")


def test_what_is_not_installed_is_not_known():
    with pytest.raises(ConfigurationError, match="no score most-free; known are best-fit, fgd"):
        parse_configuration("placement: {scores: [{name: most-free}]}")
    with pytest.raises(ConfigurationError, match="no installed action overtime; known are none"):
        parse_configuration("extraActions: [overtime]")


def test_a_package_that_cannot_be_loaded_is_named(installed, packages):
    configuration = parse_configuration("placement: {strategy: most-free}")
    module = packages / "kai_py_example_plugin" / "__init__.py"
    source = module.read_text()
    module.write_text("raise RuntimeError('broken')")
    sys.modules.pop("kai_py_example_plugin", None)
    try:
        with pytest.raises(ConfigurationError, match="most-free of kai-py-example-plugin cannot"):
            Planner(configuration)
    finally:
        module.write_text(source)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{strategy: fgd, scores: [{name: fgd}]}", "strategy is the short form of one score"),
        ("{scores: [{name: fgd}, {name: fgd}]}", "scores: fgd is listed twice"),
        ("{scores: [{name: fgd, weight: 0}]}", "placement.scores.*weight: must be"),
    ],
)
def test_scores_are_listed_once_with_a_weight(text, problem):
    with pytest.raises(ConfigurationError, match=problem):
        parse_configuration(f"placement: {text}")


def test_one_listed_score_is_the_same_as_the_short_form():
    world = (*NODES, pod("new", 1, queue="a"))
    for score in BuiltInScore:
        listed = plan_with(f"placement: {{scores: [{{name: {score}, weight: 7}}]}}", *world)
        assert placed(listed) == placed(plan_with(f"placement: {{strategy: {score}}}", *world))
