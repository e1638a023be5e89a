from kai_py.commit.claims.recovery import LeftoverTracker, find_leftover_claims
from tests.commit.cluster import NAMESPACE, SCHEDULER, device


def leftovers(cluster, *wanted):
    uids = {pod.uid for pod in wanted}
    found = find_leftover_claims(cluster.claims(), cluster.pods(), {SCHEDULER}, uids)
    return {left.claim.name: left.consumers for left in found}


def held_for(cluster, *consumers, name="gpu-0", owner=None):
    cluster.add_claim(name, owner)
    cluster.allocate(name, device(name, "node-a"), *consumers)


def test_a_claim_held_for_a_pod_that_is_never_bound_is_left_over(cluster):
    pod = cluster.add_pod("worker-0")
    held_for(cluster, pod)
    assert leftovers(cluster) == {"gpu-0": frozenset({pod.uid})}


def test_a_pod_that_is_placed_keeps_its_claim(cluster):
    pod = cluster.add_pod("worker-0")
    held_for(cluster, pod)
    assert leftovers(cluster, pod) == {}


def test_another_schedulers_claims_are_its_own(cluster):
    held_for(cluster, cluster.add_pod("stranger", schedulerName="default-scheduler"))
    assert leftovers(cluster) == {}


def test_claims_of_pods_with_another_name_of_ours_are_ours(cluster):
    pod = cluster.add_pod("changing-over", schedulerName="gpu-scheduler")
    held_for(cluster, pod)
    names = {SCHEDULER, "gpu-scheduler"}
    [found] = find_leftover_claims(cluster.claims(), cluster.pods(), names, set())
    assert found.consumers == {pod.uid}


async def test_a_running_pod_keeps_a_shared_claim_that_others_leave(cluster):
    running, waiting = cluster.add_pod("running"), cluster.add_pod("waiting")
    await cluster.access().client.bind(
        namespace=NAMESPACE, pod="running", uid=running.uid, node="node-a"
    )
    held_for(cluster, running, waiting)
    assert leftovers(cluster) == {"gpu-0": frozenset({waiting.uid})}


def test_a_device_without_a_holder_is_left_over_if_one_of_our_pods_asked_for_it(cluster):
    owner = cluster.add_pod("worker-0")
    user = cluster.add_pod(
        "worker-1", resourceClaims=[{"name": "gpu", "resourceClaimName": "named"}]
    )
    held_for(cluster, name="owned", owner=owner)
    held_for(cluster, name="named")
    held_for(cluster, name="foreign")
    assert leftovers(cluster) == {"owned": frozenset(), "named": frozenset()}
    assert leftovers(cluster, owner, user) == {}


def test_a_claim_without_devices_is_no_leftover(cluster):
    cluster.add_claim("gpu-0", cluster.add_pod("worker-0"))
    assert leftovers(cluster) == {}


def test_a_leftover_is_due_after_it_was_one_for_the_whole_grace(cluster):
    held_for(cluster, cluster.add_pod("worker-0"))
    found = find_leftover_claims(cluster.claims(), cluster.pods(), {SCHEDULER}, set())
    grace = LeftoverTracker(30.0)
    assert grace.due(found, 0.0) == ()
    assert grace.due(found, 29.0) == ()
    assert grace.due((), 29.5) == ()
    assert grace.due(found, 31.0) == (), "it was used in between"
    assert grace.due(found, 61.0) == found
