"""Victims that fit elsewhere are moved, and which node is emptied."""

from unittest.mock import patch

from msgspec.structs import replace as struct_replace

from kai_py.api.records.core import Toleration
from kai_py.plan.actions import consolidate
from kai_py.plan.plan import Action, Stage
from tests.support.scenario import (
    cluster,
    evicted,
    job_with_pods,
    moves,
    node,
    nominated,
    pod,
    queue,
)
from tests.support.worlds import gang, world


def test_a_victim_that_fits_elsewhere_is_moved_and_says_where():
    plan = cluster(
        node("a", 4),
        node("b", 4),
        queue("team", 8),
        pod("x", 2, queue="team", node="a", created=0),
        pod("y", 2, queue="team", node="b", created=1),
        pod("big", 4, queue="team", created=2),
    ).plan()
    assert moves(plan) == {"y": "a"}, "the youngest is moved"
    assert nominated(plan) == {"big": "b"}
    assert plan.evictions[0].action is Action.CONSOLIDATE


def test_a_pod_of_the_core_is_moved_where_the_surplus_has_to_stay():
    plan = world(
        {"a": 4, "b": 3},
        gang("low", nodes="ba", gpus=2, floor=1),
        gang("new", pods=1, gpus=3, created=9),
    ).plan()
    assert moves(plan) == {"low-0": "a"}
    assert nominated(plan) == {"new-0": "b"}


def test_a_pod_moves_to_where_another_one_moves_away():
    """Only c may take the new pod; its pod of 4 GPUs fits on b once b's pod is on a."""
    host_c = {"kubernetes.io/hostname": "c"}
    plan = cluster(
        *(node(name, 4) for name in "abc"),
        queue("team", 20),
        pod("x", 2, queue="team", node="a", created=0),
        pod("y", 2, queue="team", node="b", created=1),
        pod("z", 4, queue="team", node="c", created=2),
        pod("new", 3, queue="team", created=3, node_selector=host_c),
    ).plan()
    assert moves(plan) in ({"y": "a", "z": "b"}, {"x": "b", "z": "a"})
    assert nominated(plan) == {"new": "c"}


def test_a_node_with_capacity_for_one_pod_is_not_cheap_for_the_next():
    """a takes one of the pods as it is, and b one once a single pod has moved."""
    plan = world(
        {"a": 6, "b": 4, "c": 4},
        *(gang(f"on-{n}{i}", node=n, pods=1, created=i) for n in "abc" for i in range(2)),
        gang("new", pods=2, gpus=3, created=9),
    ).plan()
    assert list(moves(plan)) == ["on-b1-0"]
    assert sorted(nominated(plan)) == ["new-0", "new-1"]


def test_surplus_is_moved_before_a_core():
    plan = world(
        {"a": 2, "b": 2},
        gang("elastic", node="a", pods=1, floor=0, created=0),
        gang("fixed", node="b", pods=1, created=5),
        gang("new", pods=1, gpus=2, created=9),
    ).plan()
    assert moves(plan) == {"elastic-0": "b"}


def test_pods_of_one_size_leave_the_only_node_to_the_one_that_needs_it():
    owner, *pods = job_with_pods("new", 3, queue="team", priority=10)
    choosy = struct_replace(
        pods[2], spec=struct_replace(pods[2].spec, node_selector={"kubernetes.io/hostname": "a"})
    )
    plan = cluster(
        *(node(name, 1) for name in "abc"),
        queue("team", 8),
        *(pod(f"old-{name}", queue="team", node=name) for name in "abc"),
        [owner, *pods[:2], choosy],
    ).plan()
    assert nominated(plan)["new-2"] == "a"
    assert len(evicted(plan)) == 3


CORDON = "node.kubernetes.io/unschedulable"


