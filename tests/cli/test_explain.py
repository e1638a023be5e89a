"""What ``kai-py explain`` tells of a saved cluster."""

import json

import pytest
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.errors import CommandError
from kai_py.simulate.objects import write_objects
from tests.simulate.clusters import job, objects, queue, simulated


@pytest.fixture(scope="module")
def cluster():
    cluster = simulated(queue("team", 0, 4), job("one", 4, "team"), nodes=3)
    cluster.settle(60)
    cluster.embedded.create_all([job("two", 4, "team"), job("three", 1, "team")])
    cluster.settle(60)
    return cluster


@pytest.fixture(scope="module")
def saved(cluster, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "cluster.json"
    write_objects(path, objects(cluster))
    return str(path)


def explain(*arguments):
    result = CliRunner().invoke(main.app, ["explain", *arguments], obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_who_waits_is_told_why_where_in_line_and_what_helps(saved):
    result = explain("job", "two", "--from", saved)
    assert result.exit_code == 1
    assert "default/Job/two is QueueMax: 0 of 4 pods run, 4 are needed." in result.output
    assert "of 2 that wait in queue team" in result.output
    assert "make maxGPUs of Queue team 9\n" in result.output
    patch = (
        """kubectl patch queue.scheduling.kai.io team --type merge -p '{"spec":{"maxGPUs":9}}'"""
    )
    assert patch in result.output


def test_who_runs_is_told_where(saved):
    result = explain("gang", "default/Job/one", "--from", saved, "--no-suggestions")
    assert result.exit_code == 0
    assert "It runs on node-" in result.output


def test_pods_and_claims_lead_to_their_gang(saved, cluster):
    member = cluster.snapshot().gangs["default/Job/two"].members[0]
    for subject, name in (("pod", member.pod), ("claim", member.claims[0])):
        result = explain(subject, str(name), "--from", saved, "--no-suggestions", "--json")
        [answer] = json.loads(result.output)
        assert answer["gang"] == "default/Job/two"
        assert answer["suggestions"] == []


@pytest.mark.parametrize("subject", ["gang", "pod", "job", "claim"])
def test_what_is_not_there_is_one_line(saved, subject):
    with pytest.raises(CommandError, match=f"{subject} default/none: no gang"):
        explain(subject, "default/none", "--from", saved)
