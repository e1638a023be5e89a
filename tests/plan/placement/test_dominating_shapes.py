"""A pod that requests at least as much of everything fits only where the other one does."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.gpu_share import GPU_RESOURCE, GpuShare
from kai_py.plan.placement.fit import _gpu_share_dominates, _has_equal_rules, dominates
from kai_py.snapshot.shape import Shape
from tests.support.records import replace


@pytest.mark.parametrize(
    ("ours", "theirs", "gpus", "at_least"),
    [
        (None, None, 0, True),
        (GpuShare(0.5), None, 0, True),
        (None, GpuShare(0.5), 1, True),
        (None, GpuShare(0.5), 0, False),
        (None, GpuShare(0.5, devices=2), 1, False),
        (None, GpuShare(memory=10), 1, False),
        (GpuShare(0.5), GpuShare(0.5), 0, True),
        (GpuShare(0.5), GpuShare(0.6), 0, False),
        (GpuShare(memory=10), GpuShare(memory=10), 0, True),
        (GpuShare(memory=10), GpuShare(memory=11), 0, False),
        (GpuShare(memory=10), GpuShare(0.1), 0, False),
        (GpuShare(0.5, devices=2), GpuShare(0.5), 0, False),
    ],
)
def test_a_part_of_a_gpu_is_at_least_as_much_as_a_smaller_one(ours, theirs, gpus, at_least):
    shape = Shape(number=1, requests={GPU_RESOURCE: float(gpus)}, gpu_share=ours)
    assert _gpu_share_dominates(shape, replace(shape, number=2, gpu_share=theirs)) is at_least


LARGE = Shape(number=1, requests={"cpu": 2.0, "memory": 1.0})
SMALL = Shape(number=2, requests={"cpu": 1.0})
NODES = {1: [True, False], 2: [True, True]}


def known(concerned=(), refusing=(), nodes=NODES):
    statement = SimpleNamespace(
        pod_rules=SimpleNamespace(concern=lambda shape: shape.number in concerned),
        limits=SimpleNamespace(refusing=lambda shape: shape.number in refusing),
        snapshot=SimpleNamespace(nodes=None),
    )
    masks = {number: SimpleNamespace(mask=np.array(mask)) for number, mask in nodes.items()}
    of = SimpleNamespace(of=lambda shape, _nodes: masks[shape.number])
    return statement, SimpleNamespace(static_fits=of)


@pytest.mark.parametrize(
    ("shape", "other", "world", "is_known"),
    [
        (LARGE, SMALL, {}, True),
        (LARGE, LARGE, {"refusing": (1,)}, True),
        (SMALL, LARGE, {"nodes": {1: [True, True], 2: [True, True]}}, False),
        (LARGE, replace(SMALL, requests={"cpu": 2.0}), {}, True),
        (LARGE, replace(SMALL, requests={"cpu": 2.1}), {}, False),
        (LARGE, replace(SMALL, requests={"gpu": 1.0}), {}, False),
        (LARGE, SMALL, {"nodes": {1: [True, True], 2: [True, False]}}, False),
        (LARGE, SMALL, {"refusing": (1,)}, True),
        (LARGE, SMALL, {"refusing": (2,)}, False),
        (LARGE, SMALL, {"concerned": (1,)}, True),
        (LARGE, replace(SMALL, labels={"app": "x"}), {"concerned": (2,)}, False),
        (replace(LARGE, plugin_equivalents={"gpu": 1.0}), SMALL, {}, False),
        (LARGE, replace(SMALL, plugin_equivalents={"gpu": 1.0}), {}, False),
    ],
)
def test_what_keeps_one_pod_from_all_nodes_keeps_the_other_if_that_is_known(
    shape, other, world, is_known
):
    statement, fits = known(**world)
    assert dominates(statement, fits, shape, other) is is_known


@pytest.mark.parametrize(
    ("changes", "concerned", "equal"),
    [
        ({}, (1, 2), True),
        ({"namespace": "other"}, (), True),
        ({"namespace": "other"}, (1,), False),
        ({"namespace": "other"}, (2,), False),
        ({"labels": {"app": "x"}}, (1,), False),
        ({"topology_spread": ("spread",)}, (1,), False),
    ],
)
def test_rules_between_pods_admit_pods_alike_if_they_are_in_all_that_rules_look_at(
    changes, concerned, equal
):
    statement, _ = known(concerned)
    assert _has_equal_rules(statement, LARGE, replace(SMALL, **changes)) is equal
