"""What the API server refuses to create for a gang is named, as its controller reports it."""

from datetime import UTC, datetime

import pytest

from kai_py.api.choices import Subject
from kai_py.api.records.core import ObjectMeta
from kai_py.config import Configuration
from kai_py.observe.event_history import ClusterEvent, InvolvedObject
from kai_py.simulate.explained_cluster import explain_cluster
from tests.simulate.clusters import NOW, job, queue, simulated

QUOTA = 'pods "train-x" is forbidden: exceeded quota: team-gpus, requested: pods=1, used: pods=1'


def refusal(owner="train", at=NOW, message=QUOTA, kind="Job"):
    return ClusterEvent(
        metadata=ObjectMeta(name=f"{owner}.{at}", namespace="default"),
        type="Warning",
        involved_object=InvolvedObject(kind, "default", owner),
        reason="FailedCreate",
        message=f"Error creating: {message}",
        last_timestamp=datetime.fromtimestamp(at, UTC),
    )


def explained(pods, *events):
    cluster = simulated(queue("team", 8), job("train", 2, "team"))
    documents = cluster.documents()
    made = [each for each in documents if each["kind"] == "Pod"]
    for each in made[pods:]:
        documents.remove(each)
    [found] = explain_cluster(
        documents,
        Configuration(),
        now=NOW + 60,
        subject=Subject.GANG,
        name="default/Job/train",
        with_suggestions=False,
        events=iter(events),
    )
    return found


@pytest.mark.parametrize(("pods", "state"), [(1, "BelowMinMember"), (0, "NoPods")])
def test_the_quota_that_refuses_the_missing_pods_is_named(pods, state):
    found = explained(pods, refusal(at=NOW - 30, message="an earlier reason"), refusal())
    assert found.state == state
    assert found.message.endswith(f". The API server refuses its pods: {QUOTA}")


@pytest.mark.parametrize("event", [refusal(at=NOW - 1000), refusal("other"), refusal(kind="Pod")])
def test_refusals_that_are_over_or_of_others_are_not(event):
    assert "refuses its pods" not in explained(1, event).message


def test_a_gang_that_has_its_pods_is_refused_none():
    assert "refuses" not in explained(2, refusal()).message
