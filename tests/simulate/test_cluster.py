from kai_py.config import Configuration
from kai_py.simulate.cluster import SimulatedCluster
from tests.simulate.clusters import job, priority_class, queue, running, simulated


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


def test_who_waits_starts_when_who_runs_has_ended():
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
