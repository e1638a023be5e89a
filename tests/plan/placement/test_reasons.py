"""Reasons as sentences."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.plan.placement.reasons import (
    MAX_REFUSALS_SHOWN,
    ShortageCause,
    Unschedulable,
    _has_devices_for_more,
    amount_text,
    amount_texts,
    for_gang,
    for_more_pods,
    with_refusals,
    with_reserved_nodes,
    with_spares,
)
from kai_py.plan.plan import Shortage, Stage
from kai_py.snapshot.pod_failures import NodeRefusal
from tests.support.records import replace
from tests.support.worlds import gang, subgroup, world

CAUSES = (ShortageCause("1 has no GPU"),)
TOGETHER = "4 pods must start together but only 2 can be scheduled"
LACKS = Unschedulable(Stage.RESOURCES, TOGETHER, Shortage(2, 4, ("1 has no GPU",)), causes=CAUSES)


@pytest.mark.parametrize(
    ("summary", "causes", "sentences"),
    [
        ("It waits", (), "It waits."),
        ("It waits.", (), "It waits."),
        ("0/1", CAUSES, "0/1: 1 has no GPU."),
    ],
)
def test_a_sentence_ends_before_the_next_begins(summary, causes, sentences):
    reason = Unschedulable(Stage.RESOURCES, summary, causes=causes)
    assert reason.with_sentence("So it goes.").message == f"{sentences} So it goes."
    assert reason.with_clause("so it goes").message == f"{sentences[:-1]}; so it goes."
    assert reason.with_clause("so it goes").with_clause("on").message.endswith("; so it goes; on.")


def test_what_is_infeasible_is_said_once():
    causes = (ShortageCause("1 claims", "no such device"), ShortageCause("2 lack", "memory"))
    reason = replace(LACKS, causes=causes, infeasible="no such device")
    assert reason.message == f"{TOGETHER}: 1 claims: no such device, 2 lack: memory."
    assert reason.message_beside_infeasible == f"{TOGETHER}: 1 claims, 2 lack: memory."


@pytest.mark.parametrize(
    ("others", "text"),
    [
        (0, "."),
        (1, "; 1 other pod of the gang would fit."),
        (2, "; 2 other pods of the gang would fit."),
    ],
)
def test_other_pods_that_would_fit_are_counted(others, text):
    reason = replace(LACKS, shortage=replace(LACKS.shortage, others=others))
    assert reason.message == f"{TOGETHER}: 1 has no GPU{text}"


@pytest.mark.parametrize(
    ("reason", "failed", "needed", "head"),
    [
        (LACKS, 4, 9, "9 pods must start together but only 2 can be scheduled: 1 has no GPU."),
        (LACKS, 4, 4, f"{TOGETHER}: 1 has no GPU."),
        (LACKS, 3, 9, f"{TOGETHER}: 1 has no GPU."),
        (Unschedulable(Stage.RESOURCES, "It waits."), 4, 9, "It waits."),
        (
            replace(LACKS, summary="0/0 nodes: no feasible node.", causes=()),
            4,
            9,
            "9 pods must start together but only 2 can be scheduled: no feasible node.",
        ),
    ],
)
def test_the_reason_of_some_pods_is_that_of_more(reason, failed, needed, head):
    found = for_more_pods(reason, failed, needed)
    assert found.message == head
    assert found is reason or found.shortage.needed == needed


TWO_LEAVES = subgroup("", children=(subgroup("x", 2), subgroup("y", 1)))


@pytest.mark.parametrize(
    ("made", "requested", "found", "placed", "told"),
    [
        # The first pod that did not fit, its subgroup, its minimum, and other pods that would fit.
        (gang("g", pods=3), "012", 1, "", ("g-1", "", 3, 0)),
        (gang("g", pods=3), "012", 9, "", ("g-2", "", 3, 0)),
        (gang("g", pods=3), "12", 0, "0", ("g-1", "", 3, 1)),
        (gang("g", pods=3), "12", 0, "012", ("g-1", "", 3, 1)),
        (gang("g", pods=3, floor=1), "012", 0, "", ("g-0", "", 0, 0)),
        (gang("g", nodes="aa--", floor=2), "23", 0, "", ("g-2", "", 0, 0)),
        (gang("g", nodes="a---", floor=2), "23", 0, "", ("g-2", "", 2, 0)),
        (gang("g", nodes="a---", floor=2), "23", 0, "1", ("g-2", "", 0, 1)),
        (gang("g", pods=3, leaves="xxy", tree=TWO_LEAVES), "012", 0, "", ("g-0", "x", 2, 0)),
        (gang("g", pods=3, leaves="xxy", tree=TWO_LEAVES), "01", 1, "2", ("g-1", "x", 2, 1)),
        (gang("g", pods=3, leaves="xxy", tree=TWO_LEAVES), "2", 0, "", ("g-2", "y", 1, 0)),
    ],
)
def test_a_gang_is_told_its_own_pod_and_subgroup(made, requested, found, placed, told):
    members = [made.members[int(n)] for n in requested]
    reason = replace(LACKS, shortage=Shortage(found, len(members), ()))
    detail = for_gang(reason, made, members, {f"g-{n}" for n in placed}).shortage
    assert (detail.pod.name, detail.subgroup, detail.min_members, detail.others) == told


def test_a_single_pod_needs_no_detail():
    alone = gang("g", pods=1)
    assert for_gang(LACKS, alone, alone.members, ()) is LACKS
    detailed = replace(LACKS, shortage=replace(LACKS.shortage, pod=alone.members[0].pod, others=1))
    assert for_gang(detailed, alone, alone.members, ()) == LACKS
    more = replace(alone, placeholders=gang("later", pods=1).members)
    assert for_gang(LACKS, more, alone.members, ()).shortage.pod == alone.members[0].pod
    other = Unschedulable(Stage.NOT_READY, "It waits.")
    assert for_gang(other, gang("g", pods=2), (), ()) is other


@pytest.mark.parametrize(
    ("replicas", "stage"), [(0, Stage.RESOURCES), (1, Stage.RESOURCES), (2, Stage.RESERVED)]
)
def test_reserved_nodes_are_the_reason_if_they_would_suffice(replicas, stage):
    assert with_reserved_nodes(LACKS, 2, replicas).stage is stage
    without = replace(LACKS, shortage=None)
    assert with_reserved_nodes(without, 2, 99).stage is Stage.RESOURCES


def test_nodes_that_are_kept_from_a_gang_are_counted():
    for nodes, reserved, spares in (
        (1, "1 node is reserved for", "1 node is a spare that"),
        (2, "2 nodes are reserved for", "2 nodes are spares that"),
    ):
        assert reserved in with_reserved_nodes(LACKS, nodes, 0).message
        assert spares in with_spares(LACKS, nodes).message
    quiet = Unschedulable(Stage.RESOURCES, "")
    assert with_spares(quiet, 1) is quiet


@pytest.mark.parametrize(
    ("more", "text"), [(0, " 60 s."), (1, "; so is 1 more node."), (2, "; so are 2 more nodes.")]
)
def test_nodes_that_refused_pods_are_named_up_to_a_bound(more, text):
    refusals = tuple(
        NodeRefusal(f"n{number}", "OutOfcpu", 1, 0.0, 60.0)
        for number in range(MAX_REFUSALS_SHOWN + more)
    )
    refused = replace(gang("g", pods=1), refusals=refusals)
    message = with_refusals(LACKS, refused).message
    assert message.count("refused a pod of this gang (OutOfcpu)") == MAX_REFUSALS_SHOWN
    assert message.endswith(text)
    quiet = Unschedulable(Stage.RESOURCES, "")
    assert with_refusals(quiet, refused) is quiet


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 0.0, "0"),
        ("cpu", 1.0, "1m"),
        ("cpu", 999.0, "999m"),
        ("cpu", 1000.0, "1"),
        ("cpu", 1500.0, "1.5"),
        ("memory", 0.0, "0"),
        ("memory", 1023.0, "1023"),
        ("memory", 1024.0, "1Ki"),
        ("memory", 1.5 * 2**30, "1.5Gi"),
        ("memory", 2.0**60, "1024Pi"),
        ("hugepages-2Mi", 2.0**21, "2Mi"),
        ("ephemeral-storage", 2.0**40, "1Ti"),
        ("nvidia.com/gpu", 4.0, "4"),
        ("nvidia.com/gpu", 0.25, "0.25"),
        ("nvidia.com/gpu", 0.00001, "0"),
        ("pods", 999.0, "999"),
        ("pods", 1000.0, "1000"),
        ("pods", 12345.0, "12345"),
    ],
)
def test_amounts_are_rounded_quantities(resource, amount, text):
    assert amount_text(resource, amount) == text


@pytest.mark.parametrize(
    ("resource", "wanted", "present", "texts"),
    [
        ("cpu", 2000.0, 1000.0, ("2", "1")),
        ("cpu", 1000.0, 1000.0, ("1", "1")),
        ("cpu", 64001.0, 64000.0, ("64001m", "64000m")),
        ("memory", 2.0**30 + 1, 2.0**30, ("1073741825", "1073741824")),
    ],
)
def test_amounts_that_differ_are_not_rounded_to_the_same(resource, wanted, present, texts):
    assert amount_texts(resource, wanted, present) == texts


def test_devices_suffice_for_more_pods_where_they_are_more_than_the_pods_that_fit_otherwise():
    asked = []

    def replicas(_shape, among, limit, _capacity):
        asked.append(limit)
        return np.where(among, [1, 3, 5, 9], 0)

    statement = SimpleNamespace(devices=SimpleNamespace(replicas=replicas))
    among, fitting = np.array([True, True, True, False]), np.array([1, 2, 6, 8])
    found = _has_devices_for_more(statement, None, among, fitting)
    assert found.tolist() == [False, True, False, False]
    assert asked == [7], "one more than any of these nodes holds otherwise"


def test_a_node_lacks_what_one_more_pod_than_it_holds_needs():
    [found] = world({"a": 1, "b": 3}, gang("g", pods=5)).plan().unplaced
    lacking = "2 Insufficient nvidia.com/gpu (1 requested)"
    assert f"5 pods must start together but only 4 can be scheduled: {lacking}." in found.message
