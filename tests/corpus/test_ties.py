"""How recorded cases are compared: ties may end either way, and nothing else may."""

import pytest

from tests.corpus.kai_session import End, carried_over, match


def case(*expected, racks=("r0", "r0", "r1"), on=()):
    """Three nodes and a job of two equal tasks; ``on``: nodes with a pod of another job."""
    nodes = [
        {"name": f"n{i}", "allocatable": {"gpu": 1}, "labels": {"rack": rack, "host": f"n{i}"}}
        for i, rack in enumerate(racks)
    ]
    pending = [{"name": f"job-{i}", "request": {"gpu": 1}, "status": "Pending"} for i in (0, 1)]
    others = [{"name": f"o-{n}", "node": n, "status": "Running", "request": {}} for n in on]
    jobs = [{"name": "job", "tasks": pending}, {"name": "other", "tasks": others}]
    wanted = {f"job-{i}": {"status": "Running", "node": n} for i, n in enumerate(expected)}
    return {"cluster": {"nodes": nodes, "jobs": jobs}, "expected": {"tasks": wanted}}


def ends(*nodes):
    return {f"job-{i}": End("Running" if node else "Pending", node) for i, node in enumerate(nodes)}


@pytest.mark.parametrize("nodes", [("n0", "n1"), ("n1", "n0")])
def test_equal_nodes_and_pods_may_be_exchanged(nodes):
    match(case("n0", "n1"), ends(*nodes))


@pytest.mark.parametrize("nodes", [("n0", "n2"), ("n0", "n0"), ("n0", "")])
def test_other_ends_are_none(nodes):
    with pytest.raises(AssertionError):
        match(case("n0", "n1"), ends(*nodes))


def test_domains_of_equal_nodes_may_be_exchanged_as_a_whole():
    recorded = case("n0", "n1", racks=("r0", "r1"))
    match(recorded, ends("n1", "n0"))
    with pytest.raises(AssertionError):
        match(case("n0", "n0", racks=("r0", "r1"), on=("n0",)), ends("n1", "n1"))


def test_promises_are_carried_to_the_next_round():
    waits = {"job-0": End("Pipelined", "n0"), "job-1": End("Pending", "")}
    jobs = carried_over({"jobs": case()["cluster"]["jobs"][:1]}, waits, promises=True)["jobs"]
    assert [task["nominated"] for task in jobs[0]["tasks"]] == ["n0", ""]
    forgotten = carried_over({"jobs": case()["cluster"]["jobs"][:1]}, waits)["jobs"]
    assert [task["nominated"] for task in forgotten[0]["tasks"]] == ["", ""]
