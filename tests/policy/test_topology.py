"""Domains: the tightest that holds everything first; labels that are missing; pinned groups."""

import numpy as np
import pytest

from kai_py.policy.topology import candidate_domains
from kai_py.snapshot.nodes import node_columns, with_node
from kai_py.snapshot.resources import ResourceIndex
from kai_py.snapshot.topology import NO_DOMAIN
from tests.support.scenario import node

LABELS = [
    {"zone": "z1", "rack": "r1"},
    {"zone": "z1", "rack": "r1"},
    {"zone": "z1", "rack": "r2"},
    {"zone": "z2", "rack": "r1"},
    {"zone": "z2"},
]


def levels():
    nodes = [node(f"n{i}", labels=labels) for i, labels in enumerate(LABELS)]
    return node_columns(nodes, ResourceIndex(), 1).levels(("zone", "rack"))


def names(copies, count, **bounds):
    given = {"required": None, "preferred": None, **bounds}
    return [c.name for c in candidate_domains(levels(), [np.array(copies)], [count], **given)]


def test_racks_of_two_zones_are_different_domains():
    zone, rack = levels()
    assert rack.names == ("z1/r1", "z1/r2", "z2/r1")
    assert list(rack.codes) == [0, 0, 1, 2, NO_DOMAIN]
    assert list(zone.codes) == [0, 0, 0, 1, 1], "a node without a rack still has its zone"


def test_required_takes_the_tightest_domain_that_holds_all():
    assert names([4, 4, 2, 3, 9], 2, required=1) == ["z1/r2", "z1/r1", "z2/r1"]
    assert names([4, 4, 2, 3, 9], 5, required=1) == ["z1/r1"]
    assert names([4, 4, 2, 3, 9], 9, required=1) == []


def test_preferred_widens_until_it_fits():
    assert names([4, 4, 2, 3, 0], 9, preferred=1) == ["z1", ""]
    assert names([4, 4, 2, 3, 0], 20, preferred=1) == [""]


def test_required_bounds_how_far_preferred_widens():
    assert names([4, 4, 2, 3, 0], 9, required=0, preferred=1) == ["z1"]


def test_a_preferred_level_that_is_coarser_than_the_required_one_adds_nothing():
    required = names([4, 4, 2, 3, 9], 2, required=1)
    assert names([4, 4, 2, 3, 9], 2, required=1, preferred=0) == required


def order(candidate):
    return list(np.argsort(-candidate.domain_rank, kind="stable"))


def test_without_a_domain_that_holds_all_the_roomiest_is_filled_first_then_the_nearest():
    """The other rack of the zone has less capacity than that of the other zone, and is nearer."""
    [anywhere] = candidate_domains(
        levels(), [np.array([4, 4, 2, 3, 1])], [14], required=None, preferred=1
    )
    assert order(anywhere) == [0, 1, 2, 3, 4]


def test_inside_a_coarser_domain_finer_ones_are_filled_one_by_one():
    copies = np.array([1, 1, 3, 9, 9])
    first = next(candidate_domains(levels(), [copies], [4], required=0, preferred=1))
    assert first.name == "z2/r1"
    wide = list(
        candidate_domains(levels(), [np.array([1, 1, 3, 1, 1])], [4], required=0, preferred=1)
    )
    assert [each.name for each in wide] == ["z1"]
    assert order(wide[0])[:3] == [2, 0, 1]
    assert wide[0].domain_rank[2] > wide[0].domain_rank[0] == wide[0].domain_rank[1]


def test_hops_count_from_where_the_group_runs():
    copies = np.array([4, 4, 2, 3, 1])
    pinned = np.array([False, False, False, True, False])
    *_, anywhere = candidate_domains(
        levels(), [copies], [20], required=None, preferred=1, occupied=pinned
    )
    assert order(anywhere) == [3, 4, 0, 1, 2]


def test_running_pods_pin_the_required_domain():
    pinned = np.array([False, False, True, False, False])
    found = list(
        candidate_domains(
            levels(), [np.array([9, 9, 9, 9, 9])], [1], required=0, preferred=1, occupied=pinned
        )
    )
    assert [c.name for c in found] == ["z1/r2", "z1/r1", "z1"]


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (1, ["z1/r1", "z1/r2", "z1", "z2/r1", "z2", ""]),
        (3, ["z1/r1", "z1", "z2/r1", "z2", ""]),
        (5, ["z1", "z2", ""]),
        (9, [""]),
    ],
)
def test_preferred_keeps_pods_together_with_those_that_run(count, found):
    """However tight the domains are in which none of the group runs."""
    pinned = np.array([True, False, False, False, False])
    copies = [2, 2, 2, 3, 4]
    assert names(copies, count, preferred=1, occupied=pinned) == found


def test_preferred_keeps_pods_in_the_zone_of_pods_in_two_racks():
    pinned = np.array([True, False, True, False, False])
    found = names([2, 2, 2, 3, 4], 1, preferred=1, occupied=pinned)
    assert found == ["z1/r2", "z1/r1", "z1", "z2/r1", "z2", ""]


def test_every_shape_must_fit_the_domain():
    small, large = np.array([4, 4, 8, 8, 0]), np.array([1, 1, 0, 2, 0])
    found = candidate_domains(levels(), [large, small], [2, 8], required=1, preferred=None)
    assert [c.name for c in found] == ["z1/r1", "z2/r1"]


def test_nodes_without_a_coarse_label_still_count_for_the_finer_ones():
    labels = [{"rack": "r1"}, {"rack": "r1"}, {"zone": "z", "rack": "r1"}, {}]
    nodes = [node(f"n{i}", labels=each) for i, each in enumerate(labels)]
    made = node_columns(nodes, ResourceIndex(), 1).levels(("zone", "rack"))
    zone, rack = made
    assert list(zone.codes) == [NO_DOMAIN, NO_DOMAIN, 0, NO_DOMAIN]
    assert rack.names == ("/r1", "z/r1"), "the racks of a zone and of none are different"
    copies = [np.array([2, 2, 3, 9])]

    def found(count, **bounds):
        given = {"required": None, "preferred": None, **bounds}
        return [c.name for c in candidate_domains(made, copies, [count], **given)]

    assert found(3, required=1) == ["/r1", "z/r1"]
    assert found(4, required=1) == ["/r1"]
    assert found(3, required=0, preferred=1) == ["z/r1", "z"], "a rack without a zone is in none"
    assert found(4, required=0, preferred=1) == []
    assert found(3, required=1, preferred=0) == ["z/r1", "/r1"], "only one is in a zone"
    assert found(4, required=1, preferred=0) == ["/r1"]


def test_a_node_that_changes_its_label_changes_its_domain():
    nodes = [node(f"n{i}", labels=labels) for i, labels in enumerate(LABELS)]
    before = node_columns(nodes, ResourceIndex(), 1)
    assert before.levels(("zone", "rack"))[1].codes.tolist() == [0, 0, 1, 2, NO_DOMAIN]
    moved = node("n4", labels={"zone": "z1", "rack": "r2"})
    after = with_node(before, moved, ResourceIndex(), 2)
    assert after.levels(("zone", "rack"))[1].codes.tolist() == [0, 0, 1, 2, 1]
    assert [level.first.tolist() for level in after.levels(("rack", "zone"))] == [[0, 2], [0, 3, 2]]
