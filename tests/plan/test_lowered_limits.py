"""A limit of failed pods that is lowered while a workload runs protects no more than before."""

import copy

import pytest

from kai_py.grouping.admitted import ADMITTED_KEY, read_terms
from tests.dialects.feeding import Cluster, node, pod
from tests.plan.test_survival import MIN_AVAILABLE, QUEUE, TEAMS, job, lost, urgent


def meta(pods):
    annotations = {QUEUE: "team", MIN_AVAILABLE: str(pods)}
    return {"name": "top", "namespace": "default", "uid": "uid-top", "annotations": annotations}


def torch(most, failed=0, policy="OnFailure", pods=2):
    replicas = {"Worker": {"replicas": pods, "restartPolicy": policy}}
    spec = {"pytorchReplicaSpecs": replicas}
    if most is not None:
        spec["runPolicy"] = {"backoffLimit": most}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": meta(pods),
        "spec": spec,
        "status": {"replicaStatuses": {"Worker": {"failed": failed}}},
    }


def volcano(most, failed=0, action="RestartJob", pods=2):
    spec = {"policies": [{"event": "PodEvicted", "action": action}], "minAvailable": pods}
    if most is not None:
        spec["maxRetry"] = most
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": meta(pods),
        "spec": {**spec, "queue": "team"},
        "status": {"retryCount": failed},
    }


LABELS = {"training.kubeflow.org/replica-type": "worker"}


class Running:
    """Two pods of a workload on a node, with the records that a scheduler wrote."""

    def __init__(self, top, *, recorded=True):
        self.cluster = Cluster(TEAMS, node("n", 2))
        self.edit(top)
        self.top, self.recorded, self.pods = top, recorded, []
        pods = [pod(f"w-{n}", owner=top, labels=LABELS) for n in range(2)]
        self.cluster.add(copy.deepcopy(pods))
        plan = self.cluster.plan()
        [placement] = plan.placements
        terms = {each.pod.name: placement.terms(each) for each in placement.pods}
        for each in pods:
            each["spec"]["nodeName"] = "n"
            if recorded:
                text = terms[each["metadata"]["name"]].text()
                each["metadata"]["annotations"] = {ADMITTED_KEY: text}
        self.pods = pods
        self.cluster.add(copy.deepcopy(pods))

    def edit(self, top):
        self.cluster.add(top)

    def restarted(self, top):
        """The cluster as a scheduler sees it that starts now."""
        self.cluster = Cluster(TEAMS, node("n", 2))
        self.edit(top)
        self.cluster.add(copy.deepcopy(self.pods))

    def evicted(self):
        self.cluster.add([urgent(1)])
        return lost(self.cluster.plan())


BOTH = ([], ["w-0", "w-1"])
NONE = ([], [])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("of", [torch, volcano])
@pytest.mark.parametrize(
    ("before", "after", "evicted"),
    [
        ((5,), (0,), BOTH),
        ((5,), (1, 1), BOTH),
        ((5, 1), (0, 3), BOTH),
        ((5,), (0, 4), NONE),
        ((5,), (5, 4), NONE),
        ((1,), (0,), NONE),
        ((1,), (9,), BOTH),
        ((0,), (0,), NONE),
    ],
    ids=str,
)
def test_the_limit_as_admitted_decides(of, before, after, evicted, restarts):
    running = Running(of(*before))
    running.cluster.snapshot()
    running.edit(of(*after))
    if restarts:
        running.restarted(of(*after))
    assert running.evicted() == evicted


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "evicted"),
    [
        (torch(None), torch(0), BOTH),
        (torch(5), torch(5, policy="Never"), BOTH),
        (torch(5, policy="Never"), torch(5, policy="Never"), NONE),
        (torch(5, policy="Never"), torch(0, policy="Never"), NONE),
        (volcano(5), volcano(5, action="AbortJob"), BOTH),
        (volcano(5, action="AbortJob"), volcano(5), BOTH),
        (volcano(5, action="AbortJob"), volcano(1), NONE),
    ],
    ids=range(7),
)
def test_so_does_the_policy(before, after, evicted, restarts):
    running = Running(before)
    running.cluster.snapshot()
    running.edit(after)
    if restarts:
        running.restarted(after)
    assert running.evicted() == evicted


