"""Metrics of the longest waits, of the fragmentation of free capacity and of devices in use."""

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from kai_py.observe import cluster_metrics
from kai_py.observe.cluster_metrics import (
    ClusterMetrics,
    age_label,
    device_claims,
    largest_free,
    pod_gpus,
)
from tests.observe.shown import view_of
from tests.support import scenario
from tests.support.worlds import gang, world

ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"


def scraped(snapshot):
    registry = CollectorRegistry()
    view = None if snapshot is None else view_of(snapshot)
    ClusterMetrics(registry, lambda: view)
    return registry


def test_before_the_first_cycle_there_is_nothing_to_tell():
    assert list(scraped(None).collect()) == []


def test_the_oldest_that_waits_is_told_by_queue():
    waiting = [gang(f"g{n}", pods=1, gpus=8, created=float(n)) for n in (30, 10, 20)]
    value = scraped(world({"n1": 4}, *waiting).snapshot(100.0)).get_sample_value
    assert value("kai_py_oldest_pending_seconds", {"queue": "team"}) == 90.0
    value = scraped(world({"n1": 4}).snapshot(100.0)).get_sample_value
    assert value("kai_py_oldest_pending_seconds", {"queue": "team"}) == 0.0


def test_pending_gangs_are_counted_by_age():
    waiting = [gang(f"g{n}", pods=1, gpus=8, created=float(n)) for n in (0, 9_400, 9_990, 9_999)]
    value = scraped(world({"n1": 4}, *waiting).snapshot(10_000.0)).get_sample_value
    ages = ("under 1m", "1m-10m", "10m-1h", "1h-1d", "over 1d")
    found = [value("kai_py_pending_gangs_by_age", {"queue": "team", "age": age}) for age in ages]
    assert found == [2, 0, 1, 1, 0]
    assert age_label(86_400.0) == "over 1d"


def test_free_capacity_is_told_by_level():
    def node(name, zone, rack, gpus):
        return scenario.node(name, labels={ZONE: zone, RACK: rack}, gpus=gpus)

    made = scenario.cluster(
        scenario.queue("team", 8),
        node("n1", "a", "r1", 8),
        node("n2", "a", "r2", 4),
        node("n3", "b", "r1", 8),
        scenario.pod("p", 2, queue="team", node="n1"),
        scenario.pod("q", 3, queue="team", node="n3"),
    )
    snapshot = made.snapshot()
    assert largest_free(view_of(snapshot)) == {
        "node": 6.0, ZONE: 10.0, RACK: 6.0, "cluster": 15.0,
    }  # fmt: skip
    value = scraped(snapshot).get_sample_value
    states = {s: value("kai_py_nodes", {"state": s}) for s in cluster_metrics.NODE_STATES}
    assert states == {"free": 1, "partial": 2, "full": 0, "unusable": 0, "without_gpus": 0}


def test_every_held_device_names_claim_pod_gang_and_queue(monkeypatch):
    owner = scenario.job("train", 1, "team")
    made = scenario.cluster(
        scenario.queue("team", 8),
        scenario.device_class(),
        scenario.node("n1", gpus=0),
        scenario.gpu_slice("n1", 3),
        owner,
        scenario.claim(
            "c", 2, owner="train-0", held_by=["train-0"], on=[("n1", "gpu-0"), ("n1", "gpu-2")]
        ),
        scenario.claiming(scenario.pod("train-0", 0, node="n1", owner=owner), "c"),
    )
    view = view_of(made.snapshot())
    first, second = device_claims(view).samples
    assert first.labels == {
        "node": "n1",
        "driver": "gpu.nvidia.com",
        "pool": "n1",
        "device": "gpu-0",
        "uuid": "GPU-n1-0",
        "claim": "c",
        "namespace": "default",
        "pod": "train-0",
        "gang": "default/Job/train",
        "queue": "team",
    }
    assert second.labels["uuid"] == "GPU-n1-2"
    monkeypatch.setattr(cluster_metrics, "MAX_DEVICES", 1)
    assert len(device_claims(view).samples) == 1


def test_a_claim_with_two_shares_of_a_device_is_one_series():
    """A scrape with a series twice is refused by some servers, and reported by Prometheus."""
    made = scenario.cluster(
        scenario.device_class(),
        scenario.node("n1", gpus=0),
        scenario.gpu_slice("n1", 1),
        scenario.claim("c", 2, on=[("n1", "gpu-0"), ("n1", "gpu-0")]),
    )
    assert len(device_claims(view_of(made.snapshot())).samples) == 1


def test_free_gpus_that_pods_to_come_cannot_use_are_told():
    """Of the quarter of a GPU that is left, pods that ask for more get nothing."""
    sharer = scenario.shared(scenario.pod("part", 0, queue="team", node="n"), "0.75", group="g")
    wholes = [scenario.pod(f"p{n}", queue="team", node="full") for n in range(3)]
    made = scenario.cluster(
        scenario.queue("team", 8), scenario.node("n", 2), scenario.node("full", 3), sharer, wholes
    )
    value = scraped(made.snapshot()).get_sample_value
    assert value("kai_py_fragmented_gpus") == 0.25
    made.add(scenario.shared(scenario.pod("small", 0, queue="team"), "0.2"))
    value = scraped(made.snapshot()).get_sample_value
    assert value("kai_py_fragmented_gpus") == 0.25 - 0.2 * 0.25


def test_without_gpus_of_a_device_plugin_fragmentation_is_not_told():
    made = scenario.cluster(scenario.queue("team", 8), scenario.node("n", 0))
    assert scraped(made.snapshot()).get_sample_value("kai_py_fragmented_gpus") is None


def test_gpus_without_names_are_told_by_pod_where_a_device_plugin_has_them():
    owner = scenario.job("train", 3, "team")

    def of(name, gpus, node, **extra):
        return scenario.pod(name, gpus, owner=owner, node=node, **extra)

    mig = {"nvidia.com/mig-1g.10gb": "2"}
    plugin = scenario.node("plugin", gpus=8)
    offered = plugin.status.allocatable | mig
    made = scenario.cluster(
        scenario.queue("team", 8),
        replace(plugin, status=replace(plugin.status, allocatable=offered)),
        scenario.node("driver", gpus=0),
        owner,
        of("train-0", 2, "plugin"),
        of("train-1", 0, "plugin", requests=mig),
        of("train-2", 2, "driver"),
    )
    rest = ("default", "default/Job/train", "team")
    told = {
        tuple(sample.labels[name] for name in ("node", "resource", "pod")): sample
        for sample in pod_gpus(view_of(made.snapshot())).samples
    }
    assert {key: sample.value for key, sample in told.items()} == {
        ("plugin", "nvidia.com/gpu", "train-0"): 2.0,
        ("plugin", "nvidia.com/mig-1g.10gb", "train-1"): 2.0,
    }
    for sample in told.values():
        assert tuple(sample.labels[name] for name in ("namespace", "gang", "queue")) == rest
