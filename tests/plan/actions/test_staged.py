"""Gangs whose pods come in stages: a leader starts if its group fits; its capacity is kept."""

import pytest

from tests.dialects.feeding import NOW, Cluster, node, placed, pod

QUEUE = {
    "apiVersion": "scheduling.kai.io/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"deservedGPUs": 16, "maxGPUs": 16},
}
MARKS = {"scheduling.kai.io/queue-name": "team"}
LWS = "leaderworkerset.x-k8s.io"
TEMPLATE = {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "2"}}}]}}
HOLD = 300.0


def leader_worker_set(name="serve", size=3, template=TEMPLATE, startup="LeaderReady"):
    return {
        "apiVersion": f"{LWS}/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-LeaderWorkerSet-{name}"},
        "spec": {
            "startupPolicy": startup,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": template},
        },
    }


def ray_job(**spec):
    group = {"groupName": "w", "replicas": 1, "minReplicas": 1}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "job", "namespace": "default", "uid": "uid-RayJob-job"},
        "spec": {"rayClusterSpec": {"workerGroupSpecs": [group]}, **spec},
    }


def with_owners(cluster, *owners):
    """The cluster, told of objects of kinds that are followed on demand."""
    return cluster.add(owners)


def member(owner, index, gpus, group=0, **parts):
    labels = {
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
    }
    name = f"{owner['metadata']['name']}-{group}-{index}"
    return pod(name, gpus, owner=owner, labels=labels, annotations=MARKS, **parts)


def bound(document, on, since=NOW):
    """The pod on a node since a time."""
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": f"2027-01-15T{int(since - NOW) // 3600 + 8:02}:00:00Z",
    }
    status = {"phase": "Running", "conditions": [condition]}
    return {**document, "spec": {**document["spec"], "nodeName": on}, "status": status}


SERVE = leader_worker_set()
LEADER = member(SERVE, 0, 1)


@pytest.mark.parametrize(("gpus", "starts"), [(4, False), (5, True)])
def test_a_leader_starts_when_there_is_capacity_for_its_workers(gpus, starts):
    cluster = with_owners(Cluster(QUEUE, node("n", gpus)), SERVE).add(LEADER)
    plan = cluster.plan()
    assert placed(plan) == ({"serve-0-0": "n"} if starts else {})
    if not starts:
        message = plan.unplaced[0].message
        assert message.endswith("Capacity is also needed for 2 pods that are not created yet.")
        assert [each.name for each in plan.unplaced[0].pods] == ["serve-0-0"]


def test_a_leader_whose_group_is_more_than_its_queue_may_have_waits():
    small = {**QUEUE, "spec": {"deservedGPUs": 4, "maxGPUs": 4}}
    cluster = with_owners(Cluster(small, node("n", 8)), SERVE).add(LEADER)
    assert [each.stage.value for each in cluster.plan().unplaced] == ["QueueMax"]


def test_two_groups_do_not_start_in_the_capacity_for_one():
    second = member(SERVE, 0, 1, group=1)
    cluster = with_owners(Cluster(QUEUE, node("n", 8)), SERVE).add([LEADER, second])
    assert len(placed(cluster.plan())) == 1


def test_the_capacity_of_the_workers_is_kept_until_they_come():
    rival = pod("rival", 4, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, node("n", 5)), SERVE).add([bound(LEADER, "n"), rival])
    assert placed(cluster.plan()) == {}
    cluster.add(member(SERVE, 1, 2))
    assert placed(cluster.plan()) == {}, "one of two workers has come: its capacity is kept"
    cluster.add(member(SERVE, 2, 2))
    assert sorted(placed(cluster.plan())) == ["serve-0-1", "serve-0-2"]


def test_the_capacity_of_workers_that_never_come_is_given_up():
    rival = pod("rival", 4, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, node("n", 5)), SERVE).add([bound(LEADER, "n"), rival])
    assert placed(cluster.plan(NOW + HOLD - 1)) == {}
    assert placed(cluster.plan(NOW + HOLD)) == {"rival": "n"}
    snapshot = cluster.snapshot(NOW + 1)
    assert cluster.planner.next_deadline(snapshot) == NOW + HOLD


def test_a_leader_takes_capacity_from_others_only_if_its_group_fits():
    def world(victims):
        cluster = with_owners(Cluster(QUEUE, node("n", 5)), SERVE).add(
            member(SERVE, 0, 1, priority=100)
        )
        return cluster.add(
            [
                pod(f"low-{i}", 1, annotations=MARKS, nodeName="n", priority=priority)
                for i, priority in enumerate(victims)
            ]
        ).plan()

    assert len(world([0, 0, 0, 0, 0]).evictions) == 5
    assert world([0, 0, 0, 0, 200]).evictions == ()


def test_a_job_of_ray_starts_with_capacity_for_its_submitter():
    def pods(owner):
        groups = {"head": "headgroup", "worker": "w"}
        return [
            pod(name, 1, owner=owner, labels={"ray.io/group": group}, annotations=MARKS)
            for name, group in groups.items()
        ]

    template = {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}
    waits = ray_job(submitterPodTemplate=template)
    for owner, count in ((ray_job(), 2), (waits, 0), (ray_job(submissionMode="HTTPMode"), 2)):
        cluster = with_owners(Cluster(QUEUE, node("n", 2)), owner).add(pods(owner))
        assert len(placed(cluster.plan())) == count


def test_a_template_that_makes_no_sense_is_told():
    broken = leader_worker_set(template={"spec": {"containers": "none"}})
    cluster = with_owners(Cluster(QUEUE, node("n", 8)), broken).add(member(broken, 0, 1))
    assert "spec.leaderWorkerTemplate.workerTemplate: " in cluster.plan().unplaced[0].message


def test_workers_with_device_claims_stand_in_by_the_template_of_their_claims():
    wants = {
        "spec": {
            "containers": [{}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        }
    }
    owner = leader_worker_set(size=3, template=wants)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claims = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {},
    }

    def devices(count):
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "n-gpus"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{i}"} for i in range(count)],
            },
        }

    for count, starts in ((1, False), (2, True)):
        cluster = with_owners(
            Cluster(QUEUE, node("n", 0), device_class, claims, devices(count)), owner
        ).add(member(owner, 0, 0))
        assert bool(placed(cluster.plan())) is starts
