"""Upper bounds of the pods that nodes and domains hold: each condition alone decides."""

from types import SimpleNamespace

import pytest

from kai_py.plan.cycle import infeasible_demand
from kai_py.plan.cycle.infeasible_demand import (
    _charge_of_unable,
    _DeviceNodes,
    _feasible_pods,
    _is_larger_than_domain,
)
from kai_py.plan.state.empty_nodes import MOST_PODS
from tests.support.records import replace
from tests.support.worlds import gang

MOST = MOST_PODS


@pytest.mark.parametrize(
    ("by_node", "more", "count", "shared", "held"),
    [
        ({"a": 5, "b": 1}, {}, 2, False, [2, 0, 0]),
        ({"a": 5, "b": 1}, {}, 1, False, [5, 1, 0]),
        ({"a": 2, "b": 1}, {}, 2, True, [MOST, 0, 0]),
        ({"a": 1, "b": 0}, {"anywhere": 1}, 2, False, [MOST, 0, 0]),
        ({"a": 2, "b": 1}, {"are_shared": True}, 2, False, [MOST, 0, 0]),
        ({"gone": 9}, {}, 1, False, [0, 0, 0]),
        ({}, {}, 0, False, [MOST] * 3),
        (None, {}, 1, False, [MOST] * 3),
    ],
)
def test_devices_bound_the_pods_of_a_node_unless_they_are_shared(
    by_node, more, count, shared, held
):
    found = None
    if by_node is not None:
        found = SimpleNamespace(**({"anywhere": 0, "by_node": by_node, "are_shared": False} | more))
    snapshot = SimpleNamespace(nodes=Nodes({"a": 0, "b": 1, "c": 2}))
    devices = SimpleNamespace(possible_devices=lambda _request: found)
    bounds = _DeviceNodes(snapshot, devices, {}, None)
    assert bounds._by_devices(None, count, shared=shared).tolist() == held


class Nodes:
    """Nodes by position."""

    def __init__(self, positions):
        self.positions = positions

    def __len__(self):
        return len(self.positions)


@pytest.mark.parametrize(
    ("changes", "is_larger"),
    [
        ({}, True),
        ({"constraint": None}, False),
        ({"level": ""}, False),
        ({"found": None}, False),
        ({"found": ()}, False),
        ({"nodes": "a--"}, False),
        ({"shapes": 2}, False),
        ({"holds": True}, False),
    ],
)
def test_a_gang_is_larger_than_every_domain_if_none_holds_its_minimum(
    monkeypatch, changes, is_larger
):
    case = {"constraint": True, "level": "rack", "found": ("r0",), "nodes": "---", "shapes": 1}
    case |= {"holds": False} | changes
    constraint = SimpleNamespace(required_level=case["level"]) if case["constraint"] else None
    level = None if case["found"] is None else SimpleNamespace(names=case["found"])
    monkeypatch.setattr(infeasible_demand, "resolved_constraint", lambda *_: constraint)
    monkeypatch.setattr(infeasible_demand, "level_of", lambda *_: level)
    asked = []

    def hold_in_domain(_shape, count, _level):
        asked.append(count)
        return case["holds"]

    made = gang("g", nodes=case["nodes"], floor=2)
    if case["shapes"] == 2:
        other = gang("h", pods=1, gpus=2).members
        made = replace(made, members=(*made.members[1:], *other))
    nodes = SimpleNamespace(snapshot=None, hold_in_domain=hold_in_domain)
    assert _is_larger_than_domain(made, nodes) is is_larger
    assert asked in ([], [2])


@pytest.mark.parametrize(
    ("floor", "changes", "problem", "unable"),
    [
        (2, {}, "", ""),
        (2, {"waiting_for": "a claim"}, "", "012"),
        (2, {"problem": "too large a number"}, "", "012"),
        (1, {"waiting_for": "a claim"}, "", "12"),
        (1, {"problem": "too large a number"}, "", "12"),
        (1, {}, "its own", "012"),
    ],
)
def test_pods_that_lack_something_are_unable_and_all_are_below_the_minimum(
    floor, changes, problem, unable
):
    made = gang("g", pods=3, floor=floor)
    first, *others = (
        replace(each, charge={each.pod.name: 1.0})
        for each in replace(made, problem=problem).members
    )
    members = (first, *(replace(each, **changes) for each in others))
    found = _charge_of_unable(replace(made, problem=problem, members=members))
    assert sorted(found) == [f"g-{n}" for n in unable]


@pytest.mark.parametrize(
    ("nodes", "held", "feasible"),
    [("---", 3, "012"), ("---", 2, "01"), ("a--", 2, "1"), ("a--", 3, "12"), ("a--", 1, "")],
)
def test_as_many_pods_are_feasible_as_nodes_hold_beside_those_that_run(nodes, held, feasible):
    bounds = SimpleNamespace(total=lambda _shape: held)
    found = _feasible_pods(gang("g", nodes=nodes), bounds)
    assert [each.pod.name for each in found] == [f"g-{n}" for n in feasible]
