import pytest

from kai_py.api.choices import MinRuntimeMethod
from kai_py.policy.fairness_rules import NATIVE, FairnessRules
from kai_py.policy.min_runtime import preempt_min_runtime, reclaim_min_runtime, within_min_runtime
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace

RULES = FairnessRules(default_preempt_min_runtime=2, default_reclaim_min_runtime=1)
QUEUES = build_queue_table(
    [
        QueueInfo(name="prod", reclaim_min_runtime=30),
        QueueInfo(name="dev", preempt_min_runtime=5),
        QueueInfo(name="web", parent="prod", reclaim_min_runtime=20),
        QueueInfo(name="batch", parent="prod"),
        QueueInfo(name="front", parent="web", reclaim_min_runtime=10, preempt_min_runtime=7),
        QueueInfo(name="back", parent="web"),
        QueueInfo(name="lab", parent="dev"),
    ],
    ("gpu",),
)[0]


def of(seconds, name):
    return seconds[QUEUES.positions[name]]


def test_preempt_takes_the_nearest_value_above_then_the_default():
    seconds = preempt_min_runtime(QUEUES, RULES)
    assert {name: of(seconds, name) for name in ("front", "lab", "back")} == {
        "front": 7,
        "lab": 5,
        "back": 2,
    }


@pytest.mark.parametrize(
    ("method", "reclaimer", "victim", "expected"),
    [
        ("lca", "lab", "front", 30),
        ("lca", "batch", "front", 20),
        ("lca", "back", "front", 10),
        ("lca", "front", "back", 20),
        ("lca", "front", "lab", 1),
        ("queue", "lab", "front", 10),
        ("queue", "lab", "back", 20),
        ("queue", "front", "lab", 1),
    ],
)
def test_reclaim_asks_the_side_of_the_victim(method, reclaimer, victim, expected):
    rules = replace(RULES, min_runtime_method=MinRuntimeMethod(method))
    seconds = reclaim_min_runtime(QUEUES, QUEUES.positions[reclaimer], rules)
    assert of(seconds, victim) == expected


def test_protection_ends_when_the_runtime_is_reached_and_needs_a_start():
    safe = [within_min_runtime(started, 30.0, now=100.0) for started in (70.0, 71.0, float("nan"))]
    assert safe == [False, True, False]


@pytest.mark.parametrize("field", ["usage_weight", "saturation_multiplier"])
def test_w17_rules_out_of_range_are_refused_by_name(field):
    with pytest.raises(ValueError, match=field):
        replace(NATIVE, **{field: -1.0})
