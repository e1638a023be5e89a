"""Gangs that their frameworks create in stages: the first pods start if the whole fits."""

import pytest

from kai_py.observe.explanation import Explainer
from tests.dialects.feeding import NOW, Cluster, node, placed, pod
from tests.plan.actions.test_staged import HOLD, MARKS, QUEUE, TEMPLATE, bound, with_owners

JOBSET = "jobset.sigs.k8s.io"
LWS = "leaderworkerset.sigs.k8s.io"
LATER = "Capacity is also needed for 2 pods that are not created yet."
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}


def owner(api_version, kind, spec, annotations=(), status=None):
    name = kind.lower()
    meta = {"name": name, "namespace": "default", "uid": f"uid-{kind}-{name}"}
    meta["annotations"] = dict(annotations)
    whole = {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}
    return {**whole, "status": status or {}}


def racks(**gpus):
    return [node(name, amount, {"rack": name[0]}) for name, amount in gpus.items()]


def serve(size=3):
    annotations = {f"{LWS}/exclusive-topology": "rack"}
    template = {"size": size, "workerTemplate": TEMPLATE}
    spec = {"leaderWorkerTemplate": template}
    return owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec, annotations)


def of_group(found, index, group=0):
    labels = {f"{LWS}/group-index": str(group), f"{LWS}/worker-index": str(index)}
    return pod(f"g{group}-{index}", 2, owner=found, labels=labels, annotations=MARKS)


@pytest.mark.parametrize(
    ("gpus", "rack"),
    [({"a1": 4, "b1": 6}, "b"), ({"a1": 4, "b1": 4}, ""), ({"a1": 2, "a2": 4, "b1": 4}, "a")],
)
def test_an_exclusive_group_starts_with_its_leader_in_a_domain_for_all(gpus, rack):
    found = serve()
    cluster = with_owners(Cluster(QUEUE, racks(**gpus)), found).add(of_group(found, 0))
    at = placed(cluster.plan())
    assert [node[0] for node in at.values()] == ([rack] if rack else [])


@pytest.mark.parametrize(("size", "starts"), [("2", 1), ("3", 0)])
def test_a_leader_needs_capacity_for_the_size_that_its_group_has(size, starts):
    found = serve(size=5)
    leader = of_group(found, 0)
    leader["metadata"]["annotations"] = {**MARKS, f"{LWS}/size": size}
    cluster = with_owners(Cluster(QUEUE, racks(a1=4)), found).add(leader)
    assert len(placed(cluster.plan())) == starts


def test_the_domain_of_an_exclusive_group_is_held_until_its_workers_come():
    found = serve()
    rival = pod("rival", 3, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, racks(a1=6, b1=2)), found)
    cluster.add([bound(of_group(found, 0), "a1"), rival])
    plan = cluster.plan()
    assert placed(plan) == {}
    assert [(hold.gang, hold.is_over) for hold in plan.holds] == [
        ("default/LeaderWorkerSet/leaderworkerset/0", False)
    ]
    assert plan.holds[0].message == (
        "Capacity for 2 pods of the gang is held until its framework creates them, for 300 s from "
        "its start"
    )
    snapshot = cluster.snapshot()
    explained = Explainer(snapshot, plan).explain("default/LeaderWorkerSet/leaderworkerset/0")
    assert (explained.state, explained.message) == ("Running", plan.holds[0].message)
    late = cluster.plan(NOW + HOLD)
    assert placed(late) == {"rival": "a1"}
    assert late.holds[0].is_over
    assert late.holds[0].message.endswith("its framework has not created them within 300 s")
    cluster.add([of_group(found, 1), of_group(found, 2)])
    joined = cluster.plan()
    assert placed(joined) == {"g0-1": "a1", "g0-2": "a1"}
    assert not joined.holds


