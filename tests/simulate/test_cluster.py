import pytest

from kai_py.api.queue import ADMISSION_GATE
from kai_py.config import Configuration
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import NODES, PODS
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.offline_plan import newest_time
from tests.simulate.clusters import job, priority_class, queue, running, simulated
from tests.simulate.manifests import ANY_DEVICE, QUEUE, gpus_of, node, pod, two_zones
from tests.simulate.test_offline_gpu_sharing import NAMESPACE, reservation, share
from tests.simulate.test_offline_plan import half_attached, waiting


def test_gangs_start_whole_or_wait_whole_and_hold_distinct_devices():
    cluster = simulated(queue("team", 8), job("six", 6, "team"), job("four", 4, "team"))
    course = cluster.settle(60)
    assert len(course.placements) == 1
    assert running(cluster) == {course.placements[0].gang.rpartition("/")[2]}
    assert len(course.last_plan.unplaced) == 1
    claims = cluster.embedded.api.list(
        cluster.embedded.registry.named("resourceclaims.resource.k8s.io")
    )
    devices = [
        (result["pool"], result["device"])
        for claim in claims
        for result in (claim["status"].get("allocation") or {"devices": {"results": []}})[
            "devices"
        ]["results"]
    ]
    assert len(devices) == len(set(devices)) == len(course.placements[0].pods)


def test_a_pending_gang_starts_when_the_running_one_has_ended():
    cluster = simulated(
        queue("team", 8), job("first", 8, "team", seconds=100), job("second", 8, "team")
    )
    begin = cluster.clock.now()
    cluster.settle(50)
    assert running(cluster) == {"first"}
    cluster.settle(100)
    assert "second" in running(cluster)
    assert 100 <= cluster.clock.now() - begin <= 150


def test_a_preempted_gang_comes_back_and_waits():
    cluster = simulated(
        queue("team", 8), priority_class("urgent", 1000), job("low", 8, "team"), nodes=2
    )
    cluster.settle(60)
    cluster.embedded.create(job("high", 4, "team", priority="urgent"))
    course = cluster.settle(60)
    assert {eviction.gang for eviction in course.evictions} == {"default/Job/low"}
    assert "high" in running(cluster)
    assert [each.gang for each in course.last_plan.unplaced] == ["default/Job/low"]


def test_what_time_alone_allows_happens_when_it_is_due():
    cluster = simulated(
        queue("team", 8, preemptMinRuntime="5m"),
        priority_class("urgent", 1000),
        job("low", 8, "team"),
    )
    cluster.settle(60)
    cluster.embedded.create(job("high", 4, "team", priority="urgent"))
    assert not cluster.settle(120).evictions
    assert cluster.settle(310).evictions
    assert "high" in running(cluster)


def test_evictions_that_a_budget_refuses_are_not_repeated_and_do_not_count():
    low = job("low", 4, "team")
    low["spec"]["template"]["metadata"] = {"labels": {"app": "low"}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "low"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "low"}}},
    }
    cluster = simulated(queue("team", 8), low, budget)
    cluster.settle(60)
    (on,) = {p["spec"]["nodeName"] for p in cluster.embedded.api.list(PODS)}
    lost = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    cluster.embedded.api.edit(NODES, on, "", lambda node: {**node, "spec": {"taints": [lost]}})
    course = cluster.settle(60)
    assert not course.evictions
    assert course.cycles < 20


def test_a_loaded_cluster_goes_on_where_the_other_one_was():
    cluster = simulated(queue("team", 8), job("six", 6, "team"), job("four", 4, "team"))
    cluster.settle(60)
    copy = SimulatedCluster(Configuration(), start=cluster.clock.now(), seed=1)
    copy.load(cluster.documents())
    course = copy.settle(60)
    assert not course.placements
    assert not course.evictions
    assert running(copy) == running(cluster)


