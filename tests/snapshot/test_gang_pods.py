"""Gangs of pods that disagree: owners of one name, pods of attempts that are over, and stages."""

from tests.dialects.feeding import Cluster, node, placed, pod

QUEUE = "scheduling.kai.io/queue-name"
GONE = {"deletionTimestamp": "2027-01-15T08:30:00Z", "deletionGracePeriodSeconds": 1800}
TASK = "volcano.sh/task-spec"
LWS = "leaderworkerset.sigs.k8s.io"


def queue(name):
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": 8},
    }


def owner(kind, name, spec, uid="", in_queue="q"):
    uid = uid or f"uid-{kind}-{name}"
    api_version, _, kind = kind.rpartition("/")
    meta = {"name": name, "namespace": "default", "uid": uid, "labels": {QUEUE: in_queue}}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def train(uid, in_queue="q", pods=2):
    return owner("batch/v1/Job", "train", {"parallelism": pods, "completions": pods}, uid, in_queue)


def ending(each):
    return {**each, "metadata": {**each["metadata"], **GONE}}


def succeeded(each):
    return {**each, "status": {"phase": "Succeeded"}}


def pods_of(job, *names, **parts):
    return [pod(name, owner=job, **parts) for name in names]


def told(cluster):
    """What is said of the gangs, beside numbers that are counted up."""
    return {
        key: (gang.queue, gang.problem, gang.tree, [each.pod.name for each in gang.members])
        for key, gang in cluster.snapshot().gangs.items()
    }


BASE = [queue("q"), queue("r"), node("n")]
OLD, NEW = train("old"), train("new", "r")


def test_a_job_created_again_is_another_gang_than_pods_of_the_former_that_still_end():
    former = pods_of(OLD, "a", "b", nodeName="n")
    cluster = Cluster(BASE, OLD, former)
    cluster.snapshot()
    cluster.remove(OLD).add(map(ending, former)).add([NEW, *pods_of(NEW, "c", "d")])
    gangs = cluster.snapshot().gangs
    assert {key: gang.queue for key, gang in gangs.items()} == {
        "default/Job/train": "r",
        "default/Job/train/old": "q",
    }
    assert [each.gang for each in cluster.plan().placements] == ["default/Job/train"]
    cluster.remove(map(ending, former))
    assert [*cluster.snapshot().gangs] == ["default/Job/train"]


def test_pods_whose_owner_is_not_known_any_more_do_not_hold_back_those_of_its_successor():
    former = pods_of(OLD, "a", "b", nodeName="n")
    cluster = Cluster(BASE, NEW, map(ending, former), pods_of(NEW, "c", "d"))
    assert placed(cluster.plan()) == {"c": "n", "d": "n"}


def test_in_whatever_order_pods_are_seen_and_whatever_changes_the_gangs_are_the_same():
    former = [ending(each) for each in pods_of(OLD, "a", nodeName="n")]
    known = told(Cluster(BASE, NEW, former, pods_of(NEW, "c", "d")))
    late = Cluster(BASE, pods_of(NEW, "d"), former)
    late.snapshot()
    late.add([NEW, *pods_of(NEW, "c")])
    assert told(late) == known


def test_pods_that_succeeded_in_the_former_gang_are_not_those_of_its_successor():
    former = pods_of(OLD, "a", "b", nodeName="n")
    cluster = Cluster(BASE, OLD, former)
    cluster.snapshot()
    cluster.add(map(succeeded, former[:1]))
    assert cluster.gang("default/Job/train").succeeded == 1
    cluster.remove(OLD).add([NEW, *pods_of(NEW, "c", "d", nodeName="n")])
    gangs = cluster.snapshot().gangs
    assert [gangs[key].succeeded for key in sorted(gangs)] == [0, 1]
    cluster.remove(former)
    cluster.remove(pods_of(NEW, "d", nodeName="n"))
    assert cluster.gang("default/Job/train").stale_since is not None


def test_owners_of_one_name_in_two_api_groups_have_a_gang_each():
    job = train("batch", pods=3)
    tasks = [{"name": "w", "replicas": 2}]
    volcano = owner("batch.volcano.sh/v1alpha1/Job", "train", {"tasks": tasks}, "volcano")
    cluster = Cluster(BASE, job, volcano, pods_of(job, "a"), pods_of(volcano, "w-0", "w-1"))
    assert placed(cluster.plan()) == {"w-0": "n", "w-1": "n"}
    assert [len(each.members) for each in cluster.snapshot().gangs.values()] == [1, 2]


def worker(index, **parts):
    labels = {f"{LWS}/group-index": "0", f"{LWS}/worker-index": str(index)}
    return pod(f"llm-0-{index}", 4, owner=SERVING, labels=labels, **parts)


