"""Faults of KAI-Scheduler that must not be ours; docs/kai-differences.md lists a test for each."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.plan.plan import Action
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.repository import DOCS, ROOT
from tests.support.scenario import cluster, evicted, job, node, placed, pod, queue
from tests.support.worlds import gang, member, subgroup, world

PAIR = subgroup("", needs=1, children=[subgroup("a", 1), subgroup("b", 1)])


def test_w1_a_gang_that_needs_one_of_two_subgroups_reclaims():
    queues = [QueueInfo(name="rich"), QueueInfo(name="poor", deserved={"gpu": 1.0})]
    plan = world(
        {"n": 2},
        *(gang(f"r{i}", pods=1, node="n", queue="rich", created=i) for i in range(2)),
        gang("new", nodes="--", leaves="ab", tree=PAIR, queue="poor", created=9),
        queues=queues,
    ).plan()
    assert evicted(plan) == ["r1-0"]
    assert len(plan.nominations) == 1


def test_w2_a_gang_with_enough_subgroups_is_not_stale():
    running = gang("g", nodes="n-", leaves="ab", tree=PAIR, stale_since=0.0)
    plan = world({"n": 1}, running, actions=(Action.STALE,), staleness_grace=60.0).plan()
    assert evicted(plan) == []


def test_w3_a_gang_with_enough_subgroups_does_not_go_before_its_peers():
    served = gang("a-old", nodes="n-", leaves="ab", tree=PAIR, created=0)
    plan = world({"n": 2}, served, gang("b-new", pods=1, created=5)).plan()
    assert placed(plan) == {"b-new-0": "n"}


def test_w4_gangs_of_one_name_in_two_namespaces_are_two():
    mark = {"scheduling.kai.io/pod-group": "job", "scheduling.kai.io/min-available": "2"}
    one, other = (pod(name, queue="team", annotations=mark) for name in ("x", "y"))
    meta = msgspec.structs.replace(other.metadata, namespace="ns-b")
    elsewhere = msgspec.structs.replace(other, metadata=meta)
    plan = cluster(node("n"), queue("team", 8), one, elsewhere).plan()
    assert placed(plan) == {}
    assert len(plan.unplaced) == 2


def test_w5_running_pods_of_the_gang_request_nothing():
    """Two of three pods run in rack x; the third takes the one GPU that another queue may lose."""
    marks = {"kai.scheduler/topology-required-placement": "rack"}
    owner = job("train", 3, "poor", **marks)
    pods = [pod(f"train-{i}", owner=owner, node="n" if i < 2 else "") for i in range(3)]
    plan = cluster(
        node("n", 3, labels={"rack": "x"}),
        queue("poor", 3),
        queue("rich", 0),
        owner,
        *pods,
        pod("lent", queue="rich", node="n"),
    ).plan()
    assert evicted(plan) == ["lent"]


@pytest.mark.parametrize(
    ("sizes", "node_gpus"),
    [((2, 4, 3), (4, 5)), ((4, 3, 3, 2, 2), (8, 6)), ((4, 4, 3, 3, 3), (8, 9))],
    ids=["w10", "w11", "largest-first-fails"],
)
def test_w10_w11_mixed_gangs_that_fit_are_placed(sizes, node_gpus):
    mixed = gang("mixed", nodes="-" * len(sizes))
    shaped = tuple(
        member(m.pod.name, size, "") for m, size in zip(mixed.members, sizes, strict=True)
    )
    plan = world(
        {f"n{i}": gpus for i, gpus in enumerate(node_gpus)}, replace(mixed, members=shaped)
    ).plan()
    assert len(placed(plan)) == len(sizes)


@given(st.permutations(range(6)))
def test_w9_no_line_is_too_short_for_the_gang_that_comes_first(order):
    """However gangs are listed, the oldest take what there is."""
    gangs = [gang(f"g{i}", pods=1, created=i) for i in order]
    assert sorted(placed(world({"n": 2}, *gangs).plan())) == ["g0-0", "g1-0"]


def test_every_fault_has_a_test_that_exists():
    table = (DOCS / "kai-differences.md").read_text()
    rows = re.findall(r"^\| W(\d+) \|.*\| `([^`]+)::([^`]+)` \|$", table, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 27))
    for number, path, name in rows:
        assert f"_w{number}_" in name, f"found by its number: pytest -k w{number}_"
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(), f"{path}::{name}"
