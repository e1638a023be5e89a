"""What ``kai-py gangs`` lists, and what it prints while it watches."""

import io
import json
from functools import partial

import pytest
from msgspec.structs import replace

from kai_py.cli import gangs
from kai_py.cli.errors import CommandError
from kai_py.cli.gangs import tree_lines
from kai_py.cli.output import Output
from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.observe.gang_rows import tree_of
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


@pytest.mark.parametrize(
    ("form", "printed"), [(Output.JSON, '[{"gang":'), (Output.NAME, "default")]
)
def test_a_watch_prints_in_the_form_asked_for_at_once(monkeypatch, form, printed):
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe, write_through=False))
    changes = gangs._Changes(gangs.GangFilter(), partial(gangs._print_rows, tree=False, form=form))
    changes.show(*world(RUNS))
    assert b"".join(pipe.getvalue().split()).startswith(printed.encode())


def test_a_watched_table_reaches_a_pipe_at_once(monkeypatch):
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe))
    changes = gangs._Changes(
        gangs.GangFilter(), partial(gangs._print_rows, tree=False, form=Output.TABLE)
    )
    changes.show(*world(RUNS))
    assert b"default/Pod/runs" in pipe.getvalue()


def test_a_watch_prints_what_changes(capsys):
    changes = gangs._Changes(
        gangs.GangFilter(),
        partial(gangs._print_rows, tree=False, form=Output.TABLE),
    )
    changes.show(*world(RUNS, *WAITS))
    assert len(capsys.readouterr().out.splitlines()) == 3
    changes.show(*world(RUNS, *WAITS))
    assert capsys.readouterr().out == ""
    changes.show(*world(RUNS))
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[0] == "default/Job/waits"
    assert "Deleted" in line


def test_a_tree_names_what_made_the_gang_and_whether_it_may_be_evicted(listed):
    assert listed(RUNS, *WAITS, name="waits", tree=True)[:3] == [
        "default/Job/waits",
        "  queue q, priority 0, preemptible",
        "  made by: rule for Job (batch)",
    ]


def test_a_pod_that_names_a_group_is_in_it_for_that_reason(listed):
    named = pod(
        "named",
        1,
        queue="q",
        node="a",
        annotations={"scheduling.kai.io/pod-group": "g"},
    )
    lines = listed(named, tree=True)
    assert '  made by: scheduling.kai.io/pod-group "g"' in lines
    assert lines[-1] == "  (whole): minMember 1, 1 of 1 pods bound"


def test_documents_have_the_tree(listed):
    (row,) = json.loads("\n".join(listed(*WAITS, json=True)))
    assert row["rule"] == "rule for Job (batch)"
    assert row["preemptibility"] == "preemptible"
    assert row["tree"] == {
        "name": "",
        "min_members": 9,
        "min_subgroups": None,
        "bound": 0,
        "pods": 9,
        "topology": None,
        "children": [],
    }


RACK = TopologyConstraint("default", required_level="example.com/rack")
HOST = TopologyConstraint(preferred_level="kubernetes.io/hostname")
TREE = Subgroup(
    min_subgroups=1,
    topology=RACK,
    children=(
        Subgroup(name="leader", min_members=1),
        Subgroup(
            name="workers",
            children=(
                Subgroup(name="segment-0", min_members=2, topology=HOST),
                Subgroup(name="segment-1", min_members=2, topology=HOST),
            ),
        ),
    ),
)


def test_subgroups_with_their_floors_and_topology():
    snapshot, _ = world(RUNS)
    (gang,) = snapshot.gangs.values()
    gang = replace(gang, tree=TREE, members=(replace(gang.members[0], subgroup="segment-1"),))
    assert list(tree_lines("g", (), tree_of(gang), width=None)) == [
        "g",
        "  (whole): minMember 1, 1 of 1 pods bound; 1 of 2 subgroups; "
        "within one example.com/rack of topology default",
        "  ├─ leader: minMember 1, 0 of 0 pods bound",
        "  └─ workers: minMember 4, 1 of 1 pods bound",
        "     ├─ segment-0: minMember 2, 0 of 0 pods bound; "
        "within one kubernetes.io/hostname if possible",
        "     └─ segment-1: minMember 2, 1 of 1 pods bound; "
        "within one kubernetes.io/hostname if possible",
    ]


def test_a_tree_fits_into_a_terminal():
    snapshot, _ = world(RUNS)
    (gang,) = snapshot.gangs.values()
    gang = replace(gang, tree=TREE)
    fact = "Resources: " + "0/512 nodes are available: 512 Insufficient nvidia.com/gpu. " * 3
    lines = list(tree_lines(gang.key, (fact,), tree_of(gang), width=80))
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("     │") for line in lines)
