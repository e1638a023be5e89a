"""Trees of a LeaderWorkerSet: what holds for the leader, all workers, and each segment."""

import pytest

from kai_py.api.records.unstructured import unstructured
from kai_py.grouping.frameworks.leader_worker_set import LEADER, WORKERS, _leaf_names, _tree
from kai_py.grouping.gang import TopologyConstraint
from kai_py.grouping.topology_annotations import TemplateTopology

RACK, ZONE = TopologyConstraint(required_level="rack"), TopologyConstraint(required_level="zone")
HOST = TopologyConstraint(required_level="host")
ONE_LEAF, SEGMENTS = (LEADER, WORKERS, WORKERS), (LEADER, "segment-0", "segment-0", "segment-1")


def shown(tree):
    """By name, least number of pods, level and children of every node of a tree."""
    level = tree.topology.required_level if tree.topology is not None else ""
    return (tree.name, tree.min_members, level, [shown(each) for each in tree.children])


@pytest.mark.parametrize(
    ("names", "needed", "workers", "per_subgroup", "children"),
    [
        (
            ONE_LEAF,
            3,
            TemplateTopology(RACK),
            "host",
            [(LEADER, 1, "zone", []), (WORKERS, 2, "rack", [])],
        ),
        (
            SEGMENTS,
            2,
            TemplateTopology(None, 2, RACK),
            "",
            [
                (LEADER, 1, "zone", []),
                ("segment-0", 1, "rack", []),
                ("segment-1", 0, "rack", []),
            ],
        ),
        (
            SEGMENTS,
            4,
            TemplateTopology(None, 2, None),
            "host",
            [
                (LEADER, 1, "zone", []),
                ("segment-0", 2, "host", []),
                ("segment-1", 1, "host", []),
            ],
        ),
        (
            SEGMENTS,
            4,
            TemplateTopology(ZONE, 2, RACK),
            "",
            [
                (LEADER, 1, "zone", []),
                (
                    WORKERS,
                    0,
                    "zone",
                    [("segment-0", 2, "rack", []), ("segment-1", 1, "rack", [])],
                ),
            ],
        ),
        (SEGMENTS[1:3], 2, TemplateTopology(None, 2, RACK), "", [("segment-0", 2, "rack", [])]),
    ],
)
def test_what_holds_for_the_leader_all_workers_and_each_segment(
    names, needed, workers, per_subgroup, children
):
    tree = _tree(names, needed, TemplateTopology(ZONE), workers, per_subgroup)
    assert shown(tree) == ("", 0, "", children)


def test_each_pod_of_a_group_has_a_leaf():
    found = unstructured({"metadata": {"name": "l"}}, ())
    assert _leaf_names(found, 1, TemplateTopology()) == (LEADER,)
    assert _leaf_names(found, 3, TemplateTopology()) == (LEADER, WORKERS, WORKERS)
