"""KAI's queue metrics: names, labels and units that its dashboards read."""

from prometheus_client import CollectorRegistry

from kai_py.observe.plan_observer import KaiQueueMetrics
from kai_py.plan.plan import Plan
from tests.support.scenario import cluster, node, pod, queue


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
