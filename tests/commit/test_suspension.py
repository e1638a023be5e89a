"""Jobs are suspended in place of evicting their pods, and resumed; writes may fail."""

from types import SimpleNamespace

import pytest

from kai_py.api.records.job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.api.references import PodRef
from kai_py.commit import committer
from kai_py.commit.eviction import find_long_graces, shorten_grace
from kai_py.commit.maintenance import Maintenance
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import JOBS, PODS
from kai_py.plan.plan import Plan
from kai_py.watch.kinds import PODS as PODS_KIND
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import (
    JOB,
    NAMESPACE,
    NO_ROLE,
    SCHEDULER,
    SETTINGS,
    carry_out,
    count,
    eviction_of,
    gang_of,
    placed,
    refuse,
)
from tests.support.records import replace


@pytest.fixture
def assume_cache():
    return RecordingAssumeCache()


@pytest.fixture
def job(cluster):
    """The owner of the gang, as it is in the cluster."""
    pod = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    body = {"metadata": {"name": JOB.name}, "spec": {"parallelism": 2, "template": pod}}
    made = cluster.api.create(JOBS, body, NAMESPACE)
    return replace(JOB, uid=made["metadata"]["uid"])


CONTAINER = {"name": "main", "image": "i"}


def stored(cluster):
    found = cluster.api.find(JOBS, JOB.name, NAMESPACE)
    return bool(found["spec"].get("suspend")), found["metadata"].get("annotations") or {}


def evictions(cluster, owner, **spec):
    spec = {"nodeName": "node-a", "schedulerName": SCHEDULER, **spec}
    pods = [cluster.add_pod(f"train-{i}", **spec) for i in range(2)]
    return tuple(replace(eviction_of(pod), owner=owner, suspend=True) for pod in pods)


async def test_a_job_is_suspended_once_and_its_pods_say_why(cluster, assume_cache, job):
    leaving = evictions(cluster, job)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=leaving))
    suspended, marks = stored(cluster)
    assert suspended
    assert marks == {SUSPENDED_BY_KEY: SCHEDULER, SUSPENDED_AT_KEY: "1970-01-01T00:00:00Z"}
    assert cluster.made("patch", "Job") == 1
    assert cluster.made("create", "Pod/eviction") == 0
    for each in leaving:
        (target,) = cluster.pod(each.pod.name).status.conditions
        assert (target.type, target.message) == ("DisruptionTarget", each.reason)
    assert assume_cache.leaving == {each.pod.uid for each in leaving}
    assert count(cluster.metrics.evictions, "preempt", "evicted") == 2


@pytest.mark.parametrize(("grace", "left"), [(30, 30), (1800, 1800), (2**31, 1800)])
async def test_the_pods_of_a_suspended_job_have_no_longer_than_those_evicted(
    cluster, assume_cache, job, grace, left
):
    leaving = evictions(cluster, job, terminationGracePeriodSeconds=grace)
    deleted = cluster.add_pod(
        "tenant", nodeName="node-a", schedulerName=SCHEDULER, terminationGracePeriodSeconds=grace
    )
    await carry_out(cluster.committer(assume_cache), Plan(evictions=leaving))
    for ref in (*(each.pod for each in leaving), deleted):
        delete(cluster.api, PODS, ref.name, NAMESPACE)
    for _ in range(2):
        for pod in list(find_long_graces(cluster.pods(), {SCHEDULER}, 1800.0)):
            await shorten_grace(cluster.access(), pod, 1800.0)
    for each in leaving:
        pod = cluster.pod(each.pod.name)
        assert pod.metadata.deletion_grace_period_seconds == left
        (target,) = pod.status.conditions
        assert (target.reason, target.message) == ("PreemptionByScheduler", each.reason)
    assert cluster.pod("tenant").metadata.deletion_grace_period_seconds == grace
    assert cluster.made("create", "Pod/eviction") == (2 if grace > left else 0)


class EnoughPasses(Exception):
    """The mirror was asked as often as the test wants."""


async def shortening_passes(cluster, count):
    """Run the pass of the maintenance ``count`` times, on the pods as they are at each."""
    views = iter(range(count))

    def pods(kind):
        if next(views, None) is None:
            raise EnoughPasses
        return {} if kind is not PODS_KIND else dict(enumerate(cluster.pods()))

    settings = replace(SETTINGS, max_grace=1800.0, repair_interval=0.0)
    dependencies = SimpleNamespace(
        settings=settings,
        access=lambda _concurrency: cluster.access(),
        mirror=SimpleNamespace(objects=pods),
        claiming_groups=None,
    )
    maintenance = Maintenance(dependencies, None, None, None, None)
    with pytest.raises(EnoughPasses):
        await dict(maintenance.background())["grace periods"]()


