"""The HTTP front: discovery, health, injected faults, compaction. Verbs are in tests/cluster."""

import asyncio
import contextlib
import json

import aiohttp
import pytest
import yaml

from kai_py.embedded.clock import SimulatedClock
from kai_py.embedded.resources import CONFIG_MAPS
from tests.embedded.manifests import config_map, queue, queue_definition
from tests.support.faulty_cluster import (
    CutWatch,
    Delay,
    DropReply,
    DropRequest,
    Fault,
    FaultyCluster,
    Refuse,
)
from tests.support.patience import patience

pytestmark = pytest.mark.cluster

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def served():
    async with FaultyCluster(clock=SimulatedClock(), controllers=False, kubelet=False) as cluster:
        yield cluster


@pytest.fixture
async def client(served):
    async with aiohttp.ClientSession(served.url) as session:
        yield session


async def get(client, path, **parameters):
    async with client.get(path, params=parameters) as answer:
        return answer.status, await answer.json()


async def lines(client, path, **parameters):
    """Return the lines of a watch until it ends, whole or cut."""
    content = b""
    async with client.get(
        path, params={"watch": "true", "timeoutSeconds": "1", **parameters}
    ) as answer:
        try:
            async for chunk in answer.content.iter_any():
                content += chunk
        except aiohttp.ClientPayloadError:
            pass
    return content.split(b"\n")


async def test_health_and_version(client):
    for path in ("/healthz", "/readyz", "/livez"):
        async with client.get(path) as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
    assert (await get(client, "/version"))[1]["major"] == "1"


async def test_discovery_lists_every_kind_and_custom_ones_as_they_come(served, client):
    _, core = await get(client, "/api/v1")
    named = {each["name"]: each for each in core["resources"]}
    assert named["pods"]["shortNames"] == ["po"]
    assert named["pods/binding"]["verbs"] == ["create"]
    assert (await get(client, "/apis/example.com/v1"))[0] == 404
    served.create(queue_definition())
    _, custom = await get(client, "/apis/example.com/v1")
    assert [each["name"] for each in custom["resources"]] == ["queues", "queues/status"]
    _, groups = await get(client, "/apis")
    assert "example.com" in [each["name"] for each in groups["groups"]]
    _, index = await get(client, "/openapi/v3")
    status, document = await get(client, index["paths"]["apis/example.com/v1"]["serverRelativeURL"])
    assert status == 200
    assert "/apis/example.com/v1/queues/{name}" in document["paths"]


