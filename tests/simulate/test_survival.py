"""Jobs with the default backoffLimit live through every action that evicts their pods."""

import pytest

from kai_py.embedded.errors import forbidden
from kai_py.embedded.resources import JOBS
from kai_py.embedded.subresources import evict
from kai_py.plan.plan import Action
from tests.simulate.clusters import job, priority_class, queue, running, simulated


def default_job(name, pods, queue, **extra):
    """As the API server stores a Job that says nothing of failures."""
    made = job(name, pods, queue, **extra)
    made["spec"]["backoffLimit"] = 6
    return made


def pinned(made, node):
    """``made`` on a node that is chosen for it, as it was placed when others were busy."""
    made["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


def ended(cluster):
    """By Job the condition that it ended with."""
    jobs = cluster.embedded.api.list(cluster.embedded.registry.named("jobs.batch"))
    return {
        each["metadata"]["name"]: next(
            (
                c["type"]
                for c in (each.get("status") or {}).get("conditions") or ()
                if c["status"] == "True" and c["type"] in ("Complete", "Failed")
            ),
            "",
        )
        for each in jobs
    }


def preempting():
    low, high = (
        default_job("low", 8, "team", seconds=60),
        default_job("high", 4, "team", priority="urgent", seconds=60),
    )
    return [queue("team", 8), priority_class("urgent", 1000)], low, high


def reclaiming():
    low = default_job("low", 8, "lender", seconds=60)
    return [queue("lender", 0), queue("owner", 8)], low, default_job("high", 4, "owner", seconds=60)


@pytest.mark.parametrize("action", [preempting, reclaiming])
def test_a_job_that_lost_all_its_pods_completes(action):
    queues, low, high = action()
    cluster = simulated(*queues, low, nodes=2, gpus=4)
    cluster.settle(20)
    cluster.embedded.create(high)
    course = cluster.settle(300)
    assert {eviction.gang for eviction in course.evictions} == {"default/Job/low"}
    assert all(eviction.suspend for eviction in course.evictions)
    assert ended(cluster) == {"low": "Complete", "high": "Complete"}


@pytest.mark.slow
@pytest.mark.parametrize("action", [preempting, reclaiming])
def test_a_job_that_may_not_be_suspended_runs_on_and_is_asked_ever_more_rarely(action, monkeypatch):
    queues, low, high = action()
    low["spec"]["template"]["metadata"]["annotations"]["kai-py.demo/run-seconds"] = "6000"
    cluster = simulated(*queues, low, nodes=2, gpus=4)
    cluster.settle(20)
    cluster.embedded.create(high)
    edit, refused = cluster.embedded.api.edit, []

    def deny(resource, name, *args, **kwargs):
        if resource is JOBS:
            refused.append(name)
            raise forbidden("jobs.batch", name, "denied by a webhook")
        return edit(resource, name, *args, **kwargs)

    monkeypatch.setattr(cluster.embedded.api, "edit", deny)
    course = cluster.settle(600)
    assert {*refused} == {"low"}
    assert len(refused) < 16
    assert course.cycles < 60
    assert not course.evictions
    assert running(cluster) == {"low"}


@pytest.mark.slow
def test_a_job_that_was_relocated_completes():
    filler = pinned(default_job("filler", 8, "team", seconds=5), "node-1")
    cluster = simulated(queue("team", 16), filler, nodes=2, gpus=8)
    cluster.settle(3)
    cluster.embedded.create(default_job("moved", 8, "team", seconds=600))
    cluster.settle(20)
    # Pods that have just started, and will end by themselves, are not relocated.
    cluster.clock.advance(200)
    cluster.embedded.create(pinned(default_job("needs", 8, "team", seconds=60), "node-0"))
    course = cluster.settle(1500)
    assert {eviction.action for eviction in course.evictions} == {Action.CONSOLIDATE}
    assert {eviction.gang for eviction in course.evictions} == {"default/Job/moved"}
    assert ended(cluster) == dict.fromkeys(("filler", "moved", "needs"), "Complete")


@pytest.mark.parametrize("ignores", [True, False])
def test_a_job_that_lint_has_fixed_completes_after_its_node_was_drained(ignores):
    drained = default_job("drained", 8, "team", seconds=60)
    if ignores:
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        drained["spec"]["podFailurePolicy"] = {"rules": [rule]}
    cluster = simulated(queue("team", 16), drained, nodes=2, gpus=8)
    cluster.settle(20)
    api = cluster.embedded.api
    for pod in api.list(cluster.embedded.registry.named("pods")):
        evict(api, pod["metadata"]["name"], pod["metadata"]["namespace"], {})
    cluster.settle(300)
    assert ended(cluster) == {"drained": "Complete" if ignores else "Failed"}