TEMPLATE = {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "4"}}}]}}
SERVING = owner(
    "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
    "llm",
    {
        "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE},
    },
)


def test_a_group_starts_again_with_its_leader_while_its_former_workers_end():
    old_worker = ending(worker(1, nodeName="n"))
    cluster = Cluster(BASE, SERVING, worker(0), old_worker)
    assert [each.subgroup for each in cluster.gang("default/LeaderWorkerSet/llm/0").placeholders]
    assert placed(cluster.plan()) == {}, "no node has capacity for leader and worker"
    cluster.add(node("other"))
    assert [*placed(cluster.plan())] == ["llm-0-0"]


def test_while_others_run_pods_that_end_belong_to_their_gang():
    group = [worker(0, nodeName="n"), ending(worker(1, nodeName="n"))]
    gang = Cluster(BASE, SERVING, group).gang("default/LeaderWorkerSet/llm/0")
    assert (gang.tree.min_pods(), gang.placeholders) == (2, ())


def test_stages_that_wait_for_the_same_pods_are_all_required_once_they_exist():
    after = {"name": ["ps"]}
    tasks = [
        {"name": "ps", "replicas": 1},
        {"name": "w", "replicas": 2, "dependsOn": after},
        {"name": "eval", "replicas": 3, "dependsOn": after},
    ]
    job = owner("batch.volcano.sh/v1alpha1/Job", "train", {"tasks": tasks})
    names = {"ps": 1, "w": 2, "eval": 3}
    pods = [
        pod(f"{task}-{i}", owner=job, labels={TASK: task})
        for task, count in names.items()
        for i in range(count)
    ]
    cluster = Cluster(BASE, job, pods)
    assert cluster.gang("default/Job/train").tree.min_pods() == 6


JOB_SET_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"


def job_set(**statuses):
    """An initializer, and three nodes that wait until it has completed."""
    jobs = [
        {"name": "init", "template": {"spec": {"parallelism": 1}}},
        {
            "name": "node",
            "dependsOn": [{"name": "init", "status": "Complete"}],
            "template": {"spec": {"parallelism": 3, "completions": 3}},
        },
    ]
    made = owner("jobset.x-k8s.io/v1alpha2/JobSet", "train", {"replicatedJobs": jobs})
    listed = [{"name": name, "succeeded": count} for name, count in statuses.items()]
    return {**made, "status": {"replicatedJobsStatus": listed}}


def of_job(job, name, **parts):
    return pod(name, owner=job_set(), labels={JOB_SET_LABEL: job}, **parts)


INITIALIZED = [BASE, job_set(init=1), succeeded(of_job("init", "init", nodeName="n"))]


def test_a_pod_of_a_stage_that_is_over_takes_the_place_of_none_that_follows():
    cluster = Cluster(*INITIALIZED, of_job("node", "a"), of_job("node", "b"))
    assert placed(cluster.plan()) == {}
    cluster.add(of_job("node", "c"))
    assert len(placed(cluster.plan())) == 3


def test_a_stage_that_is_over_does_not_make_a_gang_finishing():
    cluster = Cluster(*INITIALIZED, *(of_job("node", each, nodeName="n") for each in "abc"))
    cluster.snapshot()
    cluster.remove(of_job("node", "c", nodeName="n"))
    assert cluster.gang("default/JobSet/train").stale_since is not None
    cluster.add(succeeded(of_job("node", "b", nodeName="n")))
    assert cluster.gang("default/JobSet/train").stale_since is None


def test_the_last_pod_of_a_stage_starts_again_beside_those_that_succeeded_in_it():
    ended = [succeeded(of_job("node", each, nodeName="n")) for each in "ab"]
    cluster = Cluster(*INITIALIZED, *ended, of_job("node", "c"))
    assert placed(cluster.plan()) == {"c": "n"}


def test_the_last_pod_of_an_elastic_gang_starts_again_though_the_others_were_more_than_needed():
    spec = {
        "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 4}},
    }
    job = owner("kubeflow.org/v1/PyTorchJob", "train", spec)
    worker_of = {"training.kubeflow.org/replica-type": "worker"}
    ended = [
        succeeded(pod(each, owner=job, labels=worker_of, nodeName="n")) for each in ("a", "b", "c")
    ]
    cluster = Cluster(BASE, job, ended, pod("d", owner=job, labels=worker_of))
    assert placed(cluster.plan()) == {"d": "n"}


def test_an_owner_that_is_known_goes_before_one_that_is_not():
    former = pods_of(train("a"), "a", "b", nodeName="n")
    cluster = Cluster(BASE, NEW, former, pods_of(NEW, "c", "d"))
    assert [*cluster.snapshot().gangs] == ["default/Job/train", "default/Job/train/a"]
    assert placed(cluster.plan()) == {"c": "n", "d": "n"}