async def test_a_body_in_another_encoding_is_refused(client):
    kinds = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with client.post(MAPS, data=b"k8s\x00", headers=kinds) as answer:
        assert answer.status == 415
    async with client.post(MAPS, data=b"{", headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 400
    async with client.get(
        MAPS, headers={"Accept": "application/vnd.kubernetes.protobuf"}
    ) as answer:
        assert answer.status == 406


async def test_unknown_fields_warn(served, client):
    served.create(queue_definition())
    body = queue("a", deservedGPUs=1, colour="red")
    async with client.post("/apis/example.com/v1/queues", json=body) as answer:
        assert answer.status == 201
        assert answer.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'


async def test_warnings_are_as_many_as_an_answer_can_have(served, client):
    """The API server cuts them to 256 characters once they have more than 4,096 together."""
    served.create(queue_definition())
    fields = {f"{number}\n\x1b{'x' * 1000}": 1 for number in range(2000)}
    body = queue("a", deservedGPUs=1, **fields)
    async with client.post("/apis/example.com/v1/queues", json=body) as answer:
        assert answer.status == 201
        told = answer.headers.getall("Warning")
    assert len(told) == 16
    assert all("\\n\\x1b" in each and len(each) < 280 for each in told)


async def test_a_field_that_is_null_is_absent(served, client):
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": None, "status": None}
    path = "/api/v1/namespaces/default/persistentvolumeclaims"
    async with client.post(path, json={**claim, "metadata": {"name": "a"}}) as answer:
        assert answer.status < 500


async def test_refusals_act_so_many_times_on_what_they_match(served, client):
    refusal = Refuse(code=429, reason="TooManyRequests", retry_after=7)
    fault = served.faults.add(Fault(effect=refusal, times=2, verb="list", resource="configmaps"))
    async with client.get(MAPS) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
        assert (await answer.json())["details"]["retryAfterSeconds"] == 7
    assert (await get(client, "/api/v1/pods"))[0] == 200
    assert (await get(client, f"{MAPS}/a"))[0] == 404
    assert (await get(client, MAPS))[0] == 429
    assert (await get(client, MAPS))[0] == 200
    assert fault.hits == 2


async def test_a_fault_can_skip_and_can_last(served, client):
    served.faults.add(Fault(effect=Refuse(), skip=1, times=None, verb="list"))
    assert [(await get(client, MAPS))[0] for _ in range(4)] == [200, 500, 500, 500]
    served.faults.clear()
    assert (await get(client, MAPS))[0] == 200


async def test_a_lost_request_does_nothing_and_a_lost_reply_did_it(served, client):
    for effect, done in ((DropRequest(), False), (DropReply(), True)):
        served.faults.add(Fault(effect=effect, verb="create"))
        name = type(effect).__name__.lower()
        with pytest.raises(aiohttp.ClientConnectionError):
            async with client.post(MAPS, json=config_map(name)):
                pass
        assert (served.api.find(CONFIG_MAPS, name, "default") is not None) is done


async def test_a_delayed_request_is_served_late(served, client):
    served.faults.add(Fault(effect=Delay(seconds=0.2), verb="list"))
    before = asyncio.get_running_loop().time()
    assert (await get(client, MAPS))[0] == 200
    assert asyncio.get_running_loop().time() - before >= 0.2


@pytest.mark.parametrize(("torn", "rest"), [(False, True), (True, False)])
async def test_a_watch_is_cut_after_so_many_events(served, client, torn, rest):
    for name in "abc":
        served.create(config_map(name))
    served.faults.add(Fault(effect=CutWatch(events=2, torn=torn), verb="watch"))
    *whole, last = await lines(client, MAPS)
    assert [json.loads(line)["object"]["metadata"]["name"] for line in whole] == ["a", "b"]
    assert (last == b"") is rest
    assert len(await lines(client, MAPS)) == 4


async def test_a_live_watch_hears_of_changes_at_once(served, client):
    parameters = {"watch": "true", "resourceVersion": str(served.store.revision)}
    async with client.get(MAPS, params=parameters) as answer:
        served.create(config_map("a"))
        line = await asyncio.wait_for(answer.content.readline(), patience(1))
    assert json.loads(line)["type"] == "ADDED"


async def test_watching_from_a_compacted_revision_is_gone(served, client):
    start = str(served.store.revision)
    served.create(config_map("a"))
    served.store.compact()
    found = [json.loads(line) for line in await lines(client, MAPS, resourceVersion=start) if line]
    assert [each["type"] for each in found] == ["ERROR"]
    assert (found[0]["object"]["code"], found[0]["object"]["reason"]) == (410, "Expired")


async def test_continuing_a_list_after_a_compaction_is_gone(served, client):
    for name in "abc":
        served.create(config_map(name))
    _, first = await get(client, MAPS, limit="1")
    assert first["metadata"]["remainingItemCount"] == 2
    token = {"continue": first["metadata"]["continue"]}
    assert (await get(client, MAPS, limit="1", **token))[0] == 200
    served.create(config_map("d"))
    served.store.compact()
    assert (await get(client, MAPS, limit="1", **token))[0] == 410
    assert (await get(client, MAPS, limit="1", **{"continue": "nonsense"}))[0] == 410


async def test_a_revision_of_the_future_is_refused(served, client):
    future = str(served.store.revision + 100)
    for parameters in ({}, {"watch": "true"}):
        status, answer = await get(client, MAPS, resourceVersion=future, **parameters)
        assert (status, answer["reason"]) == (504, "Timeout")


async def test_metadata_only_watches(served, client):
    served.create(config_map("a"))
    accept = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    parameters = {"watch": "true", "timeoutSeconds": "1"}
    async with client.get(MAPS, params=parameters, headers=accept) as answer:
        event = json.loads(await answer.content.readline())
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


async def test_tables_are_watched_with_their_columns_once(served, client):
    served.create(config_map("a"))
    bare = config_map("b")
    del bare["data"]
    served.create(bare)
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    parameters = {"watch": "true", "allowWatchBookmarks": "true", **initial}
    async with client.get(MAPS, params=parameters, headers=accept) as answer:
        tables = [json.loads(await answer.content.readline())["object"] for _ in range(3)]
    assert [bool(table["columnDefinitions"]) for table in tables] == [True, False, False]
    cells = [table["rows"][0]["cells"] for table in tables]
    assert cells == [["a", 1, "0s"], ["b", 0, "0s"], []]
    assert tables[2]["rows"][0]["object"]["metadata"]["annotations"]


async def test_the_kubeconfig_names_the_server(served, tmp_path):
    served.write_kubeconfig(tmp_path / "config")
    document = yaml.safe_load((tmp_path / "config").read_text())
    assert document["clusters"][0]["cluster"]["server"] == served.url
    assert document["current-context"] == document["contexts"][0]["name"]


async def test_stopping_ends_the_watches():
    parameters = {"watch": "true"}
    async with (
        FaultyCluster() as cluster,
        aiohttp.ClientSession(cluster.url) as session,
        session.get(MAPS, params=parameters) as answer,
    ):
        await asyncio.wait_for(cluster.front.stop(), patience(2))
        with contextlib.suppress(aiohttp.ClientError):
            await asyncio.wait_for(answer.content.read(), patience(1))
