"""What the records of a gang's pods say together, in whatever order the pods come."""

from itertools import permutations

import pytest

from kai_py.api.gpu_share import GPU_GROUP, GPU_GROUP_PREFIX, GpuShare
from kai_py.api.records.core import ObjectMeta, Pod, PodSpec
from kai_py.grouping.admitted import (
    ADMITTED_KEY,
    MAX_RECORD,
    Terms,
    admitted_minimum,
    first_start,
    lowest_minimums,
    minimums_of,
    read_terms,
    shared_groups,
    shortest_runtime,
    with_minimums,
)
from kai_py.grouping.gang import Subgroup


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("{", None),
        ("[" * 5000, None),
        ("{}", None),
        (Terms("q").text(), Terms("q")),
        (
            Terms("q", 7, minimums={"": 2}, gpus={"g": 1}).text(),
            Terms("q", 7, minimums={"": 2}, gpus={"g": 1}),
        ),
        (Terms("q" * MAX_RECORD).text(), None),
    ],
)
def test_a_record_that_was_written_is_read_and_anything_else_is_none(text, found):
    assert read_terms({ADMITTED_KEY: text}) == found
    assert read_terms({}) is None


def terms(*minimums):
    return [Terms("q", minimums=each) for each in minimums]


@pytest.mark.parametrize(
    ("records", "lowest", "least"),
    [
        ([("", {"": 3}), ("", {"": 2})], {"": 2}, 2),
        ([("a", {"": 1, "a": 3}), ("b", {"": 1, "b": 2})], {"": 1, "a": 3, "b": 2}, 2),
        ([("a", {"": 2, "a": 3}), ("b", {"": 2, "b": 2})], {"": 2, "a": 3, "b": 2}, 5),
        ([("a", {"": 2, "a": 3}), ("b", {"": 1, "b": 2})], {"": 1, "a": 3, "b": 2}, 2),
        ([("moved", {"a": 3}), ("a", {"a": 2})], {"a": 2, "moved": 0}, 2),
        ([("", {})], {"": 0}, 1),
    ],
)
def test_of_several_records_the_lowest_minimum_counts(records, lowest, least):
    for order in permutations(records):
        leaves, minimums = zip(*order, strict=True)
        assert lowest_minimums(zip(leaves, terms(*minimums), strict=True)) == lowest
        assert admitted_minimum(terms(*minimums)) == least


LEAVES = Subgroup(name="a", min_members=3), Subgroup(name="b", min_members=1)
TREE = Subgroup(min_subgroups=2, children=LEAVES)


@pytest.mark.parametrize(
    ("minimums", "needed", "leaves"),
    [
        ({}, 2, [3, 1]),
        ({"": 2, "a": 3, "b": 1}, 2, [3, 1]),
        ({"": 3, "a": 4, "b": 2}, 2, [3, 1]),
        ({"a": 2}, 2, [2, 1]),
        ({"": 1}, 1, [3, 1]),
        ({"": 0, "b": -1}, 0, [3, 0]),
        ({"": -1}, 0, [3, 1]),
    ],
)
def test_no_minimum_stays_above_the_one_that_was_admitted(minimums, needed, leaves):
    found = with_minimums(TREE, minimums)
    assert found.needed_children == needed
    assert [each.min_members for each in found.leaves()] == leaves
    assert (found is TREE) == ((needed, leaves) == (2, [3, 1]))


@pytest.mark.parametrize(
    ("leaf", "expected", "minimums"),
    [("a", 0, {"": 2, "a": 3}), ("a", 4, {"": 2, "a": 4}), ("b", 1, {"": 2, "b": 1}), ("c", 0, {})],
)
def test_a_record_names_the_leaf_last_and_what_is_above_it(leaf, expected, minimums):
    assert minimums_of(TREE, leaf, expected) == minimums
    assert [*minimums_of(TREE, leaf, expected)][-1:] == [*minimums][-1:]


def test_the_first_start_and_the_shortest_runtime_that_are_known_count():
    assert shortest_runtime([None, 3.0, 2.0]) == 2.0
    assert shortest_runtime([None]) is None
    starts = [Terms("q", started=each) for each in (None, -1.0, 0.0, 7.0, 5.0)]
    assert first_start(starts) == 5.0
    assert first_start(starts[:3]) == 0.0


SHARES, ADMITTED = {"gpu-fraction": "0.5"}, {ADMITTED_KEY: Terms("q").text()}
RECORDED = {ADMITTED_KEY: Terms("q", gpus={"r": 0}, share=GpuShare(fraction=0.5)).text()}


@pytest.mark.parametrize(
    ("labels", "annotations", "shared"),
    [
        ({GPU_GROUP: "g"}, SHARES, ["g"]),
        ({f"{GPU_GROUP_PREFIX}h": "h", "other": "o"}, SHARES, ["h"]),
        ({GPU_GROUP: "g"}, ADMITTED, ["g"]),
        ({GPU_GROUP: "g"}, {}, []),
        ({}, SHARES, []),
        ({}, RECORDED, ["r"]),
        ({GPU_GROUP: "g"}, RECORDED, ["g", "r"]),
        ({}, {ADMITTED_KEY: Terms("q", gpus={"r": 0}).text()}, []),
    ],
)
def test_a_pod_shares_the_gpus_of_its_labels_if_it_asks_for_a_part_and_those_of_its_record(
    labels, annotations, shared
):
    meta = ObjectMeta(name="p", uid="p", labels=labels, annotations=annotations)
    found = shared_groups(Pod(metadata=meta, spec=PodSpec(node_name="n")))
    assert [(each.node, each.group) for each in found] == [("n", group) for group in shared]
