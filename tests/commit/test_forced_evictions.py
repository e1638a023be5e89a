"""Evictions that no plan decides make no workload fail."""

import pytest

from kai_py.api.records.job import SUSPENDED_BY_KEY
from kai_py.commit.eviction import EvictionOutcome
from kai_py.embedded.resources import JOBS, PODS
from kai_py.grouping.gang import FailureLimit, Owner
from kai_py.plan.victims.survival import SUSPENDED
from tests.commit.cluster import NAMESPACE, SCHEDULER, Cluster, refuse

JOB_SET = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", NAMESPACE, "train", "set-uid")
REASON = "its devices are gone"


class Work(Cluster):
    """A Job with pods on a node, of which ``remaining`` may be evicted."""

    def __init__(self, remaining=None, *, owner=None, size=3):
        super().__init__()
        main = {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}
        body = {"metadata": {"name": "train"}, "spec": {"template": {"spec": main}}}
        uid = self.api.create(JOBS, body, NAMESPACE)["metadata"]["uid"]
        self.owner = owner or Owner("batch/v1", "Job", NAMESPACE, "train", uid)
        limit = FailureLimit("train", self.owner, remaining or 0, f"backoffLimit is {remaining}")
        self.limits = () if remaining is None else (limit,)
        self.refs = [self.add_pod(f"worker-{n}", nodeName="node-a") for n in range(size)]
        self.forced = self.evictions(self.owner, self.limits)

    def leaving(self):
        stay = {
            each["metadata"]["name"]
            for each in self.api.list(PODS)
            if "deletionTimestamp" not in each["metadata"]
        }
        return sorted({ref.name for ref in self.refs} - stay)

    async def evict(self, ref):
        return await self.forced.evict(self.pod(ref.name), REASON)

    def suspended(self):
        job = self.api.find(JOBS, "train", NAMESPACE)
        by = (job["metadata"].get("annotations") or {}).get(SUSPENDED_BY_KEY)
        return by == SCHEDULER and job["spec"]["suspend"]


async def test_a_workload_that_survives_loses_the_pod():
    work = Work(remaining=1)
    assert await work.evict(work.refs[0]) == (
        EvictionOutcome.EVICTED,
        "the pod is evicted",
    )
    assert work.leaving() == ["worker-0"]


@pytest.mark.parametrize("remaining", [0, 1, 2])
async def test_a_job_that_would_fail_is_suspended(remaining):
    work = Work(remaining)
    gangs = work.forced.gangs()
    work.forced.gangs = lambda: gangs  # a plan that doesn't show yet what was evicted
    for ref in work.refs[: remaining + 1]:
        outcome = await work.evict(ref)
    assert outcome == (EvictionOutcome.EVICTED, SUSPENDED)
    assert work.suspended()
    assert work.leaving() == [f"worker-{n}" for n in range(remaining)]


async def test_a_pod_whose_workload_cannot_be_suspended_is_kept():
    work = Work(0, owner=JOB_SET)
    outcome, effect = await work.evict(work.refs[0])
    assert outcome is EvictionOutcome.FAILED
    assert effect == (
        f"it is kept, as its workload would fail (JobSet {NAMESPACE}/train: backoffLimit is 0)"
    )
    assert work.leaving() == []


async def test_a_pod_is_kept_until_its_gang_is_known():
    work = Work()
    work.forced.gangs = tuple
    outcome, effect = await work.evict(work.refs[0])
    assert (outcome, work.leaving()) == (EvictionOutcome.FAILED, [])
    assert "not known" in effect


async def test_a_blocked_eviction_does_not_count():
    work = Work(remaining=1)
    gangs = work.forced.gangs()
    work.forced.gangs = lambda: gangs
    work.fail_once("create", "Pod/eviction", refuse(429, "TooManyRequests"))
    outcomes = [(await work.evict(ref))[0] for ref in work.refs[:2]]
    assert outcomes == [EvictionOutcome.BLOCKED, EvictionOutcome.EVICTED]
    assert not work.suspended()
