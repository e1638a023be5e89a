from contextlib import suppress

import pytest

from kai_py.simulate.change_texts import SetQueue, parse_set_queue
from kai_py.simulate.changes import (
    AddNodes,
    AddObjects,
    ChangeError,
    DrainNode,
    RemoveGang,
    node_pattern,
)
from tests.simulate.clusters import job, queue, running, simulated
from tests.support.cluster.kai_definitions import KINDS, definition
from tests.support.mixtures import kai_queue


def test_added_nodes_have_devices_of_their_own():
    cluster = simulated(queue("team", 16), job("big", 16, "team"))
    cluster.settle(60)
    assert running(cluster) == set()
    AddNodes("node-0", 2).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"big"}


def test_a_drained_node_is_left_and_not_used_again():
    cluster = simulated(queue("team", 8), job("two", 2, "team"))
    [gang] = cluster.settle(60).placements
    left = gang.pods[0].node
    DrainNode(left).apply(cluster)
    [again] = cluster.settle(60).placements
    assert {pod.node for pod in again.pods} == {"node-0", "node-1"} - {left}


def test_a_queue_field_is_set_and_taken_away():
    cluster = simulated(queue("team", 0, 2), job("four", 4, "team"))
    cluster.settle(60)
    assert running(cluster) == set()
    SetQueue("team", ("maxGPUs",), None).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"four"}


def test_a_removed_gang_gives_its_capacity_back():
    cluster = simulated(queue("team", 8), job("first", 8, "team"))
    cluster.settle(60)
    cluster.embedded.create(job("second", 8, "team"))
    RemoveGang("default/Job/first").apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"second"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (AddNodes("nowhere", 1), "node nowhere: not found"),
        (DrainNode("nowhere"), "node nowhere: not found"),
        (RemoveGang("default/Job/none"), "gang default/Job/none: not found"),
        (SetQueue("none", ("maxGPUs",), 1), "Queue none: "),
        (SetQueue("team", ("maxGPUs",), -1), "Queue team: "),
        (SetQueue("team", ("maximum",), 1), "Queue team: "),
        (AddObjects([{"apiVersion": "v1", "kind": "Pod"}]), "Pod -: "),
        (
            AddObjects([{"apiVersion": "x/v1", "kind": "Unknown", "metadata": {"name": "u"}}]),
            "Unknown u: ",
        ),
    ],
)
def test_what_cannot_be_changed_names_the_object(change, message):
    cluster = simulated(queue("team", 8))
    with pytest.raises(ChangeError, match=message):
        change.apply(cluster)


PATTERN = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "b200"},
        "status": {"capacity": {"cpu": "64", "memory": "1Ti", "pods": "110"}},
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "b200-gpus"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "b200",
            "pool": {"name": "b200", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"gpu-{i}", "attributes": {"type": {"string": "gpu"}}} for i in range(8)
            ],
        },
    },
]


def test_nodes_of_a_kind_that_is_nowhere_yet_are_added_with_their_devices():
    cluster = simulated(queue("team", 32), job("big", 24, "team"))
    cluster.settle(60)
    assert running(cluster) == set()
    AddNodes(node_pattern(PATTERN), 2, PATTERN).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"big"}
    names = cluster.snapshot().nodes.names
    assert [name for name in names if "b200" in name] == ["b200-added-1", "b200-added-2"]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (PATTERN[1:], "must contain one Node"),
        ([PATTERN[0], PATTERN[0]], "must contain one Node"),
        ([*PATTERN, queue("team")], "must contain one Node"),
        ([{"kind": "Node", "metadata": {}}], "Node: has no metadata.name"),
        ([{**PATTERN[0], "metadata": {"name": "other"}}, PATTERN[1]], "is not of node other"),
    ],
)
def test_what_is_no_pattern_of_a_node_is_told(documents, message):
    with pytest.raises(ChangeError, match=message):
        node_pattern(documents)


def kai_queues():
    cluster = simulated()
    cluster.embedded.create(definition(*KINDS[0]))
    cluster.embedded.create(kai_queue("team", gpu={"quota": 1, "limit": 2, "overQuotaWeight": 1}))
    return cluster


def test_a_field_of_kais_queue_is_set():
    cluster = kai_queues()
    parse_set_queue("team.resources.gpu.limit=7").apply(cluster)
    [spec] = cluster.snapshot().queues
    assert (spec.max["gpu"], spec.deserved["gpu"]) == (7, 1)
    for text, message in (
        ("team.resources.gpu.max=7", "KAI has no max"),
        ("team.maxGPUs=7", "KAI has no maxGPUs"),
        ("team.priority=high", "Queue team: "),
    ):
        with pytest.raises(ChangeError, match=message):
            parse_set_queue(text).apply(cluster)


def test_names_with_dots_are_told_apart_and_entries_of_lists_found():
    entry = {"name": "h100", "deviceClassName": "gpu.nvidia.com", "max": 1}
    cluster = simulated(queue("team.a", devices=[entry]), queue("team"))
    parse_set_queue("team.a.maxGPUs=3").apply(cluster)
    parse_set_queue("team.a.devices[h100].max=2").apply(cluster)
    parse_set_queue("team.a.resources[example.com/card].max=4").apply(cluster)
    spec = {each.name: each for each in cluster.snapshot().queues}["team.a"]
    assert spec.max == {"gpu": 3, "deviceclass/gpu.nvidia.com": 2, "example.com/card": 4}
    with pytest.raises(ChangeError, match="h200: no such entry"):
        parse_set_queue("team.a.devices[h200].max=2").apply(cluster)


@pytest.mark.parametrize("field", ["metadata", "spec", "status"])
@pytest.mark.parametrize("value", ["text", 5, ["item"], {"labels": "text", "allocatable": 5}])
def test_manifests_of_other_types_are_refused_or_simulated(field, value):
    """Never is there another error: it would be one of ours."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "like"}}
    given = {**node, field: value}
    for change in (AddObjects([given]), AddNodes("like", 1, [{**given, "spec": {}}])):
        cluster = simulated()
        with suppress(ChangeError):
            change.apply(cluster)


def test_a_manifest_without_a_name_is_told_by_the_one_it_asks_for():
    meta = {"generateName": "hello-", "namespace": "default"}
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta}
    with pytest.raises(ChangeError, match=r"^Workflow hello-: Workflow of .* not simulated"):
        AddObjects([workflow]).apply(simulated())


MERGES = "{a0: &a0 {k: 1}, " + ", ".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 8)}]}}" for n in range(1, 30)
)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (f"{MERGES}}}", "merges copy more than"),
        ("9" * 5000, "cannot be read as"),
        ("!!timestamp soon", "cannot be read as"),
        (f"[{'1, ' * 2000}]", "is not a field of a Queue"),
        ("1\r--- 2", "is not"),
        ("[", "is not YAML"),
    ],
)
def test_a_value_that_is_none_is_refused_at_once_and_shortly(value, said):
    with pytest.raises(ChangeError, match=said) as told:
        parse_set_queue(f"team.maxGPUs={value}")
    assert len(str(told.value)) < 400