@pytest.mark.parametrize(
    ("size", "queue", "rival"),
    [
        (3, "team", {}),
        (4, "team", {"rival": "b1"}),
        (7, "team", {"rival": "b1"}),
        (3, "none", {"rival": "b1"}),
    ],
)
def test_no_more_is_held_than_the_queue_may_have_whatever_the_workload_becomes(size, queue, rival):
    """Otherwise a tenant whose leader runs would keep all nodes from others by an edit."""
    limited = {**QUEUE, "spec": {"deservedGPUs": 6, "maxGPUs": 6}}
    other = {**QUEUE, "metadata": {"name": "other"}}
    cluster = with_owners(Cluster(limited, other, racks(b1=16)), serve(size))
    outsider = pod("rival", 12, annotations={"scheduling.kai.io/queue-name": "other"})
    leader = of_group(serve(size), 0)
    leader["metadata"]["annotations"] = {"scheduling.kai.io/queue-name": queue}
    cluster.add([bound(leader, "b1"), outsider])
    assert placed(cluster.plan()) == rival


def job_set(*jobs, annotations=(), status=None, **spec):
    spec = {"replicatedJobs": list(jobs), **spec}
    return owner("jobset.x-k8s.io/v1alpha2", "JobSet", spec, annotations, status)


def replicated(name, parallelism, replicas=1, **more):
    template = {"spec": {"parallelism": parallelism, "completions": parallelism}}
    template["spec"]["template"] = TEMPLATE
    return {"name": name, "replicas": replicas, "template": template, **more}


