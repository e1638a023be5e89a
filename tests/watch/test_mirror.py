"""The mirror against a server of several collections that come and go."""

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest

from kai_py.observe.health import stale_watches, unreachable_kinds, unsynced_kinds
from kai_py.watch import kinds
from kai_py.watch.client import Client
from kai_py.watch.mirror import Mirror
from tests.watch import virtual_time
from tests.watch.cluster_server import CLAIMS, KINDS, PODS, QUEUES, ClusterServer
from tests.watch.collection_server import CollectionServer


def queue(name, **spec):
    return {"apiVersion": "scheduling.kai.io/v1alpha1", "kind": "Queue", "spec": spec}


@asynccontextmanager
async def mirrored(server, *, kinds=KINDS, **hears):
    mirror = Mirror(Client(server), kinds, **hears)
    task = asyncio.ensure_future(mirror.run())
    try:
        yield mirror
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


def names(mirror, kind):
    return [name for _, name in mirror.objects(kind)]


def status(mirror, kind):
    return next(item for item in mirror.status() if item.kind == kind)


@virtual_time.test
async def test_mirror_reads_what_is_served_and_tells_of_every_change():
    server = ClusterServer(QUEUES)
    server.collections[PODS].put("p", spec={"nodeName": "n"})
    told = []
    async with mirrored(server) as mirror:
        mirror.subscribe(lambda kind, old, new: told.append((kind.plural, old, new)))
        assert not mirror.synced
        await asyncio.wait_for(mirror.wait_synced(), 10)
        assert mirror.synced
        pod = mirror.objects(kinds.PODS)["default", "p"]
        assert pod.spec.node_name == "n"
        assert told == [("pods", None, pod)]
        server.collections[QUEUES].put("q", **queue("q", maxGPUs=3))
        await asyncio.sleep(0.1)
        (watched,) = mirror.objects(kinds.QUEUES).values()
        assert watched.queue.spec.max_gpus == 3
        assert mirror.served(kinds.RESOURCE_CLAIMS) is None
        assert not mirror.objects(kinds.RESOURCE_CLAIMS)
        server.collections[PODS].delete("p")
        await asyncio.sleep(0.1)
        assert told[1:] == [("queues", None, watched), ("pods", pod, None)]


@virtual_time.test
async def test_late_subscriber_is_told_what_is_known():
    server = ClusterServer(QUEUES)
    server.collections[PODS].put("p")
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        told = []
        mirror.subscribe(lambda kind, old, new: told.append((old, new)), kinds.PODS)
        assert told == [(None, mirror.objects(kinds.PODS)["default", "p"])]
        server.collections[QUEUES].put("q", **queue("q"))
        await asyncio.sleep(1)
        assert len(told) == 1


@virtual_time.test
async def test_kinds_that_come_and_go_are_followed():
    server = ClusterServer()
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        for _ in range(2):
            server.collections[QUEUES] = CollectionServer()
            server.collections[QUEUES].put("q", **queue("q"))
            await asyncio.sleep(40)
            assert names(mirror, kinds.QUEUES) == ["q"]
            assert status(mirror, "Queue").api_version == "scheduling.kai.io/v1alpha1"
            told = []
            mirror.subscribe(lambda kind, old, new, told=told: told.append(new), kinds.QUEUES)
            server.remove(QUEUES)
            await asyncio.sleep(5)
            assert names(mirror, kinds.QUEUES) == []
            assert told[-1] is None
            assert status(mirror, "Queue").api_version == ""
        assert mirror.synced


@virtual_time.test
async def test_collection_that_is_missing_though_listed_is_not_asked_in_a_loop():
    server = ClusterServer(QUEUES)
    server.collections[QUEUES].put("q", **queue("q"))
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        server.collections[QUEUES].missing = True
        server.collections[QUEUES].cut()
        server.asked.clear()
        await asyncio.sleep(20)
        assert 3 <= server.asked.count("/apis") <= 10
        assert names(mirror, kinds.QUEUES) == ["q"]
        assert "404" in status(mirror, "Queue").problem
        server.collections[QUEUES].missing = False
        await asyncio.sleep(60)
        assert status(mirror, "Queue").problem == ""


@virtual_time.test
async def test_version_that_is_withdrawn_is_replaced_without_losing_objects():
    server = ClusterServer(CLAIMS.format("v1beta1"))
    server.collections[CLAIMS.format("v1beta1")].put("c")
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        told = []
        mirror.subscribe(lambda *change: told.append(change), kinds.RESOURCE_CLAIMS)
        claims = server.collections[CLAIMS.format("v1beta1")]
        server.collections[CLAIMS.format("v1")] = claims
        server.remove(CLAIMS.format("v1beta1"))
        await asyncio.sleep(5)
        assert mirror.served(kinds.RESOURCE_CLAIMS).version == "v1"
        claims.put("d")
        await asyncio.sleep(5)
        assert names(mirror, kinds.RESOURCE_CLAIMS) == ["c", "d"]
        assert len(told) == 2


