"""What ``kai-py gangs`` lists, and what it prints while it watches."""

import pytest

from kai_py.cli import gangs
from kai_py.cli.errors import CommandError
from kai_py.cli.output import Output
from tests.support.scenario import cluster, job_with_pods, node, pod, queue

RUNS = pod("runs", 1, queue="q", node="a")
WAITS = job_with_pods("waits", 9, queue="q")


def world(*objects):
    made = cluster(node("a", 8), queue("q", 16), *objects)
    return made.snapshot(0.0), made.plan()


@pytest.fixture
def listed(monkeypatch, capsys):
    def lines(*objects, **options):
        monkeypatch.setattr(gangs, "plan_cluster", lambda *_: world(*objects))
        gangs.command(**options)
        return capsys.readouterr().out.splitlines()

    return lines


def test_names_only(listed):
    assert listed(RUNS, *WAITS, output=Output.NAME) == ["default/Job/waits", "default/Pod/runs"]


@pytest.mark.parametrize("name", ["default/Job/waits", "Job/waits", "waits"])
def test_one_gang_by_its_name(listed, name):
    assert listed(RUNS, *WAITS, name=name, output=Output.NAME) == ["default/Job/waits"]


def test_a_gang_that_is_not_there_is_an_error(listed):
    with pytest.raises(CommandError, match="gang aits: not found"):
        listed(RUNS, *WAITS, name="aits")


def test_a_watch_prints_what_changes(capsys):
    changes = gangs._Changes(gangs._Wanted("", "", "", pending_only=False), Output.TABLE)
    changes.show(*world(RUNS, *WAITS))
    assert len(capsys.readouterr().out.splitlines()) == 3
    changes.show(*world(RUNS, *WAITS))
    assert capsys.readouterr().out == ""
    changes.show(*world(RUNS))
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[0] == "default/Job/waits"
    assert "Deleted" in line
