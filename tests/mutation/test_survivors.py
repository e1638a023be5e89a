"""Rules that no other fast test noticed when they were broken, each by its smallest case."""

import pytest
from msgspec.structs import replace

from kai_py.api.references import PodRef
from kai_py.commit.claims.reconcile import ClaimFailure, next_patch
from kai_py.commit.claims.recovery import planned_pods
from kai_py.plan.plan import Action, Nomination, Plan
from kai_py.plan.state.assignment import Evicted
from tests.commit.test_exact_writes import ALLOCATION, claim, desired
from tests.commit.test_exact_writes import NOW as WRITTEN
from tests.dialects.feeding import Cluster, node, placed, pod
from tests.plan.state.test_statement import statement
from tests.support.worlds import gang, world

QUEUE = "scheduling.kai.io/queue-name"


def team(name="team", maximum=None, deserved=8):
    limit = {} if maximum is None else {"maxGPUs": maximum}
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": deserved, **limit},
    }


def in_team(name, gpus=1, **parts):
    return pod(name, gpus, annotations={QUEUE: "team"}, **parts)


@pytest.mark.parametrize(("others", "allowed"), [(255, True), (256, False)])
def test_a_claim_takes_256_users(others, allowed):
    listed = [{"resource": "pods", "name": f"o{n}", "uid": f"o{n}"} for n in range(others)]
    patch = next_patch(desired(ALLOCATION), claim(reservedFor=listed), WRITTEN)
    assert isinstance(patch, ClaimFailure) is not allowed


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
@pytest.mark.parametrize("tolerated", [True, False])
def test_taints_of_nodes_keep_pods_away(effect, tolerated):
    tainted = {**node("n"), "spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}}
    tolerations = [{"key": "k", "operator": "Exists"}] if tolerated else []
    cluster = Cluster(team(), tainted, in_team("p", tolerations=tolerations))
    runs = tolerated or effect == "PreferNoSchedule"
    assert placed(cluster.plan()) == ({"p": "n"} if runs else {})


@pytest.mark.parametrize(("maximum", "starts"), [(2, True), (1, False)])
def test_nominated_pods_obey_a_maximum_that_was_lowered_meanwhile(maximum, starts):
    waiting = in_team("waits", 2)
    waiting["status"]["nominatedNodeName"] = "n"
    cluster = Cluster(team(maximum=maximum, deserved=1), node("n", 2), waiting)
    assert placed(cluster.plan()) == ({"waits": "n"} if starts else {})


@pytest.mark.parametrize("succeeded", [0, 1])
def test_a_gang_of_which_a_pod_has_succeeded_is_not_stale(succeeded):
    rest = replace(gang("rest", nodes="a", floor=2, stale_since=0.0), succeeded=succeeded)
    evictions = world({"a": 2}, rest).plan().evictions
    assert [each.action for each in evictions] == ([] if succeeded else [Action.STALE])


def test_claims_of_nominated_pods_are_wanted():
    nominated = PodRef("default", "p", "uid-p")
    assert planned_pods(Plan(nominations=(Nomination("g", nominated, "n"),))) == {"uid-p"}


@pytest.mark.parametrize("preemptible", [True, False])
def test_an_evicted_pod_gives_back_the_quota_that_it_was_charged(preemptible):
    running = replace(gang("runs", nodes="a", queue="q"), preemptible=preemptible)
    kept = statement()
    usage = kept.quota.usage
    before = usage.non_preemptible.copy()
    kept.evict(Evicted(running.members[0], running, Action.STALE, running, ""))
    assert bool((usage.non_preemptible != before).any()) is not preemptible


def test_the_annotation_names_the_queue_where_a_label_names_another():
    named = pod("p", annotations={QUEUE: "team"}, labels={QUEUE: "other"})
    cluster = Cluster(team(), team("other"), node("n"), named)
    assert cluster.gang("default/Pod/p").queue == "team"


def test_a_gpu_that_is_reserved_for_sharing_is_not_free_before_a_pod_shares_it():
    reserves = pod(
        "reserves",
        1,
        nodeName="n",
        labels={"app": "kai-resource-reservation", "runai-gpu-group": "g"},
    )
    reserves["metadata"]["namespace"] = "kai-resource-reservation"
    cluster = Cluster(team(), node("n", 1), reserves, in_team("waits"))
    plan = cluster.plan()
    assert placed(plan) == {}
    assert plan.nominations == ()


def device(name, **fields):
    return {"name": name, **fields}


def claims_of(count, exactly, *devices, **pool):
    """A node with these devices, and pods with a claim each."""
    meta = {"name": "n-devices"}
    spec = {
        "driver": "d",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
        **pool,
    }
    api = {"apiVersion": "resource.k8s.io/v1"}
    yield {**api, "kind": "DeviceClass", "metadata": {"name": "any"}, "spec": {}}
    yield {**api, "kind": "ResourceSlice", "metadata": meta, "spec": spec}
    request = {"name": "r", "exactly": {"deviceClassName": "any", **exactly}}
    for number in range(count):
        claim_spec = {"devices": {"requests": [request]}}
        made = {"metadata": {"name": f"c{number}"}, "spec": claim_spec}
        yield {**api, "kind": "ResourceClaim", **made}
        uses = [{"name": "r", "resourceClaimName": f"c{number}"}]
        yield in_team(f"p{number}", 0, resourceClaims=uses)


def starting(objects):
    return len(placed(Cluster(team(deserved=100), node("n", 0), list(objects)).plan()))


def test_counters_that_one_device_consumes_are_not_there_for_another():
    counters = [{"name": "card", "counters": {"slices": {"value": "7"}}}]

    def part(name, slices):
        use = {"counterSet": "card", "counters": {"slices": {"value": str(slices)}}}
        return device(name, consumesCounters=[use])

    assert starting(claims_of(2, {}, part("a", 4), part("b", 4), sharedCounters=counters)) == 1
    assert starting(claims_of(2, {}, part("a", 4), part("b", 3), sharedCounters=counters)) == 2


@pytest.mark.parametrize(("units", "pods"), [(5, 2), (6, 1), (10, 1), (11, 0)])
def test_capacity_is_shared_up_to_the_last_unit(units, pods):
    shared = device("a", allowMultipleAllocations=True, capacity={"mem": {"value": "10"}})
    exactly = {"capacity": {"requests": {"mem": str(units)}}}
    assert starting(claims_of(3, exactly, shared)) == pods


@pytest.mark.parametrize(("count", "starts"), [(32, 1), (33, 0)])
def test_a_claim_has_at_most_32_devices(count, starts):
    devices = [device(f"d{number}") for number in range(40)]
    assert starting(claims_of(1, {"count": count}, *devices)) == starts
