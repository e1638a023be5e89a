"""What the documentation names exists. Dashboards and rules: tests/deploy/test_monitoring.py.

KAI's queue metrics: names, labels and units that its dashboards read.
"""

import asyncio
import math
import re
from contextlib import suppress

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from kai_py.observe.auditor import Auditor
from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.metrics import Metrics, measure_process
from kai_py.observe.plan_observer import KaiQueueMetrics
from kai_py.plan.observations import SetAside
from kai_py.plan.plan import Plan
from kai_py.watch.mirror import KindStatus
from tests.observe.shown import view_of
from tests.support.repository import DOCS
from tests.support.scenario import cluster, node, pod, queue
from tests.support.worlds import gang, world
from tests.watch import virtual_time

NAMED = re.compile(r"\bkai_(?:py|device)_\w+")
OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture
def names():
    registry = CollectorRegistry()
    Metrics(registry)
    DecisionMetrics(registry)
    Auditor(registry, lambda: None, lambda: 0.0)
    view = ClusterView(1, world({"n": 8}).snapshot(0.0), Plan(), np.zeros(1))
    ClusterMetrics(registry, lambda: view)
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for family in registry.collect()
    }


def named(text):
    return {OF_HISTOGRAMS.sub("", name) for name in NAMED.findall(text)}


def test_the_page_names_the_metrics_that_exist(names):
    assert named((DOCS / "metrics.md").read_text()) == names


def series_but_of_devices(gangs):
    """How many series a scrape has when so many gangs run and as many wait."""
    nodes = {f"n{n}": 8 for n in range(gangs)}
    runs = [gang(f"runs-{n}", pods=1, gpus=8, node=f"n{n}") for n in range(gangs)]
    waits = [gang(f"waits-{n}", pods=1, gpus=8) for n in range(gangs)]
    registry, log = CollectorRegistry(), DecisionLog()
    metrics, decided = Metrics(registry), DecisionMetrics(registry)
    empty = world(nodes, *(gang(each.key.rpartition("/")[2], pods=1, gpus=8) for each in runs))
    for snapshot in (empty.snapshot(0.0), world(nodes, *runs, *waits).snapshot(60.0)):
        view = view_of(snapshot)
        metrics.show_plan(view.plan)
        fresh = log.record(view.plan, snapshot.gangs, snapshot.now)
        decided.count(fresh, snapshot.gangs, snapshot.now)
    ClusterMetrics(registry, lambda: view)
    return sum(
        len(family.samples)
        for family in registry.collect()
        if not family.name.startswith("kai_device_")
    )