@virtual_time.test
async def test_server_that_is_not_there_yet_is_waited_for():
    server = ClusterServer()
    server.down = True
    async with mirrored(server) as mirror:
        await asyncio.sleep(120)
        assert len(server.asked) < 20
        assert "down" in status(mirror, "Pod").problem
        assert not status(mirror, "Pod").synced
        server.down = False
        await asyncio.wait_for(mirror.wait_synced(), 60)
        assert status(mirror, "Pod").problem == ""


CLAIMS_V1 = CLAIMS.format("v1")


@pytest.mark.parametrize("answers_after", [10, 100])
@virtual_time.test
async def test_a_group_that_does_not_answer_at_the_start_is_waited_for(answers_after):
    server = ClusterServer(CLAIMS_V1)
    server.collections[CLAIMS_V1].put("c")
    server.broken.add("/apis/resource.k8s.io/v1")
    async with mirrored(server) as mirror:
        await asyncio.sleep(9)
        assert not mirror.synced
        assert "503" in "".join(unsynced_kinds(mirror.status()))
        await asyncio.sleep(answers_after - 9)
        assert mirror.synced is (answers_after == 100), "it is optional"
        server.broken.clear()
        await asyncio.sleep(35)
        assert mirror.synced
        assert names(mirror, kinds.RESOURCE_CLAIMS) == ["c"]
        assert unsynced_kinds(mirror.status()) == []


@virtual_time.test
async def test_the_group_of_a_required_kind_is_waited_for_until_it_answers():
    server = ClusterServer(QUEUES)
    server.collections[QUEUES].put("q", **queue("q"))
    server.broken.add("/apis/scheduling.kai.io/v1alpha1")
    async with mirrored(server) as mirror:
        await asyncio.sleep(1000)
        assert not mirror.synced
        assert len(server.asked) < 300
        server.broken.clear()
        await asyncio.wait_for(mirror.wait_synced(), 60)
        assert names(mirror, kinds.QUEUES) == ["q"]


@virtual_time.test
async def test_a_kind_that_is_served_only_in_unknown_versions_is_told_once(caplog):
    async with mirrored(ClusterServer(CLAIMS_V1.replace("/v1/", "/v7/"))) as mirror:
        await asyncio.wait_for(mirror.wait_synced(), 60)
        await asyncio.sleep(3600)
    (said,) = [r.message for r in caplog.records if "served in" in r.message]
    assert "ResourceClaim of resource.k8s.io is served in v7, but read only in v1" in said


@virtual_time.test
async def test_the_missing_crd_of_queues_is_told_once_and_once_that_it_came(caplog):
    caplog.set_level("INFO")

    def said():
        return [
            r.message for r in caplog.records if "serves" in r.message and "Queues" in r.message
        ]

    server = ClusterServer()
    async with mirrored(server) as mirror:
        await asyncio.wait_for(mirror.wait_synced(), 60)
        await asyncio.sleep(600)
        (missing,) = said()
        assert "serves no Queues (queues.scheduling.kai.io): the CRD is not inst" in missing
        assert "kai-py crds | kubectl apply -f -" in missing
        server.collections[QUEUES] = CollectionServer()
        await asyncio.sleep(600)
        assert said()[1:] == ["the API server serves Queues now; they are read"]


def test_an_optional_kind_that_is_refused_is_gone_without_until_it_may_be_read(caplog):
    async def main():
        server = ClusterServer(CLAIMS_V1)
        server.refused.add(CLAIMS_V1)
        server.collections[CLAIMS_V1].put("c")
        heard = []

        def hear(kind, *, refused):
            heard.append((kind.name, refused))

        async with mirrored(server, on_refused=hear) as mirror:
            await asyncio.sleep(4)
            assert not mirror.synced, "a server that has just started refuses for a moment"
            await asyncio.wait_for(mirror.wait_synced(), 60)
            await asyncio.sleep(600)
            assert heard == [("ResourceClaim", True)]
            claims = status(mirror, "ResourceClaim")
            assert claims.missing_permission == "resourceclaims.resource.k8s.io"
            assert (claims.synced, claims.required) == (False, False)
            said = [r.message for r in caplog.records if "resourceclaim" in r.message.lower()]
            assert len(said) == 2, "the refusal, and what follows from it"
            assert "permission to list and watch it is missing" in said[1]
            server.refused.clear()
            await asyncio.sleep(60)
            assert names(mirror, kinds.RESOURCE_CLAIMS) == ["c"]
            assert heard == [("ResourceClaim", True), ("ResourceClaim", False)]
            assert status(mirror, "ResourceClaim").missing_permission == ""

    caplog.set_level("INFO", logger="kai_py.watch")
    virtual_time.run(main())


@virtual_time.test
async def test_a_refusal_that_passes_quickly_is_waited_out():
    server = ClusterServer(CLAIMS_V1)
    server.refused.update((CLAIMS_V1, PODS))
    heard = []

    def hear(kind, *, refused):
        heard.append((kind.name, refused))

    async with mirrored(server, on_refused=hear) as it:
        await asyncio.sleep(4)
        server.refused.clear()
        await asyncio.wait_for(it.wait_synced(), 10)
        assert it.has_read(kinds.RESOURCE_CLAIMS)
        assert heard == []


