"""What a pod and its volumes are told before it is bound.

A binding that the API has lost is not assumed for ever.
"""

import pytest

from kai_py.api.gpu_share import SharedGpu, shared_gpu_metadata
from kai_py.api.records.core import Pod
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.binding import BindingOutcome
from kai_py.commit.maintenance import UnseenBindings
from kai_py.embedded.resources import VOLUME_CLAIMS, VOLUMES
from kai_py.plan.plan import Placement
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.watch.errors import Malformed
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import NAMESPACE, gang_of, refuse, run


async def test_a_pod_is_told_its_part_of_a_gpu_before_it_is_bound(cluster):
    former = (SharedGpu("old-1"), SharedGpu("old-2"))
    stale, _ = shared_gpu_metadata(former)
    pod = cluster.add_pod("part", labels=stale)
    placement = Placement(pod, "node-a", gpus=(SharedGpu("g", 2),), former_gpus=former)
    outcome = await run(cluster, gang_of(placement))
    assert len(outcome.bound) == 1
    meta = cluster.pod("part").metadata
    assert meta.labels == {"runai-gpu-group": "g"}
    assert meta.annotations["scheduling.kai.io/gpu-index"] == "2"
    assert meta.annotations["received-resource-type"] == "Fraction"
    written = [call.verb for call in cluster.calls]
    assert written == ["patch", "create"]


async def test_volume_claims_are_told_the_node_before_the_pod_is_bound(cluster):
    pod = cluster.add_pod("part")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    document = {"metadata": {"name": "data"}, "spec": {**spec, "storageClassName": "local"}}
    cluster.api.create(VOLUME_CLAIMS, document, NAMESPACE)
    outcome = await run(cluster, gang_of(Placement(pod, "node-a", provision=("data",))))
    assert len(outcome.bound) == 1
    told = cluster.api.find(VOLUME_CLAIMS, "data", NAMESPACE)["metadata"]["annotations"]
    assert told == {"volume.kubernetes.io/selected-node": "node-a"}
    assert [call.verb for call in cluster.calls] == ["patch", "create"]


async def test_a_binding_that_a_policy_refuses_is_not_repeated(cluster):
    pod = cluster.add_pod("part")
    for _ in range(3):
        cluster.fail_once("create", "Pod/binding", refuse(422, "Invalid", message="denied"))
    outcome = await run(cluster, gang_of(Placement(pod, "node-a")))
    assert [each.outcome for each in outcome.bindings] == [BindingOutcome.FAILED]
    assert "denied" in outcome.bindings[0].reason
    assert cluster.made("create", "Pod/binding") == 1


DATA = ClaimRef(NAMESPACE, "data", "data-uid")


def volume(name="disk", **spec):
    offered = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    return {"metadata": {"name": name}, "spec": offered | {"local": {"path": "/disk"}} | spec}


async def test_a_chosen_volume_is_told_its_claim_before_the_pod_is_bound(cluster):
    pod = cluster.add_pod("part")
    cluster.api.create(VOLUMES, volume())
    given = Placement(pod, "node-a", volumes=((DATA, "disk"),))
    outcome = await run(cluster, gang_of(given))
    assert len(outcome.bound) == 1
    held = cluster.api.find(VOLUMES, "disk", "")["spec"]["claimRef"]
    assert (held["namespace"], held["name"], held["uid"]) == (NAMESPACE, "data", "data-uid")
    assert [call.verb for call in cluster.calls] == ["get", "patch", "create"]


async def test_a_volume_of_another_claim_is_left_alone_and_the_pod_unbound(cluster):
    pod = cluster.add_pod("part")
    cluster.api.create(VOLUMES, volume(claimRef={"namespace": "else", "name": "data"}))
    given = Placement(pod, "node-a", volumes=((DATA, "disk"),))
    outcome = await run(cluster, gang_of(given))
    assert outcome.bound == ()
    assert "volume disk was bound to claim else/data" in outcome.failures[0].reason
    assert cluster.nodes() == {}


async def test_a_pod_made_again_is_not_told(cluster):
    pod = cluster.add_pod("part")
    other = PodRef(pod.namespace, pod.name, "another-uid")
    placement = Placement(other, "node-a", gpus=(SharedGpu("g", 0),))
    outcome = await run(cluster, gang_of(placement))
    assert [b.outcome for b in outcome.bindings] == [BindingOutcome.DELETED]
    assert not cluster.pod("part").metadata.labels


class Watching:
    """Passes over pods that are assumed to be bound."""

    def __init__(self, cluster) -> None:
        self.cluster, self.cache, self.in_flight = cluster, RecordingAssumeCache(), set()
        self.access = cluster.access()
        self.passes = UnseenBindings(self.access, self.cache, lambda: self.in_flight, 90.0)

    async def at(self, *moments: float) -> list[str]:
        for now in moments:
            await self.passes.run_once(self.cluster.pods, now)
        return self.cache.forgotten

    async def bind(self, pod) -> None:
        await self.access.client.bind(namespace=NAMESPACE, pod=pod.name, uid=pod.uid, node="node-a")


@pytest.fixture
def watching(cluster):
    return Watching(cluster)


async def test_a_binding_that_is_lost_is_forgotten_after_the_grace(cluster, watching):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    assert await watching.at(0.0, 30.0, 89.0) == []
    assert await watching.at(90.0) == [pod.uid]
    assert await watching.at(120.0, 300.0) == [pod.uid], "once"


async def test_a_pod_that_the_api_has_on_a_node_stays_assumed(cluster, watching):
    pod = cluster.add_pod("worker-0")
    await watching.bind(pod)
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    assert await watching.at(0.0, 90.0, 900.0) == []


async def test_a_binding_under_way_cannot_arrive_afterwards(cluster, watching):
    pod = cluster.add_pod("worker-0")
    before = cluster.pods()[0].metadata.resource_version
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    await watching.at(0.0, 90.0)
    assert cluster.pods()[0].metadata.resource_version != before


async def test_a_pod_in_a_transaction_is_left_to_it(cluster, watching):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    watching.in_flight.add(pod.uid)
    assert await watching.at(0.0, 90.0, 900.0) == []
    watching.in_flight.clear()
    assert await watching.at(901.0, 990.0) == [], "the time runs from the end of the transaction"
    assert await watching.at(991.0) == [pod.uid]


async def test_what_cannot_be_read_stays_assumed(cluster, watching, monkeypatch):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))

    async def failing(*_, **__) -> Pod:
        raise Malformed("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(watching.access.client, "get", failing)
        assert await watching.at(0.0, 90.0) == []
    assert await watching.at(91.0) == [pod.uid]


async def test_a_pod_that_commit_forgot_meanwhile_is_not_touched(cluster, watching):
    pod = cluster.add_pod("worker-0")
    watching.cache.assume(AssumedBinding(pod.uid, "node-a"))
    await watching.at(0.0)
    watching.cache.assumed.clear()
    assert await watching.at(90.0) == []
