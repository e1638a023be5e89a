"""The tree of a PodGroup is made once for all its pods, and again when what it names changes."""

from unittest.mock import patch

import pytest

from kai_py.dialects.kai import group_trees
from tests.dialects.feeding import Cluster, node, placed
from tests.dialects.kai.objects import QUEUE, members, pod_group

RACK = {"topology": "dc", "requiredTopologyLevel": "rack"}
LEAVES = "abc"


@pytest.fixture
def trees_made():
    """The specs of which trees are made."""
    made, original = [], group_trees.tree_of

    def tree_of(spec, read_constraint):
        made.append(spec)
        return original(spec, read_constraint)

    with patch.object(group_trees, "tree_of", tree_of):
        yield made


def topology(label):
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "dc"},
        "spec": {"levels": [{"nodeLabel": label}]},
    }


def group(**spec):
    """Three leaves of two pods, each in one rack."""
    leaf = {"minMember": 2, "topologyConstraint": RACK}
    return pod_group("g", subGroups=[{"name": name, **leaf} for name in LEAVES], **spec)


def cluster():
    racks = [node(f"n{i}", 3, labels={"rack": f"r{i}", "row": "r"}) for i in range(3)]
    return Cluster(QUEUE, racks, topology("rack"), group())


def with_pods(each, count=2):
    for leaf in LEAVES:
        each.add(members("g", count, leaf))
    return each


def test_a_tree_is_made_once_for_all_pods(trees_made):
    each = with_pods(cluster())
    assert len(placed(each.plan())) == 6
    assert len(trees_made) == 1
    each.add(group(minSubGroup=2)).plan()
    assert len(trees_made) == 2


def test_a_change_of_what_it_names_is_seen(trees_made):
    each = with_pods(cluster())
    nodes = placed(each.plan())
    assert [len({nodes[f"g-{leaf}{i}"] for i in range(2)}) for leaf in LEAVES] == [1, 1, 1]
    each.add(topology("gone"))
    assert not placed(each.plan())
    each.add(topology("rack"))
    assert len(placed(each.plan())) == 6
    each.add(group(minMember=None, topologyConstraint={**RACK, "requiredTopologyLevel": "gone"}))
    assert not placed(each.plan())


def test_groups_of_two_clusters_are_not_confused():
    first, second = cluster(), cluster().add(group(minSubGroup=1))
    first.add(members("g", 2, "a"))
    second.add(members("g", 2, "a"))
    assert not placed(first.plan())
    assert len(placed(second.plan())) == 2


def test_what_is_wrong_is_told_of_each_pod_again():
    each = Cluster(QUEUE, node("n", 8), pod_group("g", subGroups=[{"name": "a", "minMember": -1}]))
    for i in range(3):
        each.add(members("g", 1 + i, "a"))
        [unplaced] = each.plan().unplaced
        assert "spec.subGroups[a].minMember is -1, which is below 0" in unplaced.message
