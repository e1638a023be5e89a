"""Several coroutines at once; none and one cost the event loop nothing."""

import asyncio

import pytest

from kai_py.commit.binding import BindingOutcome
from kai_py.commit.claims.reconcile import release_claim
from kai_py.commit.transaction import gather_all
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import CLAIMS, PODS
from kai_py.watch.errors import Unreachable
from tests.commit.cluster import (
    NAMESPACE,
    assert_nothing_held,
    device,
    first,
    gang_of,
    gang_with_claims,
    lose_answer,
    placed,
    refuse,
    run,
    transaction,
)

FINALIZER = "resource.kubernetes.io/delete-protection"


def assert_all_bound(cluster, size):
    assert cluster.nodes() == {f"worker-{i}": "node-a" for i in range(size)}
    assert cluster.devices() == {f"gpu-{i}": (f"gpu-{i}",) for i in range(size)}
    for claim in cluster.claims():
        index = claim.metadata.name.removeprefix("gpu-")
        assert [c.name for c in claim.status.reserved_for] == [f"worker-{index}"]
        assert FINALIZER in claim.metadata.finalizers


def remove(cluster, resource, name):
    delete(cluster.api, resource, name, NAMESPACE, DeleteOptions(grace_seconds=0))


async def test_w14_claims_are_all_written_before_the_first_binding(cluster):
    gang = gang_with_claims(cluster, 3)
    outcome = await run(cluster, gang)
    assert outcome.reason == ""
    assert len(outcome.bound) == 3
    assert_all_bound(cluster, 3)
    kinds = [call.kind for call in cluster.calls]
    assert kinds.index("Pod/binding") > len(kinds) - 1 - kinds[::-1].index("ResourceClaim/status")
    assert cluster.made("patch", "ResourceClaim") == 3
    assert cluster.made("patch", "ResourceClaim/status") == 3
    assert cluster.made("get", "ResourceClaim") == 0


async def test_a_finished_transaction_repeated_writes_nothing_to_claims(cluster):
    gang = gang_with_claims(cluster, 2)
    await run(cluster, gang)
    cluster.calls.clear()
    outcome = await run(cluster, gang)
    assert len(outcome.bound) == 2
    assert cluster.made("patch", "ResourceClaim/status") == 0
    assert_all_bound(cluster, 2)


@pytest.mark.parametrize(
    "fault",
    [
        lose_answer,
        refuse(500),
        refuse(503, "ServiceUnavailable"),
        refuse(429, "TooManyRequests"),
        refuse(409, "Conflict"),
    ],
    ids=["answer lost", "500", "503", "429", "conflict"],
)
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaim/status", "Pod/binding"])
async def test_passing_failures_are_ridden_out(cluster, kind, fault):
    gang = gang_with_claims(cluster, 2)
    verb = "create" if kind == "Pod/binding" else "patch"
    cluster.fail_once(verb, kind, fault)
    outcome = await run(cluster, gang)
    assert len(outcome.bound) == 2
    assert_all_bound(cluster, 2)


@pytest.mark.slow
async def test_retry_after_is_respected(cluster):
    gang = gang_with_claims(cluster, 1)
    cluster.fail_once("create", "Pod/binding", refuse(429, "TooManyRequests", retry_after=1))
    began = asyncio.get_running_loop().time()
    outcome = await run(cluster, gang)
    assert len(outcome.bound) == 1
    assert asyncio.get_running_loop().time() - began >= 1.0


async def test_a_label_changed_in_between_does_not_stop_it(cluster):
    gang = gang_with_claims(cluster, 1)

    def relabel():
        cluster.api.edit(
            CLAIMS,
            "gpu-0",
            NAMESPACE,
            lambda c: {**c, "metadata": {**c["metadata"], "labels": {"a": "b"}}},
        )

    cluster.fail_once("patch", "ResourceClaim/status", first(relabel))
    outcome = await run(cluster, gang)
    assert len(outcome.bound) == 1
    assert_all_bound(cluster, 1)
    assert cluster.made("get", "ResourceClaim") == 1


async def test_a_claim_allocated_by_another_scheduler_undoes_the_gang(cluster):
    gang = gang_with_claims(cluster, 3)
    stranger = cluster.add_pod("stranger")
    other = device("gpu-7", "node-b")
    cluster.fail_once(
        "patch",
        "ResourceClaim/status",
        first(lambda: cluster.allocate("gpu-2", other, stranger)),
    )
    outcome = await run(cluster, gang)
    assert "gpu-2" in outcome.reason
    assert "other devices" in outcome.reason
    assert cluster.nodes() == {}
    assert cluster.devices() == {"gpu-2": ("gpu-7",)}
    assert [c.name for c in cluster.claim("gpu-2").status.reserved_for] == ["stranger"]


async def test_a_deleted_claim_undoes_the_gang(cluster):
    gang = gang_with_claims(cluster, 3)
    cluster.fail_once("patch", "ResourceClaim", first(lambda: remove(cluster, CLAIMS, "gpu-1")))
    outcome = await run(cluster, gang)
    assert "gpu-1" in outcome.reason
    assert not outcome.is_overtaken
    assert_nothing_held(cluster)


