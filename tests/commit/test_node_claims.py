"""What claims take of a node stands in the pod's status before the pod is bound (KEP-5517)."""

import msgspec
import pytest

from kai_py.commit.claims.extended_resources import write_node_claims
from kai_py.plan.plan import NodeClaim, Placement
from tests.commit.cluster import Cluster, gang_of, refuse, transaction
from tests.support.records import replace

REFERRING = {"name": "main", "image": "x", "resources": {"claims": [{"name": "cpus"}]}}
OTHER = {"name": "other", "image": "x"}
ENTRY = {"resourceClaimName": "worker-0", "resources": {"cpu": "4"}}


def placement(cluster):
    pod = cluster.add_pod(
        "worker-0",
        containers=[REFERRING, OTHER],
        resourceClaims=[{"name": "cpus", "resourceClaimName": "worker-0"}],
    )
    return Placement(pod, "node-a", node_claims=(NodeClaim("cpus", ENTRY),))


async def run(cluster, *placements):
    begun = transaction(cluster, gang_of(*placements), find_pod=lambda ref: cluster.pod(ref.name))
    return await begun.run()


def written(cluster):
    pod = cluster.pod("worker-0")
    return msgspec.json.decode(
        msgspec.json.encode(pod.status.node_allocatable_resource_claim_statuses)
    )


async def test_the_status_is_there_before_the_pod_is_bound():
    cluster = Cluster()
    outcome = await run(cluster, placement(cluster))
    assert outcome.reason == ""
    [entry] = written(cluster)
    assert (entry["resourceClaimName"], entry["containers"]) == ("worker-0", ["main"])
    assert entry["resources"] == {"cpu": "4"}
    kinds = [call.kind for call in cluster.calls]
    assert kinds.index("Pod/status") < kinds.index("Pod/binding")


async def test_what_an_earlier_attempt_wrote_goes_with_a_node_that_needs_none():
    cluster = Cluster()
    first = placement(cluster)
    assert await write_node_claims(cluster.access(), first, None) == ""
    assert written(cluster)
    await run(cluster, Placement(first.pod, "node-b"))
    assert cluster.nodes() == {"worker-0": "node-b"}
    assert written(cluster) == []


async def test_a_refusal_leaves_the_pod_unbound():
    cluster = Cluster()
    cluster.fail_once("patch", "Pod/status", refuse(403, "Forbidden"))
    outcome = await run(cluster, placement(cluster))
    assert outcome.reason
    assert cluster.nodes() == {}


@pytest.mark.parametrize("kept", [True, False])
async def test_a_server_without_the_feature_drops_it_and_the_pod_starts(kept):
    cluster = Cluster()
    send = cluster.send

    async def forgetful(call, *, timeout_seconds=None):
        if not kept and call.body and b"nodeAllocatable" in call.body:
            call = replace(call, body=b'{"status":{}}')
        return await send(call, timeout_seconds=timeout_seconds)

    cluster.send = forgetful
    outcome = await run(cluster, placement(cluster))
    assert outcome.reason == ""
    assert bool(written(cluster)) is kept