def full_beside_a_cordoned_node(**spec):
    """A full node, an idle one that is cordoned, and a pod that does not tolerate that."""
    return cluster(
        node("a", 4),
        node("cordoned", 4, unschedulable=True),
        queue("team", 8),
        pod("x", 2, queue="team", node="a", created=0, **spec),
        pod("y", 2, queue="team", node="a", created=1),
        pod("big", 2, queue="team", created=2),
    )


def test_idle_capacity_of_a_cordoned_node_starts_no_search():
    with patch.object(consolidate, "_by_node", autospec=True) as search:
        plan = full_beside_a_cordoned_node().plan()
    search.assert_not_called()
    assert plan.unplaced[0].stage is Stage.RESOURCES


def test_a_pod_that_tolerates_the_cordon_is_moved_there():
    tolerations = (Toleration(key=CORDON, operator="Exists"),)
    plan = full_beside_a_cordoned_node(tolerations=tolerations).plan()
    assert moves(plan) == {"x": "cordoned"}
    assert nominated(plan) == {"big": "a"}


def test_nothing_is_moved_where_a_pod_would_be_lost():
    plan = cluster(
        node("a", 4),
        node("b", 4),
        queue("team", 8),
        pod("x", 3, queue="team", node="a"),
        pod("y", 2, queue="team", node="b"),
        pod("big", 3, queue="team", created=2),
    ).plan()
    assert moves(plan) == {}
    assert plan.unplaced[0].stage is Stage.RESOURCES


def test_pods_of_a_moved_gang_stay_where_no_gang_needs_their_capacity():
    plan = world(
        {"a": 4, "b": 4, "c": 1},
        gang("wide", nodes="abbb", floor=4),
        gang("big", pods=1, gpus=4, created=9),
    ).plan()
    assert moves(plan) == {"wide-0": "b"}
    assert nominated(plan) == {"big-0": "a"}


def test_w21_the_node_that_costs_the_fewest_restarts_is_emptied():
    plan = world(
        {"a": 4, "b": 4, "c": 4},
        *(gang(f"a{i}", node="a", pods=1, created=i) for i in range(2)),
        gang("b", node="b", pods=1, gpus=2, created=2),
        *(gang(f"c{i}", node="c", pods=1, created=3 + i) for i in range(2)),
        gang("big", pods=1, gpus=4, created=9),
    ).plan()
    assert list(moves(plan)) == ["b-0"]
    assert nominated(plan) == {"big-0": "b"}


def test_pods_of_a_gang_on_other_nodes_count_no_restart():
    """Of ``wide`` one pod has to move; on node b both of ``pair`` would have to."""
    plan = world(
        {"a": 4, "b": 4},
        gang("wide", nodes="baa", created=1),
        gang("pair", nodes="bb", created=2),
        gang("big", pods=1, gpus=3, created=9),
    ).plan()
    assert len(moves(plan)) == 1
    assert nominated(plan) == {"big-0": "a"}


def test_of_two_nodes_the_one_from_which_fewer_pods_of_a_gang_move_is_emptied():
    plan = world(
        {"a": 4, "b": 4, "c": 2, "d": 5},
        gang("large", nodes="dc", gpus=2, created=0),
        gang("d", nodes="d", created=1),
        gang("two", nodes="a", gpus=2, created=2),
        gang("a", nodes="a", created=3),
        gang("wide", nodes="abb", created=4),
        gang("big", pods=1, gpus=4, created=50),
    ).plan()
    assert len(moves(plan)) == 1


def test_one_pod_of_a_gang_moves_on_to_make_place_for_another_gang():
    plan = world(
        {"a": 2, "b": 4, "c": 2, "d": 4},
        gang("r0", nodes="d", gpus=2, created=0),
        gang("r1", nodes="bcc", created=1),
        gang("r2", nodes="ad", created=2),
        gang("r3", nodes="b", gpus=2, created=3),
        gang("big", pods=1, gpus=3, created=50),
    ).plan()
    assert len(moves(plan)) == 2
    assert list(nominated(plan)) == ["big-0"]
