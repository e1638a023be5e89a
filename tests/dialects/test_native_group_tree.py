"""Trees of composite groups: made once for all pods, and again when a group below changes."""

from unittest.mock import patch

import pytest

from kai_py.dialects import native_group_tree
from tests.dialects.feeding import Cluster, node, placed
from tests.dialects.test_native_groups import QUEUE, TREE, below, composite, group, members

GROUPS = 20


@pytest.fixture
def leaves_made():
    """The names of the groups of which leaves are made."""
    made, original = [], native_group_tree._leaf

    def leaf(group, name):
        made.append(name)
        return original(group, name)

    with patch.object(native_group_tree, "_leaf", leaf):
        yield made


def serving(needed=GROUPS):
    """Twenty groups of one pod; half of them are below a composite group of their own."""
    return Cluster(
        QUEUE,
        node("n", 8),
        composite("serve", needed),
        composite("decode", 1, **below("serve")),
        [group(f"g{i:02}", 1, **below("decode" if i % 2 else "serve")) for i in range(GROUPS)],
    )


def test_leaves_are_made_once_for_all_pods(leaves_made):
    cluster = serving(needed=1)
    for i in range(GROUPS):
        cluster.add(members(f"g{i:02}", 1))
    assert len(placed(cluster.plan())) == 8
    assert sorted(leaves_made) == [f"g{i:02}" for i in range(GROUPS)]
    leaves_made.clear()
    cluster.add(group("g03", 2, **below("decode")))
    cluster.plan()
    assert leaves_made == ["g03"]
    leaves_made.clear()
    cluster.add(members("g05", 2)).plan()
    assert not leaves_made


def test_a_change_of_any_group_is_seen():
    cluster = Cluster(QUEUE, node("n", 8), members("prefill", 1), members("workers", 1))
    cluster.add(composite("serve", 2)).add(composite("decode", 1, **below("serve")))
    cluster.add(group("prefill", 1, **below("serve")))
    cluster.add(group("workers", 1, **below("decode")))
    assert not cluster.why()
    cluster.add(group("workers", 2, **below("decode")))
    assert cluster.why()[TREE] == ("BelowMinMember", "minMember is 3; existing pods: 2.")
    cluster.add(group("workers", 1, **below("decode")))
    cluster.add(composite("decode", 3, **below("serve")))
    assert cluster.why()[TREE] == ("BelowMinMember", "minMember is 4; existing pods: 2.")
    cluster.add(composite("decode", 1, **below("serve"))).add(composite("serve", 3))
    assert cluster.why()[TREE] == ("BelowMinMember", "minMember is 3; existing pods: 2.")
    cluster.remove(group("prefill", 1, **below("serve"))).add(composite("serve", 1))
    assert "workers-0" in placed(cluster.plan())


def test_groups_of_two_clusters_are_not_confused():
    first, second = serving(), serving(needed=1)
    first.add(members("g00", 1))
    second.add(members("g00", 1))
    assert first.why()[TREE][0] == "BelowMinMember"
    assert list(placed(second.plan())) == ["g00-0"]


def test_pods_depend_on_few_objects_however_many_groups_there_are():
    """On every composite group of the tree, thousands of pods would depend a thousand times."""
    many = [composite(f"c{i:02}", 1, **below("serve")) for i in range(30)]
    groups = [group(f"g{i:02}", 1, **below(f"c{i:02}")) for i in range(30)]
    cluster = Cluster(QUEUE, node("n", 8), composite("serve", 1), many, groups)
    cluster.add(members("g07", 1)).plan()
    dependencies = cluster.planner.builder._dependencies
    [keys] = dependencies._keys.values()
    assert len(keys) < 15
    for changed in ("serve", "c07"):
        assert ("compositepodgroups", "default", changed) in keys
    assert ("within", "compositepodgroups", "default", "serve") in keys


def test_a_group_moves_from_one_tree_to_another_and_back():
    cluster = Cluster(QUEUE, node("n", 8), composite("a", 1), composite("b", 1))
    cluster.add(composite("inner", 1, **below("a")))
    cluster.add([group(name, 1, **below("inner")) for name in ("one", "two")])
    cluster.add(group("three", 1, **below("b")))
    for name in ("one", "two", "three"):
        cluster.add(members(name, 1))
    for above in ("a", "b", "a", "b"):
        cluster.add(composite("inner", 1, **below(above)))
        gangs = cluster.snapshot().gangs
        sizes = {key.rpartition("/")[2]: len(gang.members) for key, gang in gangs.items()}
        assert sizes == ({"a": 2, "b": 1} if above == "a" else {"b": 3})
    cluster.remove(composite("inner", 1, **below("b")))
    problems = {gang.key: gang.problem for gang in cluster.snapshot().gangs.values()}
    assert sum("does not exist (yet)" in problem for problem in problems.values()) == 2


def test_a_change_at_the_deepest_level_reaches_the_tree():
    """Ten composite groups are above each other; the eleventh is too deep for all pods."""
    chain = [composite(f"c{i}", 1, **(below(f"c{i - 1}") if i else {})) for i in range(10)]
    cluster = Cluster(QUEUE, node("n", 8), chain, group("top", 1, **below("c0")))
    cluster.add(members("top", 1))
    assert "top-0" in placed(cluster.plan())
    deeper = composite("c10", 1, **below("c9"))
    cluster.add(deeper)
    assert [stage for stage, _ in cluster.why().values()] == ["Invalid"]
    cluster.remove(deeper)
    assert "top-0" in placed(cluster.plan())


@pytest.mark.parametrize(
    ("above", "groups"),
    [
        ("serve", [composite(f"c{i}", 4_000, **below("serve")) for i in range(3)]),
        ("c0", [composite(f"c{i}", 10_000, **below("serve")) for i in range(200)]),
        ("serve", [composite("c", 9_998, **below("serve")), group("more", 1, **below("serve"))]),
    ],
)
def test_too_many_subgroups_are_refused_before_they_are_made(above, groups):
    cluster = Cluster(QUEUE, node("n", 8), composite("serve", 1), groups)
    made = []
    with patch.object(native_group_tree, "Subgroup", lambda **fields: made.append(fields)):
        cluster.add(group("train", 1, **below("serve"))).add(members("train", 2))
    [(stage, message)] = cluster.why().values()
    assert stage == "Invalid"
    assert "it has more than 10000 subgroups, which is the maximum" in message
    assert f"CompositePodGroup {above} has more groups below it" in message
    assert len(made) <= 20_010


def test_as_many_as_may_be_are_accepted():
    above = composite("serve", 1), composite("c", 9_997, **below("serve"))
    cluster = Cluster(QUEUE, node("n", 8), *above, group("train", 1, **below("serve")))
    assert list(placed(cluster.add(members("train", 1)).plan())) == ["train-0"]