@virtual_time.test
async def test_a_required_kind_that_is_refused_is_waited_for_and_its_permission_named():
    server = ClusterServer(QUEUES)
    server.refused.update((PODS, QUEUES))
    async with mirrored(server) as mirror:
        await asyncio.sleep(600)
        assert not mirror.synced
        assert unsynced_kinds(mirror.status()) == [
            "Pod: not read yet: the permission to list and watch pods is missing",
            "Queue: not read yet: the permission to list and watch queues.scheduling.kai.io "
            "is missing",
        ]
        assert stale_watches(mirror.status()) == [], "a restart would not help"
        server.refused.clear()
        await asyncio.wait_for(mirror.wait_synced(), 60)


@virtual_time.test
async def test_an_outage_of_any_length_calls_for_no_restart():
    server = ClusterServer()
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        server.down = True
        server.collections[PODS].cut()
        for _ in range(60):
            await asyncio.sleep(10)
            assert stale_watches(mirror.status()) == []
            [said] = unreachable_kinds(mirror.status())
            assert "down" in said
        server.down = False
        await asyncio.sleep(60)
        assert unreachable_kinds(mirror.status()) == []


@virtual_time.test
async def test_what_was_read_stays_when_it_is_refused_later_and_grows_stale():
    server = ClusterServer(CLAIMS_V1)
    server.collections[CLAIMS_V1].put("c")
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        server.refused.add(CLAIMS_V1)
        server.collections[CLAIMS_V1].cut()
        await asyncio.sleep(200)
        assert names(mirror, kinds.RESOURCE_CLAIMS) == ["c"]
        claims = status(mirror, "ResourceClaim")
        assert claims.missing_permission == "resourceclaims.resource.k8s.io"
        assert stale_watches([claims]) == [], "a restart would lose what was read"
        [said] = unreachable_kinds([claims])
        assert said.endswith(
            "the permission to list and watch resourceclaims.resource.k8s.io is missing"
        )
        server.refused.clear()
        await asyncio.sleep(60)
        assert status(mirror, "ResourceClaim").missing_permission == ""
        assert unreachable_kinds([status(mirror, "ResourceClaim")]) == []


@virtual_time.test
async def test_status_counts_objects_ages_and_rejects():
    server = ClusterServer(QUEUES)
    server.collections[PODS].put("p")
    server.collections[QUEUES].put("good", **queue("good", deservedGPUs=1, maxGPUs=2))
    server.collections[QUEUES].put("bad", **queue("bad", deservedGPUs=-1))
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        await asyncio.sleep(20)
        pods, claims, queues = mirror.status()
        assert (pods.kind, pods.api_version, pods.synced, pods.objects) == (
            "Pod",
            "v1",
            True,
            1,
        )
        assert pods.age == pytest.approx(20, abs=0.1)
        assert (claims.api_version, claims.synced, claims.objects) == ("", True, 0)
        (rejected,) = queues.rejected
        assert rejected.key == ("default", "bad")
        assert "deservedGPUs" in rejected.reason
        assert names(mirror, kinds.QUEUES) == ["good"]


@virtual_time.test
async def test_listener_that_raises_ends_the_mirror():
    server = ClusterServer()
    mirror = Mirror(Client(server), KINDS)
    mirror.subscribe(lambda kind, old, new: 1 / 0)
    server.collections[PODS].put("p")
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(mirror.run(), 60)
    assert raised.group_contains(ZeroDivisionError)


def test_after_the_first_sync_objects_leave_the_garbage_collector():
    async def main():
        async with mirrored(ClusterServer()) as mirror:
            await mirror.wait_synced()
            await asyncio.sleep(1)
            assert gc.get_freeze_count() > 1000
            assert gc.get_threshold()[0] >= 50_000

    thresholds = gc.get_threshold()
    try:
        virtual_time.run(main())
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_watched_kinds_are_distinct_and_decode_an_empty_object():
    paths = [kind.at(version).collection() for kind in kinds.WATCHED for version in kind.versions]
    assert len(set(paths)) == len(paths)
    for kind in kinds.WATCHED:
        if kind is kinds.QUEUES:
            continue
        for version in kind.versions:
            record = kind.at(version).decode(b'{"metadata":{"name":"x","uid":"u"}}')
            assert (record.metadata.name, record.metadata.namespace) == ("x", "")


@pytest.mark.slow
@virtual_time.test
async def test_null_fields_count_as_absent():
    server = ClusterServer(QUEUES)
    server.collections[PODS].put("p", spec={"nodeName": "n", "tolerations": None})
    async with mirrored(server) as mirror:
        await mirror.wait_synced()
        (pod,) = mirror.objects(kinds.PODS).values()
        assert (pod.spec.node_name, pod.spec.tolerations) == ("n", ())