async def test_each_pass_shortens_what_is_too_long_and_an_error_waits_for_the_next(
    cluster, assume_cache, job
):
    leaving = evictions(cluster, job, terminationGracePeriodSeconds=2**31)
    cluster.add_pod("tenant", nodeName="node-a", schedulerName=SCHEDULER)
    stranger = cluster.add_pod("other", nodeName="node-a", schedulerName="another")
    await carry_out(cluster.committer(assume_cache), Plan(evictions=leaving))
    await shortening_passes(cluster, 2)
    assert cluster.made("create", "Pod/eviction") == 0, "the Job controller has not deleted them"
    for name in (*(each.pod.name for each in leaving), "tenant", stranger.name):
        delete(cluster.api, PODS, name, NAMESPACE)

    def graces():
        found = (cluster.pod(each.pod.name) for each in leaving)
        return sorted(each.metadata.deletion_grace_period_seconds for each in found)

    cluster.fail_once("create", "Pod/eviction", refuse(500))
    cluster.fail_once("create", "Pod/eviction", refuse(404))
    await shortening_passes(cluster, 1)
    assert graces() != [1800, 1800]
    await shortening_passes(cluster, 3)
    assert graces() == [1800, 1800]
    made = cluster.made("create", "Pod/eviction")
    await shortening_passes(cluster, 3)
    assert cluster.made("create", "Pod/eviction") == made, "nothing is shortened twice"
    assert {
        cluster.pod(each).metadata.deletion_grace_period_seconds for each in ("tenant", "other")
    } == {30}


async def test_pods_stay_whose_job_is_not_suspended(cluster, assume_cache, job):
    cluster.fail_once("patch", "Job", refuse(500))
    leaving = evictions(cluster, job)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=leaving))
    assert stored(cluster) == (False, {})
    assert assume_cache.leaving == set()
    assert cluster.pod(leaving[0].pod.name).status.conditions == ()
    assert cluster.wakes, "it is tried again"


async def test_an_error_of_ours_leaves_no_pod_counted_as_leaving(
    cluster, assume_cache, job, monkeypatch
):
    async def fail(*_given):
        raise RecursionError("too deep")

    monkeypatch.setattr(committer, "suspend_job", fail)
    leaving = evictions(cluster, job)
    carried = cluster.committer(assume_cache)
    await carry_out(carried, Plan(evictions=leaving))
    assert assume_cache.leaving == set()
    assert not carried._evicting
    assert count(cluster.metrics.evictions, "preempt", "failed") == 2


async def test_a_job_that_may_not_be_suspended_is_told_of_once(cluster, assume_cache, job, caplog):
    cluster.fail_once("patch", "Job", refuse(403, "Forbidden", message=NO_ROLE))
    leaving = evictions(cluster, job)
    await carry_out(cluster.committer(assume_cache), Plan(evictions=leaving))
    (logged,) = caplog.messages
    assert logged.startswith("Job team-a/train: not suspended: PATCH ")
    assert count(cluster.metrics.evictions, "preempt", "failed") == 2


async def test_a_job_that_is_gone_needs_no_suspension(cluster, assume_cache, job, caplog):
    leaving = evictions(cluster, job)
    delete(cluster.api, JOBS, JOB.name, NAMESPACE, DeleteOptions(policy="Background"))
    await carry_out(cluster.committer(assume_cache), Plan(evictions=leaving))
    assert caplog.messages == []
    assert count(cluster.metrics.evictions, "preempt", "deleted") == 2


async def test_another_job_of_that_name_is_left_alone(cluster, assume_cache, job):
    leaving = evictions(cluster, replace(job, uid="another"))
    await carry_out(cluster.committer(assume_cache), Plan(evictions=leaving))
    assert stored(cluster) == (False, {})


def resumption(owner):
    stand_ins = (PodRef(NAMESPACE, f"train-{i}", f"job/suspended/{i}") for i in range(2))
    gang = gang_of(*(placed(each, "node-a") for each in stand_ins))
    return replace(gang, owner=owner, resume=True)


async def test_a_job_is_resumed_and_nothing_is_bound(cluster, assume_cache, job):
    committer = cluster.committer(assume_cache)
    await carry_out(committer, Plan(evictions=evictions(cluster, job)))
    await carry_out(committer, Plan(placements=(resumption(job),)))
    assert stored(cluster) == (False, {})
    assert cluster.made("create", "Pod/binding") == 0
    assert assume_cache.forgotten == [], "the capacity is kept until the stand-ins go"
    assert committer.pods_in_flight == frozenset()


async def test_the_capacity_of_a_job_that_is_not_resumed_is_given_up(cluster, assume_cache, job):
    cluster.fail_once("patch", "Job", refuse(500))
    await carry_out(cluster.committer(assume_cache), Plan(placements=(resumption(job),)))
    assert assume_cache.forgotten == ["job/suspended/0", "job/suspended/1"]
    assert cluster.wakes
