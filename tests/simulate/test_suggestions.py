import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.references import PodRef
from kai_py.api.times import format_time
from kai_py.cli.explanation_text import cost_text
from kai_py.config import Configuration
from kai_py.grouping.gang import Owner
from kai_py.observe.suggestion import Verb
from kai_py.plan.plan import Action, Eviction
from kai_py.simulate.changes import ApplySteps
from kai_py.simulate.remedies.search import as_suggestion
from kai_py.simulate.remedies.suggestions import suggest
from kai_py.simulate.what_if import Comparison, LoadedCluster
from tests.simulate.clusters import NOW, job, priority_class, queue, running, simulated
from tests.support.cluster.manifests import pod, pod_spec
from tests.support.examples import examples


def suggestions(cluster, name, may_try=lambda: True):
    documents = cluster.documents()
    present = LoadedCluster(documents, Configuration(), cluster.clock.now())
    return suggest(documents, present, present.settled(), f"default/Job/{name}", may_try)


def settled(*documents, **hardware):
    cluster = simulated(*documents, **hardware)
    cluster.settle(60)
    return cluster


def told(suggestion):
    """What each step does to which gang."""
    return [
        (step.verb, step.kind, step.name, step.patch or step.count) for step in suggestion.steps
    ]


def floor(count):
    return {"metadata": {"annotations": {"scheduling.kai.io/min-available": str(count)}}}


def test_a_running_gang_needs_nothing():
    assert suggestions(settled(queue("team", 8), job("four", 4, "team")), "four") == ()


@pytest.mark.slow
def test_a_gang_that_starts_by_itself_is_to_be_waited_for():
    protected = queue("team", 8, preemptMinRuntime="5m")
    urgent = priority_class("urgent", 10)
    cluster = settled(protected, urgent, job("low", 4, "team"), job("calm", 4, "team"))
    cluster.embedded.create_all([job("hasty", 4, "team", "urgent")])
    cluster.settle(60)
    [found] = suggestions(cluster, "hasty")
    until = format_time(NOW + 300)
    assert found.text == f"wait until {until} (for 5m): it starts without any change"
    assert (found.steps, found.starts) == ((), ("default/Job/hasty",))
    cluster.clock.advance(297)
    assert suggestions(cluster, "hasty") == ()


def test_a_missing_queue_is_to_be_created():
    [found] = suggestions(settled(job("four", 4, "missing")), "four")
    assert found.text == "create the Queue missing"


def member(name, **spec):
    """A pod of a gang of two that have no owner."""
    annotations = {
        "scheduling.kai.io/queue-name": "team",
        "scheduling.kai.io/pod-group": "pair",
        "scheduling.kai.io/min-available": "2",
    }
    return pod(name, pod_spec(**spec), annotations=annotations)


@pytest.mark.slow
def test_a_selector_is_removed_from_the_pods_that_have_one():
    selector = {"rack": "none", "zone": "none"}
    cluster = settled(queue("team", 8), member("one", nodeSelector=selector), member("two"))
    documents = cluster.documents()
    present = LoadedCluster(documents, Configuration(), cluster.clock.now())
    found = suggest(documents, present, present.settled(), "default/PodGroup/pair")
    without_it = "let it start with 1 of its 2 pods (min-available)"
    assert [each.text for each in found] == ["remove its node selector", without_it]


@pytest.mark.slow
def test_all_ancestors_that_are_too_small_are_raised_together():
    cluster = settled(
        queue("company", 0, 6), queue("team", 0, 4, parent="company"), job("eight", 8, "team")
    )
    found = suggestions(cluster, "eight")
    assert told(found[0]) == [
        (Verb.PATCH, "Queue", "team", {"spec": {"maxGPUs": 8}}),
        (Verb.PATCH, "Queue", "company", {"spec": {"maxGPUs": 8}}),
    ]
    assert found[0].steps[0].command == (
        """kubectl patch queue.scheduling.kai.io team --type merge -p '{"spec":{"maxGPUs":8}}'"""
    )
    assert told(found[1]) == [(Verb.PATCH, "Job", "eight", floor(4))]


@pytest.mark.slow
def test_a_suggestion_tells_what_else_comes_of_it():
    cluster = settled(queue("team", 0, 4), job("six", 6, "team"))
    found = suggestions(cluster, "six")[0]
    assert told(found) == [(Verb.PATCH, "Queue", "team", {"spec": {"maxGPUs": 6}})]
    assert found.starts == ("default/Job/six",)
    assert (found.evicts, found.stops) == ((), ())
    [team] = found.queues
    assert (team.queue, team.allocated) == ("team", (0.0, 6.0))


@pytest.mark.slow
def test_for_capacity_the_largest_floor_the_cheapest_gang_and_the_fewest_nodes():
    cluster = settled(queue("team", 8), job("one", 1, "team"), job("four", 4, "team"))
    cluster.embedded.create(job("six", 6, "team"))
    cluster.settle(60)
    assert [told(each) for each in suggestions(cluster, "six")] == [
        [(Verb.PATCH, "Job", "six", floor(3))],
        [(Verb.ADD_NODES, "Node", "node-0", 1)],
        [(Verb.DELETE, "Job", "four", 0)],
    ]


