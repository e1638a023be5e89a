"""Situations in simulation: the stage is named, and the first suggestion starts the gang.

What the suggestion says of others is what then happens to them.
"""

import pytest

from kai_py.api.choices import Subject
from kai_py.config import Configuration
from kai_py.observe.explanation import NO_PODS
from kai_py.simulate.changes import ApplySteps
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.explained_cluster import SearchReport, explain_cluster
from kai_py.snapshot.accounting import GPU
from tests.cluster.fake_kubelet.nodes import gpu_class_document, node_document, slice_document
from tests.simulate.clusters import NOW
from tests.support.mixtures import MIXTURES
from tests.support.pending.names import ACCOUNTS, NAMES
from tests.support.pending.requirements import REQUIREMENTS
from tests.support.pending.sizes import SIZES
from tests.support.situations import SITUATIONS, Situation, few_fast

CORPUS = (*SITUATIONS, *MIXTURES, *NAMES, *SIZES, *REQUIREMENTS)
NEWS = "2027-01-15T08:00:00Z"


def staged(situation: Situation) -> SimulatedCluster:
    """The cluster in which the gang waits."""
    cluster = SimulatedCluster(Configuration(), start=NOW)
    embedded = cluster.embedded
    embedded.create(gpu_class_document())
    for node in situation.nodes:
        made = embedded.create(node_document(node, NEWS))
        if node.published_gpus:
            embedded.create(slice_document(node, made["metadata"]["uid"]))
    embedded.create_all(situation.definitions)
    embedded.create_all(situation.objects)
    for document, running in situation.before:
        embedded.create(document)
        cluster.settle(60)
        assert bound(cluster, document["metadata"]["name"]) == running
    cluster.clock.advance(situation.patience)
    embedded.create_all(situation.waits)
    cluster.settle(60)
    return cluster


def bound(cluster: SimulatedCluster, name: str) -> int:
    pods = cluster.embedded.api.list(cluster.embedded.registry.named("pods"))
    of_gang = (each for each in pods if each["metadata"]["name"].startswith(f"{name}-"))
    return sum(bool(each["spec"].get("nodeName")) for each in of_gang)


def failed_jobs(cluster: SimulatedCluster) -> set[str]:
    """Keys of the Jobs that have failed for good."""
    return {
        f"default/Job/{each['metadata']['name']}"
        for each in cluster.embedded.api.list(cluster.embedded.registry.named("jobs.batch"))
        for condition in each.get("status", {}).get("conditions") or ()
        if condition["type"] == "Failed" and condition["status"] == "True"
    }


def explained(cluster: SimulatedCluster, situation: Situation):
    """The explanation with the first suggestion: the search ends once that is found."""
    suggestions = []
    [found] = explain_cluster(
        cluster.documents(),
        Configuration(),
        now=cluster.clock.now(),
        subject=Subject.GANG,
        name=situation.gang,
        has_time=lambda: not suggestions,
        report=SearchReport(on_found=lambda _, suggestion: suggestions.append(suggestion)),
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("situation", few_fast(CORPUS))
def test_the_first_suggestion_starts_the_gang_as_it_says(situation: Situation):
    cluster = staged(situation)
    found = explained(cluster, situation)
    assert found.state == situation.stage
    assert situation.says in found.message
    assert bound(cluster, "waiting") == 0
    first = found.suggestions[0]
    assert first.text == situation.suggests
    assert situation.gang in first.starts
    ApplySteps(first.steps).apply(cluster)
    course = cluster.settle(60)
    assert bound(cluster, "waiting") == situation.pods
    assert sorted(first.evicts) == sorted({each.gang for each in course.evictions})
    told = {gang for gang, effect in first.effects if "fails" in effect}
    assert failed_jobs(cluster) <= told
    held = {share.queue: share.allocated[GPU] for share in course.last_plan.queues}
    for change in first.queues:
        assert held.get(change.queue, 0.0) == change.allocated[1]


def test_the_corpus_has_eighty_situations_each_of_its_own_name():
    names = [each.name for each in CORPUS]
    assert len(set(names)) == len(names) >= 80


def test_there_is_one_for_each_stage():
    assert len({each.stage for each in SITUATIONS}) == len(SITUATIONS) == 12


@pytest.mark.parametrize("situation", ACCOUNTS, ids=lambda each: each.name)
def test_what_the_api_server_made_no_pods_of_is_no_gang(situation: Situation):
    """Though a simulation makes its pods, and could start them."""
    cluster = staged(situation)
    accounts = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}]
    accounts[0]["metadata"]["namespace"] = "default"
    accounts.append(situation.objects[1])
    [found] = explain_cluster(
        [*(each for each in cluster.documents() if each["kind"] != "Pod"), *accounts],
        Configuration(),
        now=cluster.clock.now(),
        subject=Subject.JOB,
        name="default/waiting",
    )
    assert found.state == NO_PODS
    assert situation.says in found.message
    assert found.suggestions[0].text == situation.suggests