def test_a_job_that_cannot_be_suspended_keeps_its_limit(monkeypatch):
    monkeypatch.setattr("kai_py.snapshot.admitted_gangs.MAX_PLACEHOLDERS", 1)
    before = job("low", 2, backoffLimit=4)
    cluster = Cluster(TEAMS, node("n", 2), before)
    pods = [pod(f"low-{n}", owner=before) for n in range(2)]
    cluster.add(copy.deepcopy(pods))
    [placement] = cluster.plan().placements
    for each, placed in zip(pods, placement.pods, strict=True):
        each["spec"]["nodeName"] = "n"
        each["metadata"]["annotations"] = {ADMITTED_KEY: placement.terms(placed).text()}
    assert list(read_terms(pods[0]["metadata"]["annotations"]).limits.values()) == [4]
    after = job("low", 2, backoffLimit=0)
    assert lost(Cluster(TEAMS, node("n", 2), after, pods, urgent(1)).plan()) == (
        [],
        ["low-0", "low-1"],
    )
    failed = job("low", 2, backoffLimit=0, failed=3)
    assert lost(Cluster(TEAMS, node("n", 2), failed, pods, urgent(1)).plan()) == NONE


def job_set(restarts, most=2):
    rules = [{"action": "RestartJob"}]
    template = {"spec": {"parallelism": 2}}
    counted = {"name": "w", "jobRestartsCountTowardsMax": [restarts, 0]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta(4),
        "spec": {
            "failurePolicy": {"maxRestarts": most, "rules": rules},
            "replicatedJobs": [{"name": "w", "replicas": 2, "template": template}],
        },
        "status": {"replicatedJobsStatus": [counted]},
    }


def pods_of_job(index, restarts=0):
    """A Job of a JobSet and its two pods; restarted by itself, it is another object."""
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True}
    reference |= {"name": "top", "uid": "uid-top"}
    owner = job(f"top-w-{index}", 2, owner=reference)
    owner["metadata"]["uid"] = f"job-{index}-{restarts}"
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "w"}
    labels["jobset.sigs.k8s.io/job-index"] = str(index)
    names = [f"{index}-{restarts}-{number}" for number in range(2)]
    return owner, [pod(name, owner=owner, labels=labels) for name in names]


def start(cluster, pods):
    """Bind what the plan places, with its records."""
    cluster.add(copy.deepcopy(pods))
    [placement] = cluster.plan().placements
    terms = {each.pod.name: placement.terms(each) for each in placement.pods}
    for each in pods:
        each["spec"]["nodeName"] = "n"
        text = terms[each["metadata"]["name"]].text()
        each["metadata"]["annotations"] = {ADMITTED_KEY: text}
    cluster.add(copy.deepcopy(pods))


@pytest.mark.parametrize(
    ("most", "after", "evicted"),
    [(2, job_set(0), 4), (2, job_set(1), 0), (2, job_set(0, most=1), 4), (1, job_set(1, 9), 4)],
)
def test_a_job_of_a_job_set_that_was_restarted_alone(most, after, evicted):
    """Each of two Jobs needs a restart; the pods of one of them were admitted before the other's.

    A limit that its tenant has lowered still counts as admitted, one that was raised as it is.
    """
    cluster = Cluster(TEAMS, node("n", 4))
    cluster.add(job_set(0, most))
    jobs = [pods_of_job(index) for index in range(2)]
    cluster.add([owner for owner, _ in jobs])
    start(cluster, [each for _, pods in jobs for each in pods])
    cluster.add(after)
    if after["status"]["replicatedJobsStatus"][0]["jobRestartsCountTowardsMax"][0]:
        cluster.remove(jobs[0][1])
        again, pods = pods_of_job(0, restarts=1)
        cluster.add(again)
        start(cluster, pods)
    cluster.add([urgent(4)])
    suspended, lost_pods = lost(cluster.plan())
    assert (suspended, len(lost_pods)) == ([], evicted)


def test_pods_without_a_record_count_as_they_were_first_seen():
    running = Running(torch(5), recorded=False)
    running.cluster.snapshot()
    running.edit(torch(0))
    assert running.evicted() == BOTH
    running.restarted(torch(0))
    assert running.evicted() == NONE
