import pytest

from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import BUDGETS, PODS
from kai_py.embedded.subresources import evict
from tests.embedded.manifests import node, pod
from tests.embedded.placing import bind_all, names


def budget(name="b", **spec):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }


@pytest.fixture
def three(cluster):
    cluster.create(node("n"))
    for name in ("a", "b", "c"):
        cluster.create(pod(name, labels={"app": "web"}))
    bind_all(cluster)
    cluster.clock.advance(3)
    return cluster


def status(cluster):
    return cluster.api.get(BUDGETS, "b", "default")["status"]


def test_a_budget_allows_what_is_above_its_minimum(three):
    three.create(budget(minAvailable=2))
    three.clock.advance(1)
    shown = status(three)
    assert (shown["currentHealthy"], shown["desiredHealthy"], shown["disruptionsAllowed"]) == (
        3,
        2,
        1,
    )
    evict(three.api, "a", "default", {})
    with pytest.raises(RequestError) as caught:
        evict(three.api, "b", "default", {})
    assert (caught.value.code, caught.value.retry_after) == (429, None)
    assert caught.value.details["causes"][0]["reason"] == "DisruptionBudget"
    three.clock.advance(5)
    assert names(three, PODS) == ["b", "c"]
    with pytest.raises(RequestError):
        evict(three.api, "b", "default", {})


def test_an_evicted_pod_says_so(three):
    evict(three.api, "a", "default", {})
    conditions = three.api.get(PODS, "a", "default")["status"]["conditions"]
    assert conditions[-1]["type"] == "DisruptionTarget"
    assert conditions[-1]["reason"] == "EvictionByEvictionAPI"


def test_an_eviction_of_another_uid_conflicts(three):
    options = {"deleteOptions": {"preconditions": {"uid": "other"}}}
    with pytest.raises(RequestError) as caught:
        evict(three.api, "a", "default", options)
    assert caught.value.code == 409


def test_pods_that_do_not_run_are_evicted_freely(three):
    three.create(budget(minAvailable=3))
    three.create(pod("pending", labels={"app": "web"}))
    three.clock.advance(1)
    evict(three.api, "pending", "default", {})
    assert names(three, PODS) == ["a", "b", "c"]


def test_two_budgets_for_one_pod_are_an_error(three):
    three.create(budget(minAvailable=1))
    three.create(budget("b2", minAvailable=1))
    three.clock.advance(1)
    with pytest.raises(RequestError) as caught:
        evict(three.api, "a", "default", {})
    assert caught.value.code == 500


def test_a_pod_informs_the_first_of_its_budgets(three):
    three.create(budget("b", minAvailable=1))
    three.create(budget("c", minAvailable=1))
    three.clock.advance(1)
    delete(three.api, PODS, "a", "default", DeleteOptions(grace_seconds=0))
    three.clock.advance(5)
    found = [three.api.get(BUDGETS, name, "default") for name in ("b", "c")]
    assert [each["status"]["expectedPods"] for each in found] == [2, 3]


def test_a_share_needs_a_controller_with_a_scale(three):
    three.create(budget(maxUnavailable="50%"))
    three.clock.advance(1)
    shown = status(three)
    assert shown["disruptionsAllowed"] == 0
    assert shown["conditions"][0]["reason"] == "SyncFailed"


def test_a_budget_not_yet_observed_refuses(bare):
    bare.create(budget(minAvailable=0))
    created = bare.create(pod("a", labels={"app": "web"}))
    bare.api.patch_status(PODS, created, {"phase": "Running"})
    with pytest.raises(RequestError) as caught:
        evict(bare.api, "a", "default", {})
    assert caught.value.code == 429
