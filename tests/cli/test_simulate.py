import json

import pytest
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.errors import CommandError

SCENARIO = """
hours: 2
nodes: [{name: n, count: 1, gpus: 4}]
queues: [{name: team, deservedGPUs: 4}]
jobs: [{name: j, queue: team, pods: 4, minutes: 60}]
"""


def simulate(*arguments):
    result = CliRunner().invoke(main.app, ["simulate", *arguments], obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.slow
def test_it_reports_in_words_as_json_and_as_a_page(scenario, tmp_path):
    assert "2 hours of 4 GPUs: 50.0% used" in simulate(str(scenario))
    page = tmp_path / "report.html"
    found = json.loads(simulate(str(scenario), "--json", "--html", str(page)))
    assert found["waiting_times"]["gangs"] == 1
    assert page.read_text().startswith("<!doctype html>")


def test_reasons_are_printed_only_where_gangs_never_started(scenario):
    assert "never started, with" not in simulate(str(scenario))
    scenario.write_text(SCENARIO.replace("pods: 4", "pods: 5"))
    printed = simulate(str(scenario))
    assert "Why gangs never started, with the reason of one of them:" in printed
    assert "the nodes hold 4 of the 5 pods" in printed


def test_that_fifo_knows_no_interruptions_is_told(scenario):
    told = "fifo is simulated without interruptions of nodes"
    assert told not in simulate(str(scenario), "--against", "fifo")
    scenario.write_text(SCENARIO.replace("gpus: 4", "gpus: 4, interruptionsPerHour: 1"))
    assert told in simulate(str(scenario), "--against", "fifo")


def test_what_cannot_be_read_is_one_line(tmp_path, scenario):
    with pytest.raises(CommandError, match="No such file"):
        simulate(str(tmp_path / "none.yaml"))
    scenario.write_text("hours: -1")
    with pytest.raises(CommandError, match=r"scenario\.yaml:1: hours"):
        simulate(str(scenario))


def test_a_scenario_that_is_no_text_is_told(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_bytes(b"\x00\xff\xfe")
    with pytest.raises(CommandError, match="is not UTF-8 text"):
        simulate(str(path))