def of_job(found, name, job=0, index=0, **parts):
    labels = {
        f"{JOBSET}/replicatedjob-name": name,
        f"{JOBSET}/job-index": str(job),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return pod(f"{name}-{job}-{index}", 2, owner=found, labels=labels, annotations=MARKS, **parts)


def job_of(job_set, name, index, **status):
    """A Job of four pods."""
    of = owner("batch/v1", "Job", {"parallelism": 4, "completions": 4}, (), status)
    meta = {"name": f"jobset-{name}-{index}", "uid": f"uid-{name}-{index}"}
    reference = {"apiVersion": job_set["apiVersion"], "kind": "JobSet", "controller": True}
    reference |= {each: job_set["metadata"][each] for each in ("name", "uid")}
    return of | {"metadata": of["metadata"] | meta | {"ownerReferences": [reference]}}


@pytest.mark.parametrize(("succeeded", "starts"), [(0, []), (1, []), (2, ["w-0-2", "w-0-3"])])
def test_pods_of_a_job_start_beside_those_that_succeeded_and_are_gone(succeeded, starts):
    found = job_set(replicated("w", 4))
    job = job_of(found, "w", 0, succeeded=succeeded)
    cluster = with_owners(Cluster(QUEUE, node("n", 8)), found, job)
    cluster.add([of_job(job, "w", index=index) for index in (2, 3)])
    assert sorted(placed(cluster.plan())) == starts


def test_what_a_job_has_completed_stands_for_no_pod_of_another_job():
    found = job_set(replicated("w", 4, replicas=2))
    jobs = [job_of(found, "w", 0, succeeded=4), job_of(found, "w", 1)]
    cluster = with_owners(Cluster(QUEUE, node("n", 40)), found, *jobs)
    cluster.add([of_job(jobs[1], "w", 1, index) for index in range(3)])
    assert placed(cluster.plan()) == {}


def test_leaders_of_exclusive_jobs_start_when_each_job_has_a_domain():
    found = job_set(replicated("w", 2, replicas=2), annotations=EXCLUSIVE)
    leaders = [of_job(found, "w", job) for job in range(2)]
    small = with_owners(Cluster(QUEUE, racks(a1=4, b1=2)), found).add(leaders)
    assert placed(small.plan()) == {}
    assert small.plan().unplaced[0].message.endswith(LATER)
    cluster = with_owners(Cluster(QUEUE, racks(a1=4, b1=4)), found).add(leaders)
    at = placed(cluster.plan())
    assert sorted(at.values()) == ["a1", "b1"]
    rival = pod("rival", 2, annotations=MARKS)
    cluster.add([*(bound(each, at[each["metadata"]["name"]]) for each in leaders), rival])
    assert placed(cluster.plan()) == {}, "the followers' capacity is held"
    cluster.add([of_job(found, "w", job, 1) for job in range(2)])
    assert placed(cluster.plan()) == {"w-0-1": at["w-0-0"], "w-1-1": at["w-1-0"]}


def test_a_message_names_the_pods_of_later_stages_in_a_sentence_of_its_own():
    found = job_set(replicated("w", 2, replicas=2), annotations=EXCLUSIVE)
    leaders = [of_job(found, "w", job) for job in range(2)]
    cluster = with_owners(Cluster(QUEUE, racks(a1=4, b1=2, c1=2)), found).add(leaders)
    message = cluster.plan().unplaced[0].message
    assert message.endswith(f"no domain has capacity for 2 pods. {LATER}")


def test_with_the_node_selector_strategy_no_pod_of_a_job_set_waits_for_another():
    marks = EXCLUSIVE | {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
    found = job_set(replicated("w", 2), annotations=marks)
    cluster = with_owners(Cluster(QUEUE, racks(a1=4)), found).add(of_job(found, "w"))
    assert placed(cluster.plan()) == {}
    assert cluster.gang("default/JobSet/jobset").tree.min_pods() == 2


@pytest.mark.parametrize("order", ["InOrder", "dependsOn"])
@pytest.mark.parametrize(("gpus", "starts"), [(4, False), (6, True)])
def test_a_replicated_job_starts_with_capacity_for_those_that_follow_it(order, gpus, starts):
    needs = {"dependsOn": [{"name": "first", "status": "Ready"}]} if order == "dependsOn" else {}
    policy = {"startupPolicy": {"startupPolicyOrder": order}} if order == "InOrder" else {}
    found = job_set(replicated("first", 1), replicated("second", 2, **needs), **policy)
    cluster = with_owners(Cluster(QUEUE, node("n", gpus)), found).add(of_job(found, "first"))
    assert placed(cluster.plan()) == ({"first-0-0": "n"} if starts else {})


@pytest.mark.parametrize(("gpus", "starts"), [(4, False), (6, True)])
def test_a_task_of_volcano_starts_with_capacity_for_those_that_depend_on_it(gpus, starts):
    tasks = [
        {"name": "master", "replicas": 1, "template": TEMPLATE},
        {
            "name": "worker",
            "replicas": 2,
            "template": TEMPLATE,
            "dependsOn": {"name": ["master"]},
        },
    ]
    found = owner("batch.volcano.sh/v1alpha1", "Job", {"queue": "team", "tasks": tasks})

    def of_task(name, index=0):
        labels = {"volcano.sh/task-spec": name, "volcano.sh/task-index": str(index)}
        return pod(f"{name}-{index}", 2, owner=found, labels=labels)

    master = of_task("master")
    cluster = with_owners(Cluster(QUEUE, node("n", gpus)), found).add(master)
    assert placed(cluster.plan()) == ({"master-0": "n"} if starts else {})
    if starts:
        cluster.add([bound(master, "n"), pod("rival", 2, annotations=MARKS)])
        assert placed(cluster.plan()) == {}, "the workers' capacity is held"
        cluster.add([of_task("worker", index) for index in range(2)])
        assert placed(cluster.plan()) == {"worker-0": "n", "worker-1": "n"}


def test_nothing_is_kept_for_a_replicated_job_that_follows_when_others_have_ended():
    needs = {"dependsOn": [{"name": "first", "status": "Complete"}]}
    found = job_set(replicated("first", 1), replicated("second", 2, **needs))
    cluster = with_owners(Cluster(QUEUE, node("n", 4)), found).add(of_job(found, "first"))
    assert placed(cluster.plan()) == {"first-0-0": "n"}


@pytest.mark.parametrize(("gpus", "starts"), [(3, 0), (4, 1)])
def test_workers_of_an_mpi_job_start_with_capacity_for_their_launcher(gpus, starts):
    replicas = {"Launcher": {"replicas": 1, "template": TEMPLATE}, "Worker": {"replicas": 1}}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": replicas}
    found = owner("kubeflow.org/v2beta1", "MPIJob", spec)
    labels = {"training.kubeflow.org/job-role": "worker"}
    worker = pod("worker", 2, owner=found, labels=labels, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, node("n", gpus)), found).add(worker)
    assert len(placed(cluster.plan())) == starts


def test_a_pod_that_counts_for_no_subgroup_is_a_condition_of_all():
    found = owner("kubeflow.org/v1", "MPIJob", {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {}}})
    roles = [{"training.kubeflow.org/job-role": role} for role in ("observer", "worker")]
    pods = [pod(f"p-{i}", 1, owner=found, labels=roles[i], annotations=MARKS) for i in range(2)]
    (unplaced,) = with_owners(Cluster(QUEUE, node("n", 4)), found).add(pods).plan().unplaced
    assert len(unplaced.pods) == 2
    assert (unplaced.stage, unplaced.message) == (
        "Invalid",
        "minMember is 2; existing pods: 2; pod default/p-0: its labels name subgroup "
        '"observer", which its gang does not have; it has launcher, worker.',
    )