async def test_a_claim_deleted_with_its_pod_undoes_the_gang_which_is_no_failure(cluster):
    gang = gang_with_claims(cluster, 3)

    def delete_pod():
        remove(cluster, PODS, "worker-1")
        remove(cluster, CLAIMS, "gpu-1")

    cluster.fail_once("patch", "ResourceClaim", first(delete_pod))
    outcome = await run(cluster, gang)
    assert "gpu-1" in outcome.reason
    assert outcome.is_overtaken
    assert [each.pod.name for each in outcome.bindings] == ["worker-1"]
    assert_nothing_held(cluster)


async def test_a_claim_made_again_under_its_name_is_left_alone(cluster):
    gang = gang_with_claims(cluster, 2)

    def replace():
        remove(cluster, CLAIMS, "gpu-1")
        cluster.add_claim("gpu-1")

    cluster.fail_once("patch", "ResourceClaim", first(replace))
    outcome = await run(cluster, gang)
    assert "gpu-1" in outcome.reason
    assert_nothing_held(cluster)


async def test_giving_back_a_share_of_a_claim_made_again_is_no_failure(cluster):
    others = [cluster.add_pod(f"other-{i}") for i in range(2)]
    claim = cluster.add_claim("shared")
    cluster.allocate("shared", device("gpu-0", "node-a"), *others)
    known = cluster.claim("shared")

    def replace():
        cluster.api.patch_status(
            CLAIMS,
            cluster.api.find(CLAIMS, "shared", NAMESPACE),
            {"allocation": None, "reservedFor": None},
        )
        remove(cluster, CLAIMS, "shared")
        cluster.add_claim("shared")

    cluster.fail_once("patch", "ResourceClaim/status", first(replace))
    await release_claim(cluster.access(), claim, frozenset({others[0].uid}), known)
    assert cluster.claim("shared").metadata.uid != claim.uid
    assert cluster.made("patch", "ResourceClaim/status") == 1


async def test_a_device_held_by_another_claim_is_given_back(cluster):
    gang = gang_with_claims(cluster, 2)
    cluster.add_claim("foreign")
    stranger = cluster.add_pod("stranger")
    cluster.fail_once(
        "patch",
        "ResourceClaim/status",
        first(lambda: cluster.allocate("foreign", device("gpu-1", "node-a"), stranger)),
    )
    outcome = await run(cluster, gang)
    assert [str(d.holder) for d in outcome.other_holders] == ["team-a/foreign"]
    assert cluster.nodes() == {}
    assert cluster.devices() == {"foreign": ("gpu-1",)}


async def test_nothing_is_bound_while_the_watch_is_behind(cluster):
    gang = gang_with_claims(cluster, 1)
    cluster.blind = True
    outcome = await run(cluster, gang)
    assert "watch" in outcome.reason
    assert_nothing_held(cluster)


async def test_w23_a_refused_claim_write_undoes_what_was_written(cluster):
    gang = gang_with_claims(cluster, 3)
    cluster.faults.append(
        (
            lambda call: call.kind == "ResourceClaim/status" and "gpu-2" in call.path,
            refuse(403, "Forbidden"),
        )
    )
    outcome = await run(cluster, gang)
    assert "403" in outcome.reason
    assert_nothing_held(cluster)


async def test_a_pod_deleted_in_between_gives_back_its_claim_and_stops_no_other(cluster):
    gang = gang_with_claims(cluster, 3)
    cluster.fail_once("create", "Pod/binding", first(lambda: remove(cluster, PODS, "worker-1")))
    outcome = await run(cluster, gang)
    assert [b.outcome for b in outcome.bindings] == [
        BindingOutcome.BOUND,
        BindingOutcome.DELETED,
        BindingOutcome.BOUND,
    ]
    assert cluster.nodes() == {"worker-0": "node-a", "worker-2": "node-a"}
    assert "gpu-1" not in cluster.devices()
    assert len(cluster.devices()) == 2


async def test_a_pod_made_again_under_its_name_is_not_bound(cluster):
    gang = gang_with_claims(cluster, 1)

    def replace():
        remove(cluster, PODS, "worker-0")
        cluster.add_pod("worker-0")

    cluster.fail_once("create", "Pod/binding", first(replace))
    outcome = await run(cluster, gang)
    assert [b.outcome for b in outcome.bindings] == [BindingOutcome.DELETED]
    assert_nothing_held(cluster)


async def test_a_pod_bound_elsewhere_keeps_its_claim(cluster):
    gang = gang_with_claims(cluster, 1)
    pod = gang.pods[0].pod
    access = cluster.access()
    await access.client.bind(namespace=NAMESPACE, pod=pod.name, uid=pod.uid, node="node-z")
    outcome = await run(cluster, gang)
    assert [b.outcome for b in outcome.bindings] == [BindingOutcome.BOUND_ELSEWHERE]
    assert "node-z" in outcome.failures[0].reason
    assert cluster.devices() == {"gpu-0": ("gpu-0",)}


