"""Tests of the hooks of the suite itself, on suites of one file."""

import os
import subprocess
import sys

import pytest

from tests.support.repository import NO_DATA, ROOT

pytestmark = pytest.mark.slow

CONFTEST = """
from tests.conftest import pytest_xdist_make_scheduler
from tests.support.skips import NoSkips, strict
from tests.support.totals import Totals
from tests.support.workers import Worker

def pytest_configure(config):
    config.pluginmanager.register(Totals())
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(config))
    if strict():
        config.pluginmanager.register(NoSkips())
"""


def run(folder, text, *options, ci="true"):
    """Run pytest on a file with this text; gives the lines of its summary."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(text)
    environment = os.environ | {
        "CI": ci,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rsf", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        [*command, "-c", os.devnull, f"--rootdir={folder}", str(folder)],
        env=environment,
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("def test_it(): pytest.skip('no such program')", "1 failed"),
        (
            "@pytest.mark.skipif(True, reason='no such program')\ndef test_it(): pass",
            "1 error",  # it is skipped before it is called
        ),
    ],
)
def test_a_skip_fails_where_changes_are_checked(tmp_path, text, verdict):
    text = f"import pytest\n{text}"
    said = run(tmp_path, text)
    assert verdict in said
    assert "no such program" in said
    assert "1 skipped" in run(tmp_path, text, ci="")


def test_shared_data_may_be_missing_everywhere(tmp_path):
    text = f"import pytest\ndef test_it(): pytest.skip('{NO_DATA}/data')"
    assert "1 skipped" in run(tmp_path, text)


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_totals_are_counted_over_all_processes(tmp_path, options):
    text = """
import pytest

@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("outcome", ["passed", "deviating"])
def test_it(request, case, outcome):
    if case == 3 or outcome == "passed":
        request.node.user_properties.append(("totals", ("table", str(case), outcome)))
"""
    said = run(tmp_path, text, *options)
    assert "table: 3 passed, 1 deviating on purpose, 0 failing" in said


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_what_goes_wrong_before_in_and_after_a_test_is_told(tmp_path, options):
    text = """
import pytest

@pytest.fixture
def fails_before():
    assert not "before"

@pytest.fixture
def fails_after():
    yield
    assert not "after"

def test_a(fails_before): pass
def test_b(fails_after): pass
def test_c(): assert not "meanwhile"
def test_d(): pytest.skip("left out")
def test_e(): pass
"""
    said = run(tmp_path, text, *options, ci="")
    assert "1 failed, 2 passed, 1 skipped, 2 errors" in said
    assert all(f'not "{when}"' in said for when in ("before", "after", "meanwhile"))


def test_tests_of_a_process_that_ends_are_run_by_another(tmp_path):
    text = """
import os
import pathlib

def test_a(): pass

def test_b():
    if not (mark := pathlib.Path(__file__).with_name("ended")).exists():
        mark.touch()
        os._exit(1)

def test_c(): pass
"""
    said = run(tmp_path, text, "-n", "2", "--dist", "loadscope", ci="")
    assert "1 failed, 3 passed" in said
