"""Waiting times and lost work, counted from decisions."""

import pytest
from prometheus_client import CollectorRegistry

from kai_py.grouping.gang_settings import GangSettings
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.decision_metrics import DecisionMetrics, size_label
from kai_py.plan.plan import Plan
from kai_py.snapshot.tables.queues import QueueInfo
from tests.observe.shown import view_of
from tests.support.records import replace
from tests.support.worlds import gang, world

LOST = {"queue": "team", "action": "preempt"}


def counted(*snapshots):
    return measured(*snapshots).get_sample_value


def measured(*snapshots):
    registry, log = CollectorRegistry(), DecisionLog()
    metrics = DecisionMetrics(registry)
    for snapshot in snapshots:
        plan = view_of(snapshot).plan
        metrics.count(log.record(plan, snapshot.gangs, snapshot.now), snapshot.gangs, snapshot.now)
    return registry


def test_a_gang_has_waited_from_its_creation_to_its_first_placement():
    waiting = gang("train", pods=2, gpus=8, created=10.0)
    value = counted(
        world({"n1": 8}, waiting).snapshot(20.0),
        world({"n1": 16}, waiting).snapshot(110.0),
        world({"n1": 16}, waiting).snapshot(111.0),
    )
    labels = {"queue": "team", "size": "2-8"}
    assert value("kai_py_gang_wait_seconds_count", labels) == 1.0
    assert value("kai_py_gang_wait_seconds_sum", labels) == 100.0


def test_the_gang_is_the_exemplar_of_its_wait_however_long_its_name():
    names = ("train", "t" * 200)
    for name in names:
        registry = measured(world({"n1": 8}, gang(name, pods=1, gpus=8)).snapshot(20.0))
        samples = [each for family in registry.collect() for each in family.samples]
        (told,) = [each.exemplar for each in samples if each.exemplar]
        assert told.labels["gang"].endswith(name[-100:])
        assert len("gang" + told.labels["gang"]) <= 128


def test_a_gang_that_grows_has_not_waited():
    value = counted(world({"n1": 8}, gang("train", nodes=["n1", "-"], floor=1)).snapshot(5.0))
    assert value("kai_py_gang_wait_seconds_count", {"queue": "team", "size": "2-8"}) is None


def test_an_eviction_loses_what_its_pods_had_run():
    runs = gang("low", pods=2, gpus=4, node="n1", created=0.0)
    urgent = gang("high", pods=1, gpus=8, created=50.0, priority=9)
    queues = [QueueInfo(name="team", deserved={"gpu": 8.0}, max={"gpu": 8.0})]
    value = counted(world({"n1": 8}, runs, urgent, queues=queues).snapshot(60.0))
    assert value("kai_py_evicted_gpu_seconds_total", {"action": "preempt"}) == 8 * 60.0
    assert value("kai_py_evicted_gpu_seconds_total", {"action": "reclaim"}) == 0.0
    assert value("kai_py_lost_gpu_seconds_total", LOST) == 8 * 60.0
    assert value("kai_py_pods_evicted_early_total", {"action": "preempt"}) == 2


def test_the_evictions_of_a_gang_are_counted_by_how_often_it_was_evicted_that_day():
    runs = gang("low", pods=2, gpus=4, node="n1", created=0.0)
    urgent = gang("high", pods=1, gpus=8, created=50.0, priority=9)
    queues = [QueueInfo(name="team", deserved={"gpu": 8.0}, max={"gpu": 8.0})]
    taken, quiet = (world({"n1": 8}, *gangs, queues=queues) for gangs in ((runs, urgent), (runs,)))
    days = (0, 0.5, 0.6, 0.8, 1, 3)
    snapshots = [each.snapshot(60 + day * 86_400.0) for day in days for each in (taken, quiet)]
    value = counted(*snapshots)
    labels = ({"queue": "team", "times": times} for times in ("1", "2", "3", "4+"))
    assert [value("kai_py_gangs_evicted_total", each) for each in labels] == [2, 1, 1, 2]


def test_an_eviction_that_is_refused_and_repeated_counts_once():
    runs = gang("low", pods=2, gpus=4, node="n1", created=0.0)
    urgent = gang("high", pods=1, gpus=8, created=50.0, priority=9)
    queues = [QueueInfo(name="team", deserved={"gpu": 8.0}, max={"gpu": 8.0})]
    taken, quiet = (world({"n1": 8}, *gangs, queues=queues) for gangs in ((runs, urgent), (runs,)))
    times = (60.0, 61.0, 500.0, 1000.0)
    value = counted(*(each.snapshot(at) for at in times for each in (taken, quiet)))
    assert value("kai_py_evicted_gpu_seconds_total", {"action": "preempt"}) == 8 * 60.0
    assert value("kai_py_lost_gpu_seconds_total", LOST) == 8 * 60.0
    assert value("kai_py_pods_evicted_early_total", {"action": "preempt"}) == 2
    labels = ({"queue": "team", "times": times} for times in ("1", "2"))
    assert [value("kai_py_gangs_evicted_total", each) for each in labels] == [1, None]
    again = counted(*(each.snapshot(at) for at in (60.0, 661.0) for each in (taken, quiet)))
    assert again("kai_py_lost_gpu_seconds_total", LOST) == 8 * (60.0 + 661.0)


def test_counters_of_a_queue_start_at_zero_and_end_with_the_queue():
    """A series that begins with its first eviction has no rate that shows it."""
    registry = CollectorRegistry()
    metrics = DecisionMetrics(registry)
    plan = view_of(world({"n1": 8}).snapshot(0.0)).plan
    counters = (
        ("kai_py_lost_gpu_seconds_total", {"queue": "team", "action": "reclaim"}),
        ("kai_py_gangs_evicted_total", {"queue": "team", "times": "4+"}),
    )
    for shown, expected in ((plan, 0.0), (Plan(), None), (plan, 0.0)):
        metrics.keep_queues(shown)
        assert [registry.get_sample_value(*each) for each in counters] == [expected, expected]


@pytest.mark.parametrize(("now", "early"), [(119.0, 1), (121.0, 0)])
def test_work_that_was_saved_is_not_lost(now, early):
    runs = gang("low", pods=1, gpus=8, node="n1", created=0.0)
    urgent = gang("high", pods=1, gpus=8, created=50.0, priority=9)
    queues = [QueueInfo(name="team", deserved={"gpu": 8.0}, max={"gpu": 8.0})]
    saving = replace(runs, settings=GangSettings(checkpoint_interval=50.0))
    value = counted(world({"n1": 8}, saving, urgent, queues=queues).snapshot(now))
    lost = {"queue": "team", "action": "preempt"}
    assert value("kai_py_lost_gpu_seconds_total", lost) == pytest.approx(8 * (now - 100.0))
    assert value("kai_py_pods_evicted_early_total", {"action": "preempt"}) == early


@pytest.mark.parametrize(
    ("pods", "label"),
    [(1, "1"), (2, "2-8"), (8, "2-8"), (9, "9-64"), (512, "65-512"), (513, "513+")],
)
def test_sizes_are_few(pods, label):
    assert size_label(pods) == label