OF_FIELDS = {
    "executor": {
        "instances": 3,
        "memory": "512m",
        "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
    }
}
OF_SETTINGS = {
    "sparkConf": {
        "spark.executor.instances": "3",
        "spark.executor.memory": "512m",
        "spark.executor.resource.gpu.amount": "1",
        "spark.executor.resource.gpu.vendor": "nvidia.com",
    }
}


@pytest.mark.parametrize("spec", [OF_FIELDS, OF_SETTINGS])
@pytest.mark.parametrize(("gpus", "starts"), [(2, 0), (3, 1)])
def test_a_driver_of_spark_starts_with_capacity_for_its_executors(spec, gpus, starts):
    found = owner("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec)
    driver = pod("driver", 0, owner=found, labels={"spark-role": "driver"}, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, node("n", gpus)), found).add(driver)
    assert len(placed(cluster.plan())) == starts


@pytest.mark.parametrize(
    ("settings", "placed_on"),
    [
        ({"spark.executor.memory": "2t"}, []),
        ({"spark.executor.memoryOverhead": "2t"}, []),
        ({"spark.executor.cores": "1000"}, []),
        ({"spark.executor.cores": "1000", "spark.kubernetes.executor.request.cores": "1"}, ["n"]),
    ],
)
def test_an_executor_of_spark_requests_what_the_settings_say(settings, placed_on):
    found = owner("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"sparkConf": settings})
    driver = pod("driver", 0, owner=found, labels={"spark-role": "driver"}, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, node("n", 1)), found).add(driver)
    assert list(placed(cluster.plan()).values()) == placed_on


def test_a_size_of_memory_that_spark_does_not_know_is_reported():
    spec = {"executor": {"memory": "lots"}}
    found = owner("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec)
    driver = pod("driver", 0, owner=found, labels={"spark-role": "driver"}, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, node("n", 1)), found).add(driver)
    assert "spec.executor.memory must be a size" in cluster.plan().unplaced[0].message


@pytest.mark.parametrize("memory", ["1Gi", "1024m", "1 gb", "1073741824"])
def test_memory_of_a_task_manager_is_read_as_flink_reads_it(memory):
    manager = {"resource": {"memory": memory, "cpu": 1}}
    spec = {"job": {"parallelism": 1}, "taskManager": manager}
    found = owner("flink.apache.org/v1beta1", "FlinkDeployment", spec)
    labels = {"component": "jobmanager"}
    first = pod("first", 0, owner=found, labels=labels, annotations=MARKS)
    cluster = with_owners(Cluster(QUEUE, node("n", 1)), found).add(first)
    assert placed(cluster.plan()) == {"first": "n"}


@pytest.mark.parametrize("parallelism", [10_002, 2**31 - 1])
def test_more_pods_to_come_than_can_have_placeholders_are_refused(parallelism):
    found = job_set(replicated("w", parallelism), annotations=EXCLUSIVE)
    cluster = with_owners(Cluster(QUEUE, racks(a1=4)), found).add(of_job(found, "w"))
    assert cluster.plan().unplaced[0].message == (
        "JobSet default/jobset: it creates more than 10000 pods once others run, which is the "
        "maximum"
    )