def test_pods_of_owners_that_were_not_read_are_no_orphans():
    cluster = simulated(queue("team", 8))
    owner = {"apiVersion": "example.com/v1", "kind": "Trainer", "name": "t", "uid": "u-1"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "worker",
            "namespace": "default",
            "uid": "p-1",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    cluster.load([pod])
    cluster.settle(60)
    assert cluster.embedded.api.find(cluster.embedded.registry.named("pods"), "worker", "default")


def test_pods_that_the_simulation_placed_have_their_numa_zones():
    """No exporter reports again: zones are free once their pods have ended, and not before."""
    cluster = simulated(queue("team", 8), nodes=0)
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ready = [{"type": "Ready", "status": "True"}]
    report = two_zones("n0", cpu="32", gpus="4")
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": ready},
    }
    pods = []
    for name, gpus in (("a", 3), ("b", 3), ("c", 2)):
        wanted = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
        resources = {"requests": wanted, "limits": wanted}
        container = {"name": "main", "image": "i", "resources": resources}
        labels = {"scheduling.kai.io/queue-name": "team"}
        spec = {"schedulerName": "kai-scheduler", "containers": [container]}
        meta = {"name": name, "namespace": "default", "labels": labels}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    cluster.load([node, report, *pods])
    assert sorted(each.gang for each in cluster.settle(60).placements) == [
        "default/Pod/a",
        "default/Pod/b",
    ]
    delete(cluster.embedded.api, PODS, "a", "default", DeleteOptions(grace_seconds=0))
    assert [each.gang for each in cluster.settle(60).placements] == ["default/Pod/c"]


def test_pods_that_wait_for_their_quota_are_admitted():
    """The scheduler's own gate is removed from what fits the quota, as it is in a real cluster."""
    first, second = job("first", 4, "team", seconds=60), job("second", 6, "team")
    for each in (first, second):
        each["spec"]["template"]["spec"]["schedulingGates"] = [{"name": ADMISSION_GATE}]
    cluster = simulated(queue("team", 8, 8), first, second)
    course = cluster.settle(30)
    assert running(cluster) == {"first"}
    assert [each.gang for each in course.last_plan.unplaced] == ["default/Job/second"]
    assert course.cycles < 20
    cluster.settle(120)
    assert "second" in running(cluster)


@pytest.mark.parametrize(
    ("true", "later", "host"), [((), 0, "n0"), (("Broken",), 0, "n1"), ((), 700, "n1")]
)
def test_devices_that_do_not_get_ready_are_avoided(true, later, host):
    nodes = [node("n0"), node("n1")]
    for each in nodes:
        each["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    given = [*nodes, QUEUE, ANY_DEVICE, gpus_of("n0"), gpus_of("n1")]
    given += [half_attached(*true), waiting()]
    cluster = SimulatedCluster(Configuration(), start=newest_time(given) + later)
    cluster.load(given)
    cluster.settle(60)
    (started,) = [each for each in cluster.documents() if each["kind"] == "Pod"]
    (claim,) = [each for each in cluster.documents() if each["kind"] == "ResourceClaim"]
    assert started["spec"]["nodeName"] == host
    assert claim["status"]["allocation"]["devices"]["results"][0]["pool"] == host


def test_pods_that_are_refused_for_ever_cause_no_cycles():
    cluster = simulated(queue("team", 8), job("refused", 4, "team", priority="absent"))
    changes = []
    cluster.embedded.store.subscribe(changes.append)
    course = cluster.settle(600)
    assert not cluster.embedded.api.list(PODS)
    assert course.cycles < 5
    # Each attempt is reported; they double up to once a minute.
    assert len(changes) < 40


def test_a_gpu_that_no_pod_shares_any_more_is_a_whole_one_again():
    kept = reservation("g")
    pods = [kept, *(share(f"half-{number}", "g") for number in range(2)), pod("urgent", priority=9)]
    kept["metadata"]["namespace"] = NAMESPACE
    for each in pods:
        each["metadata"]["uid"] = each["metadata"]["name"]
        each["spec"]["containers"][0]["image"] = "none"
        each["status"] = {"phase": "Running" if "nodeName" in each["spec"] else "Pending"}
    on = node("n0", gpus=1, conditions=[{"type": "Ready", "status": "True"}])
    cluster = SimulatedCluster(Configuration(), start=newest_time([]))
    cluster.load([QUEUE, on, *pods])
    course = cluster.settle(60)
    assert len(course.evictions) == 2
    assert set(course.starts) == {"default/Pod/urgent"}
    assert course.cycles < 10