def test_queues_that_do_not_exist_make_no_series():
    waits = [gang(f"w-{n}", pods=1, gpus=8, queue=f"{'x' * 100_000}{n}") for n in range(3)]
    view = view_of(world({"n": 8}, *waits).snapshot(60.0))
    registry = CollectorRegistry()
    Metrics(registry).show_plan(view.plan)
    ClusterMetrics(registry, lambda: view)
    named = {
        (sample.name, sample.labels["queue"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if "queue" in sample.labels
    }
    assert all(len(queue) < 100 for _, queue in named)
    assert named["kai_py_pending_gangs", ""] == 3
    assert named["kai_py_oldest_pending_seconds", ""] == 60


def test_more_gangs_make_no_more_series_but_of_devices():
    assert series_but_of_devices(30) == series_but_of_devices(3) > 100


def shown(plan, registry, metrics):
    metrics.show_plan(plan)
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_amounts_in_kais_units_and_queues_that_are_gone_disappear():
    registry = CollectorRegistry()
    metrics = KaiQueueMetrics(registry, lambda name: f"The {name}")
    requests = {"cpu": "1500m", "memory": "2G"}
    team = queue("team", 4)
    plan = cluster(node("n"), team, pod("p", queue="team", node="n", requests=requests)).plan()
    values = shown(plan, registry, metrics)
    assert values["kai_queue_info", "team"] == 1
    assert values["kai_queue_deserved_gpus", "team"] == 4
    assert values["kai_queue_quota_cpu_cores", "team"] == -1
    assert values["kai_queue_allocated_gpus", "team"] == 1
    assert values["kai_queue_allocated_cpu_cores", "team"] == 1.5
    assert values["kai_queue_allocated_memory_bytes", "team"] == 2e9
    assert values["kai_queue_fair_share_memory_gb", "The team", "team", "team"] == 2
    assert values["kai_queue_fair_share_gpu", "The team", "team", "team"] == 1
    assert shown(Plan(), registry, metrics) == {}


def test_amounts_of_queues_are_in_base_units_and_finite():
    registry = CollectorRegistry()
    requests = {"cpu": "1500m", "memory": "2G"}
    team = queue("team", 4)
    plan = cluster(node("n"), team, pod("p", queue="team", node="n", requests=requests)).plan()
    values = shown(plan, registry, Metrics(registry))
    assert values["kai_py_queue_resources", "allocated", "cpu", "team"] == 1.5
    assert values["kai_py_queue_resources", "allocated", "memory", "team"] == 2e9
    assert values["kai_py_queue_resources", "deserved", "gpu", "team"] == 4
    assert ("kai_py_queue_resources", "deserved", "cpu", "team") not in values, "it is unlimited"
    assert all(map(math.isfinite, values.values()))


def test_queues_that_are_set_aside_are_counted_together():
    registry = CollectorRegistry()
    aside = tuple(SetAside(key, "failed", "") for key in ("queue a", "queue b", "score s"))
    values = shown(Plan(failed_extensions=aside), registry, Metrics(registry))
    told = {key: value for key, value in values.items() if "extensions_set_aside_total" in key[0]}
    assert told == {
        ("kai_py_extensions_set_aside_total", "queue"): 2,
        ("kai_py_extensions_set_aside_total", "score s"): 1,
    }


class Watches:
    """What is measured of a mirror and of its freshness."""

    permission = ""
    kinds = ("jobs.batch",)

    def status(self):
        return tuple(
            KindStatus(
                "Job",
                "v1",
                True,
                0,
                float(number),
                "",
                (),
                missing_permission=self.permission if number == 0 else "",
                permission=kind,
            )
            for number, kind in enumerate(self.kinds)
        )

    def measure(self):
        return ()


@virtual_time.test
async def test_a_permission_that_is_taken_away_and_given_back_is_told():
    metrics, watches = Metrics(CollectorRegistry()), Watches()

    def told():
        return metrics.registry.get_sample_value("kai_py_kind_refused", {"kind": "jobs.batch"})

    task = asyncio.ensure_future(measure_process(metrics, watches, watches))
    for watches.permission, expected in (("", None), ("jobs.batch", 1.0), ("", 0.0)):
        await asyncio.sleep(10)
        assert told() == expected
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@virtual_time.test
async def test_the_lag_of_a_watch_is_told_by_group_and_for_as_long_as_there_is_a_watch():
    metrics, watches = Metrics(CollectorRegistry()), Watches()

    def told():
        families = {each.name: each for each in metrics.registry.collect()}
        lags = families["kai_py_watch_lag_seconds"].samples
        return {sample.labels["kind"]: sample.value for sample in lags}

    watches.kinds = ("jobs.batch", "jobs.batch.volcano.sh")
    task = asyncio.ensure_future(measure_process(metrics, watches, watches))
    await asyncio.sleep(10)
    assert told() == {"jobs.batch": 0, "jobs.batch.volcano.sh": 1}
    watches.permission = "jobs.batch"
    await asyncio.sleep(10)
    assert told() == {"jobs.batch.volcano.sh": 1}, "the other is told as missing permission"
    watches.kinds = ("jobs.batch",)
    await asyncio.sleep(10)
    assert told() == {}
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
