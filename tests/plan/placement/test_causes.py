"""Each node is counted for the first check that it fails: parts of GPUs, claims, devices."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.gpu_share import GPU_RESOURCE, GpuShare
from kai_py.plan.placement.reasons import (
    _insufficient_gpu_shares,
    _insufficient_resources,
    _other_causes,
    _refused_claims,
)

NO_PLUGIN, UNKNOWN, SMALL, FULL, FREE, CLAIMED = range(6)


def gpu_shares(*nodes, memory=100.0, may_claim=True):
    """What is said of these nodes, and those of which nothing is."""
    rest = np.isin(np.arange(6), nodes)
    plugin = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    claimed = np.arange(6) == CLAIMED if may_claim else None
    gpu_mib = np.array([0.0, 100.0, 99.0, 100.0, 100.0, 0.0])
    required = np.where(np.arange(6) == UNKNOWN, np.inf, 100.0)
    shared = SimpleNamespace(gpu_mib=gpu_mib, required_mib=lambda _share: required)
    replicas = SimpleNamespace(total=np.array([0, 0, 0, 0, 1, 0]))
    statement = SimpleNamespace(
        gpu_share_replicas=lambda *_: replicas,
        gpu_parts=SimpleNamespace(shared=shared, claimed=lambda _shape: claimed),
        snapshot=SimpleNamespace(
            resources=SimpleNamespace(positions={GPU_RESOURCE: 0}),
            nodes=SimpleNamespace(allocatable=np.array([plugin])),
        ),
    )
    shape = SimpleNamespace(gpu_share=GpuShare(memory=memory))
    texts, left = _insufficient_gpu_shares(statement, shape, rest)
    return [text.partition(" (")[0] for text in texts], np.flatnonzero(left).tolist()


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (NO_PLUGIN, "1 have no GPUs of a device plugin to share"),
        (UNKNOWN, "1 report no GPU memory"),
        (SMALL, "1 Insufficient GPU memory"),
        (FULL, "1 Insufficient GPU fraction"),
        (FREE, None),
        (CLAIMED, None),
    ],
)
def test_a_node_without_a_part_of_a_gpu_says_why(node, text):
    texts, left = gpu_shares(node)
    assert [each.partition(", nor")[0] for each in texts] == ([] if text is None else [text])
    assert left == ([node] if text is None else [])


def test_each_node_is_counted_once_and_the_others_are_left():
    texts, left = gpu_shares(*range(6))
    assert len(texts) == 4
    assert all(text.startswith("1 ") for text in texts)
    assert left == [FREE, CLAIMED]
    (text,), left = gpu_shares(NO_PLUGIN, CLAIMED, may_claim=False)
    assert text.startswith("2 have no GPUs of a device plugin to share, and the pod claims none")
    assert left == []


@pytest.mark.parametrize(
    ("devices", "replicas", "causes", "by_devices"),
    [
        (True, [1, 2], ["2 lack devices"], True),
        (True, [1, 0], ["1 lack devices", "1 not available to this gang"], True),
        (True, [0, 0], ["2 not available to this gang"], False),
        (False, [1, 2], ["2 not available to this gang"], False),
    ],
)
def test_devices_are_the_cause_on_nodes_that_have_everything_else(
    devices, replicas, causes, by_devices
):
    counted = []

    def shortages(_shape, rest, known):
        counted.append(known.tolist())
        return [], rest

    statement = SimpleNamespace(
        limits=SimpleNamespace(shortages=shortages),
        devices=SimpleNamespace(
            unschedulable_reasons=lambda _shape, tried: [(f"{tried.sum()} lack devices", "")]
        ),
    )
    shape = SimpleNamespace(needs_devices=devices, has_claims=False)
    found = _other_causes(statement, shape, np.array([True, True]), np.array(replicas))
    assert ([str(each) for each in found[0]], found[1]) == (causes, by_devices)
    assert counted == [[0, 0] if devices else replicas]


@pytest.mark.parametrize("has_claims", [True, False])
def test_nodes_that_refuse_claims_are_counted_by_what_they_say(has_claims):
    problems = {0: "lack memory", 1: "lack memory", 2: "", 4: "lack cpu"}
    statement = SimpleNamespace(
        claim_shortages={(7, 2): "lack cpu"},
        devices=SimpleNamespace(node_claim_problem=lambda _shape, row: problems.get(row, "")),
    )
    shape, rest = SimpleNamespace(number=7, has_claims=has_claims), np.arange(5) < 4
    texts, left = _refused_claims(statement, shape, rest)
    assert texts == (["2 lack memory", "1 lack cpu"] if has_claims else [])
    assert np.flatnonzero(left).tolist() == ([3] if has_claims else [0, 1, 2, 3])


def insufficient(free, *, devices, plugin=False, found=0):
    """Texts and nodes left, for pods of 2 of which one fits on each node but the last."""
    mask, replicas = np.ones(len(free), np.bool_), np.array([1] * (len(free) - 1) + [0])
    statement = SimpleNamespace(
        free=lambda _capacity: np.array([free]),
        gpu_share_replicas=lambda *_: None,
        devices=SimpleNamespace(replicas=lambda *_: replicas + 1),
        snapshot=SimpleNamespace(
            resources=SimpleNamespace(positions={"r": 0}),
            nodes=SimpleNamespace(allocatable=np.full((1, len(free)), 9.0), names="abcd"),
        ),
    )
    shape = SimpleNamespace(
        requests={} if plugin else {"r": 2.0},
        reported_requests={} if plugin else {"r": 2.0},
        plugin_equivalents={"r": 2.0} if plugin else {},
        extended=SimpleNamespace(resources=()),
        needs_devices=devices,
        gpu_share=None,
    )
    static = SimpleNamespace(mask=mask)
    texts, rest = _insufficient_resources(statement, shape, static, replicas, found=found)
    return texts, np.flatnonzero(rest).tolist()


def test_a_node_lacks_a_resource_if_one_more_pod_does_not_fit():
    texts, left = insufficient([3.9, 4.0, 2.0, 1.9], devices=False, found=3)
    assert (texts, left) == (["3 Insufficient r (2 requested)"], [1])
    texts, left = insufficient([3.9, 4.0, 1.9], devices=False)
    assert (texts, left) == (["2 Insufficient r (2 requested, most free 3.9 on a)"], [1])


def test_where_one_pod_fits_by_resources_devices_are_to_blame():
    """But not if the node has devices for more pods, and its plugin reports too few."""
    texts, left = insufficient([3.9, 2.0, 1.9], devices=True)
    assert (texts, left) == (["1 Insufficient r (2 requested, most free 1.9 on c)"], [0, 1])
    texts, left = insufficient([3.9, 2.0, 1.9], devices=True, plugin=True)
    assert (texts, left) == (["3 Insufficient r (2 requested, most free 3.9 on a)"], [])