async def test_a_refused_binding_gives_back_the_claim(cluster):
    gang = gang_with_claims(cluster, 2)
    cluster.faults.append(
        (
            lambda call: call.path.endswith("worker-1/binding"),
            refuse(403, "Forbidden"),
        )
    )
    outcome = await run(cluster, gang)
    assert cluster.nodes() == {"worker-0": "node-a"}
    assert cluster.devices() == {"gpu-0": ("gpu-0",)}
    assert [b.pod.name for b in outcome.failures] == ["worker-1"]


async def test_an_undone_gang_leaves_claims_of_pods_that_are_bound_after_all(cluster):
    gang = gang_with_claims(cluster, 2)
    await run(cluster, gang_of(gang.pods[0]))
    cluster.add_claim("foreign")
    cluster.allocate("foreign", device("gpu-1", "node-a"), cluster.add_pod("stranger"))
    outcome = await run(cluster, gang)
    assert outcome.other_holders
    assert cluster.nodes() == {"worker-0": "node-a"}
    assert cluster.devices() == {"gpu-0": ("gpu-0",), "foreign": ("gpu-1",)}


async def test_a_shared_claim_is_written_once_and_keeps_its_other_consumers(cluster):
    running = cluster.add_pod("running")
    claim = cluster.add_claim("shared")
    cluster.allocate("shared", device("gpu-0", "node-a"), running)
    pods = [cluster.add_pod(f"worker-{i}") for i in range(2)]
    gang = gang_of(*(placed(pod, "node-a", claim) for pod in pods))
    cluster.faults.append((lambda c: c.path.endswith("worker-1/binding"), refuse(403, "Forbidden")))
    await run(cluster, gang)
    names = [consumer.name for consumer in cluster.claim("shared").status.reserved_for]
    assert names == ["running", "worker-0"]
    assert cluster.devices() == {"shared": ("gpu-0",)}
    assert cluster.made("patch", "ResourceClaim/status") == 2


async def test_a_claim_that_moved_to_another_node_is_not_followed(cluster):
    claim = cluster.add_claim("shared")
    cluster.allocate("shared", device("gpu-0", "node-b"), cluster.add_pod("running"))
    pod = cluster.add_pod("worker-0")
    outcome = await run(cluster, gang_of(placed(pod, "node-a", claim)))
    assert "another node" in outcome.reason
    assert cluster.nodes() == {}
    assert [c.name for c in cluster.claim("shared").status.reserved_for] == ["running"]


async def test_a_claim_that_lost_its_allocation_stops_the_gang(cluster):
    claim = cluster.add_claim("shared")
    pod = cluster.add_pod("worker-0")
    outcome = await run(cluster, gang_of(placed(pod, "node-a", claim)))
    assert "is no longer allocated" in outcome.reason


async def test_no_pod_is_bound_by_an_old_copy_of_a_claim_that_was_given_back(cluster):
    claim = cluster.add_claim("own")
    pod = cluster.add_pod("worker-0")
    held = device("gpu-0", "node-a")
    cluster.allocate("own", held, pod)
    old = {claim.uid: cluster.claim("own")}
    await release_claim(cluster.access(), claim, frozenset({pod.uid}))
    gang = gang_of(placed(pod, "node-a", claim))
    outcome = await transaction(cluster, gang, cached_claims=old).run()
    assert "is no longer allocated" in outcome.reason
    assert cluster.nodes() == {}


async def test_an_unreachable_server_leaves_nothing_bound(cluster):
    gang = gang_with_claims(cluster, 2)

    async def unreachable(call, _serve):
        raise Unreachable(str(call))

    reached = len(cluster.calls)
    cluster.faults += [(lambda _call: len(cluster.calls) > reached + 3, unreachable)] * 200
    outcome = await run(cluster, gang)
    assert outcome.reason
    assert cluster.nodes() == {}


async def test_no_pod_is_bound_onto_a_device_that_was_given_away_after_an_earlier_attempt(cluster):
    pod, claim = cluster.add_pod("worker-0"), cluster.add_claim("gpu-0")
    cluster.allocate("gpu-0", device("gpu-0", "node-a"), pod)
    cluster.add_claim("foreign")
    cluster.allocate("foreign", device("gpu-0", "node-a"), cluster.add_pod("stranger"))
    outcome = await run(cluster, gang_of(placed(pod, "node-a", claim)))
    assert "also allocated to claim team-a/foreign" in outcome.reason
    assert cluster.nodes() == {}
    assert cluster.devices() == {"foreign": ("gpu-0",)}


async def number(found, *, turns=0):
    for _ in range(turns):
        await asyncio.sleep(0)
    return found


async def failing():
    raise ValueError("no")


async def test_results_come_in_order_whoever_ends_first():
    assert await gather_all([number(1, turns=3), number(2), number(3, turns=1)]) == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 2])
async def test_an_exception_is_raised(count):
    with pytest.raises(ValueError, match="no"):
        await gather_all([failing(), *(number(i) for i in range(count - 1))])


@pytest.mark.parametrize("count", [0, 1])
async def test_none_and_one_need_no_turn_of_the_event_loop(count):
    turned = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    assert await gather_all(number(i) for i in range(count)) == list(range(count))
    assert not turned