@pytest.mark.slow
def test_a_suggestion_names_the_gangs_it_costs():
    cluster = settled(queue("a", 0), queue("b", 0, 2), job("greedy", 8, "a"))
    cluster.embedded.create(job("capped", 4, "b"))
    cluster.settle(60)
    paying = {gang for found in suggestions(cluster, "capped") for gang in found.evicts}
    assert paying <= {"default/Job/greedy"}


def sharing(name, queue_name):
    """A Job of a pod that uses the claim ``held``."""
    made = job(name, 1, queue_name)
    made["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimName": "held"}
    ]
    return made


def held(count):
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": count}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    meta = {"name": "held", "namespace": "default"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": spec,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("joined", "maximum", "raised"), [(True, 3, 4), (False, 1, 2)])
def test_claims_that_are_joined_count_as_what_the_queue_owes(joined, maximum, raised):
    """By what it owes for a pod that runs, and by what it would owe for one that waits."""
    cluster = settled(queue("pays", 8, 8), queue("joins", 0, maximum), held(2))
    cluster.embedded.create(sharing("first", "pays"))
    cluster.settle(60)
    if joined:
        cluster.embedded.create(sharing("early", "joins"))
        cluster.settle(60)
    cluster.embedded.create(job("late", 2, "joins") if joined else sharing("late", "joins"))
    cluster.settle(60)
    assert running(cluster) == {"first", *(["early"] if joined else [])}
    found = suggestions(cluster, "late")
    assert (Verb.PATCH, "Queue", "joins", {"spec": {"maxGPUs": raised}}) in [
        step for each in found for step in told(each)
    ]


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(SIZES, st.integers(2, 12), st.integers(1, 12))
def test_with_any_of_them_the_gang_starts(sizes, wanted, maximum):
    others = [job(f"job-{i}", pods, "team") for i, pods in enumerate(sizes)]
    cluster = settled(queue("team", 0, 8), queue("own", 0, maximum), *others)
    cluster.embedded.create(job("wanted", wanted, "own"))
    cluster.settle(60)
    found = suggestions(cluster, "wanted")
    for suggestion in found:
        again = settled(queue("team", 0, 8), queue("own", 0, maximum), *others)
        again.embedded.create(job("wanted", wanted, "own"))
        again.settle(60)
        ApplySteps(suggestion.steps).apply(again)
        again.settle(600)
        gang = again.snapshot().gangs["default/Job/wanted"]
        assert len(gang.bound) >= min(gang.tree.min_pods(), wanted), suggestion.text
    if not found:
        assert "wanted" in running(cluster)


@pytest.mark.slow
def test_without_time_left_nothing_is_tried():
    cluster = settled(queue("team", 8), job("one", 1, "team"), job("four", 4, "team"))
    cluster.embedded.create(job("six", 6, "team"))
    cluster.settle(60)
    left = iter([True, True])
    assert suggestions(cluster, "six", lambda: next(left, False)) == ()


def elastic(name, pods, floor, team):
    document = job(name, pods, team)
    document["metadata"]["annotations"]["scheduling.kai.io/min-available"] = str(floor)
    return document


@pytest.mark.slow
def test_what_runs_at_its_floor_needs_capacity_for_one_pod_more():
    cluster = settled(queue("team", 0, 3), elastic("grows", 6, 2, "team"))
    found = suggestions(cluster, "grows")
    assert told(found[0]) == [(Verb.PATCH, "Queue", "team", {"spec": {"maxGPUs": 4}})]
    assert all(step.verb is not Verb.DELETE for each in found for step in each.steps)


@pytest.mark.slow
def test_a_gang_above_a_max_is_let_start_with_its_floor():
    cluster = settled(queue("team", 0, 1), elastic("grows", 6, 2, "team"))
    found = suggestions(cluster, "grows")
    assert told(found[0]) == [(Verb.PATCH, "Queue", "team", {"spec": {"maxGPUs": 2}})]


@pytest.mark.slow
def test_nothing_is_simulated_twice(monkeypatch):
    tried = []
    simulate = LoadedCluster.settled

    def noted(present, *changes):
        tried.append(changes)
        return simulate(present, *changes)

    monkeypatch.setattr(LoadedCluster, "settled", noted)
    cluster = settled(queue("team", 8), job("four", 4, "team"), job("five", 5, "team"), nodes=1)
    assert [each.text for each in suggestions(cluster, "five")] == ["add 2 nodes like node-0"]
    assert len(tried) > 4
    assert all(changes not in tried[:place] for place, changes in enumerate(tried))


def test_what_becomes_of_those_that_lose_pods_is_said():
    lost = Eviction(
        pod=PodRef("default", "p", "u"),
        node="n",
        gang="default/Job/theirs",
        owner=Owner("batch/v1", "Job", "default", "theirs", "j"),
        queue="q",
        action=Action.RECLAIM,
        preemptor="default/Job/ours",
        preemptor_queue="r",
        reason="",
        effect="its workload fails (spec.backoffLimit 0)",
    )
    found = as_suggestion("raise it", (), Comparison(victims=(lost,)))
    assert found.evicts == ("default/Job/theirs",)
    assert cost_text(found) == (
        "; default/Job/theirs (its workload fails (spec.backoffLimit 0)) would lose pods"
    )
