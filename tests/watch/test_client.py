"""The client against a scripted server on loopback."""

import asyncio
import json

import pytest
from aiohttp import web

from kai_py import __version__
from kai_py.watch import kinds
from kai_py.watch.client import PatchType
from kai_py.watch.credentials import Anonymous, ServerAccess
from kai_py.watch.errors import (
    Conflict,
    CredentialsError,
    InvalidName,
    Malformed,
    TimedOut,
    Unauthorized,
    Unreachable,
)
from kai_py.watch.http_transport import connect
from kai_py.watch.transport import ApiCall
from tests.watch.collection_server import failure, serve, status_response

POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "resourceVersion": "7"},
}
PODS = kinds.PODS.at()


class Script:
    """Answers with what the test says and keeps what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, request):
        self.asked.append((request.method, request.path_qs, await request.read(), request.headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            return await answer(request)
        if isinstance(answer, Exception):
            return status_response(answer)
        return web.json_response(answer)

    @property
    def last(self):
        method, path, body, _ = self.asked[-1]
        return method, path, json.loads(body) if body else None


async def test_objects_are_read_as_records():
    script = Script(POD)
    async with serve(script) as url, connect(Anonymous(url)) as client:
        pod = await client.get(PODS, "p", namespace="ns")
        assert (pod.metadata.uid, pod.spec.scheduler_name) == ("u1", "default-scheduler")
        assert script.last == ("GET", "/api/v1/namespaces/ns/pods/p", None)
        assert script.asked[0][3]["User-Agent"] == f"kai-py/{__version__}"


async def test_each_verb_has_its_method_path_and_body():
    script = Script(POD)
    node = kinds.NODES.at()
    async with serve(script) as url, connect(Anonymous(url)) as client:
        await client.create(PODS, {"metadata": {"name": "p"}}, namespace="ns")
        assert script.last == (
            "POST",
            "/api/v1/namespaces/ns/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
        )
        await client.update(PODS, "p", POD, namespace="ns", subresource="status")
        assert script.last[:2] == ("PUT", "/api/v1/namespaces/ns/pods/p/status")
        await client.patch(node, "n", {"spec": None}, patch_type=PatchType.STRATEGIC)
        assert script.last == ("PATCH", "/api/v1/nodes/n", {"spec": None})
        assert script.asked[-1][3]["Content-Type"] == "application/strategic-merge-patch+json"
        await client.patch(
            node, "n", [{"op": "remove", "path": "/spec"}], patch_type=PatchType.JSON
        )
        assert script.last[2] == [{"op": "remove", "path": "/spec"}]
        assert script.asked[-1][3]["Content-Type"] == "application/json-patch+json"
        claims = kinds.RESOURCE_CLAIMS.at("v1beta1")
        await client.update(claims, "c", {}, namespace="ns")
        assert script.last == (
            "PUT",
            "/apis/resource.k8s.io/v1beta1/namespaces/ns/resourceclaims/c",
            {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim"},
        )
        await client.delete(PODS, "p", namespace="ns", uid="u1", grace_seconds=0)
        assert script.last[0] == "DELETE"
        assert script.last[2] == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u1"},
            "gracePeriodSeconds": 0,
        }
        await client.evict(namespace="ns", pod="p", uid="u1", gracePeriodSeconds=1)
        assert script.last[:2] == ("POST", "/api/v1/namespaces/ns/pods/p/eviction")
        asked = {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 1}
        assert script.last[2]["deleteOptions"] == asked


async def test_binding_carries_the_uid():
    script = Script({"kind": "Status", "status": "Success", "code": 201})
    async with serve(script) as url, connect(Anonymous(url)) as client:
        await client.bind(namespace="ns", pod="p", uid="u1", node="n1")
    method, path, body = script.last
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    assert body["metadata"]["uid"] == "u1"
    assert body["target"] == {"kind": "Node", "name": "n1"}


WRITES = {
    "bind": lambda client: client.bind(namespace="ns", pod="p", uid="u1", node="n1"),
    "evict": lambda client: client.evict(namespace="ns", pod="p", uid="u1"),
    "delete": lambda client: client.delete(PODS, "p", namespace="ns"),
    "create": lambda client: client.create(PODS, {}, namespace="ns"),
    "update": lambda client: client.update(PODS, "p", {}, namespace="ns"),
    "patch": lambda client: client.patch(PODS, "p", {}, namespace="ns"),
    "may list": lambda client: client.check_list(PODS),
}


@pytest.mark.parametrize("verb", WRITES)
async def test_success_without_an_answer_of_the_server_proves_nothing(verb):
    page = web.Response(text="<html>Sign in</html>", content_type="text/html")

    async def sign_in(_request):
        return page

    for answer in (sign_in, {}, {"status": "ok"}):
        async with serve(Script(answer)) as url, connect(Anonymous(url)) as client:
            with pytest.raises(Malformed):
                await WRITES[verb](client)


async def test_a_page_without_a_version_is_no_empty_list():
    status = {"kind": "Status", "metadata": {}, "status": "Success"}
    async with serve(Script(status)) as url, connect(Anonymous(url)) as client:
        with pytest.raises(Malformed, match="without a resourceVersion"):
            await client.list(PODS, namespace="ns")


async def test_list_reads_all_pages():
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [POD]}
    second = {"metadata": {"resourceVersion": "9"}, "items": None}
    script = Script(first, second)
    async with serve(script) as url, connect(Anonymous(url)) as client:
        listing = await client.list(PODS, namespace="ns", label_selector="a=b,c", page_size=1)
    assert [pod.metadata.name for pod in listing.items] == ["p"]
    assert listing.resource_version == "9"
    assert [path for _, path, _, _ in script.asked] == [
        "/api/v1/namespaces/ns/pods?labelSelector=a%3Db,c&limit=1",
        "/api/v1/namespaces/ns/pods?labelSelector=a%3Db,c&limit=1&continue=more",
    ]


async def test_calls_are_counted_by_verb_kind_and_code():
    counted = []
    script = Script(POD, failure(409), {"kind": "Status", "status": "Success"})
    async with (
        serve(script) as url,
        connect(Anonymous(url), on_call=lambda *call: counted.append(call)) as client,
    ):
        await client.get(PODS, "p", namespace="ns")
        with pytest.raises(Conflict):
            await client.update(PODS, "p", POD, namespace="ns", subresource="status")
        await client.bind(namespace="ns", pod="p", uid="u", node="n")
    assert [call[:3] for call in counted] == [
        ("get", "Pod", 200),
        ("update", "Pod/status", 409),
        ("create", "Pod/binding", 200),
    ]
    assert all(0 < seconds < 5 and not failure for *_, seconds, failure in counted)


async def test_a_slow_server_times_out_and_an_absent_one_is_unreachable():
    async def never(request):
        await asyncio.sleep(3)

    counted = []
    async with (
        serve(Script(never)) as url,
        connect(
            Anonymous(url), timeout_seconds=0.05, on_call=lambda *call: counted.append(call)
        ) as client,
    ):
        with pytest.raises(TimedOut, match="GET /version"):
            await client.read("/version", kind="Version")
    async with connect(Anonymous(url), on_call=lambda *call: counted.append(call)) as client:
        with pytest.raises(Unreachable, match="GET /version"):
            await client.read("/version", kind="Version")
    assert [call[2] for call in counted] == [0, 0]
    late, refused = (call[4] for call in counted)
    assert late == "GET /version: no answer in time"
    assert refused.startswith("GET /version: cannot connect to 127.0.0.1:")


async def test_an_answer_that_is_no_object_is_malformed():
    async with serve(Script([1])) as url, connect(Anonymous(url)) as client:
        with pytest.raises(Malformed, match="GET /api/v1/namespaces/ns/pods/p"):
            await client.get(PODS, "p", namespace="ns")
        with pytest.raises(Malformed):
            await client.list(PODS)


async def test_watches_do_not_take_the_connections_of_calls():
    async def watch_or_pod(request):
        if "watch" not in request.query:
            return web.json_response(POD)
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(3)
        return response

    watch = ApiCall("watch", "Pod", "/api/v1/pods", {"watch": "true"})
    async with (
        serve(Script(watch_or_pod)) as url,
        connect(Anonymous(url), connections=1, timeout_seconds=2) as client,
        client.transport.stream(watch, idle=60),
        client.transport.stream(watch, idle=60),
    ):
        assert (await client.get(PODS, "p", namespace="ns")).metadata.name == "p"


class Rotating:
    """Credentials whose token is another one each time it is read from scratch."""

    def __init__(self, url):
        self.url = url
        self.loads = 0

    def load(self):
        self.loads += 1
        return self.renew()

    def renew(self):
        return ServerAccess(server=self.url, authorization=f"Bearer {self.loads}")


async def test_a_refused_token_is_read_again_and_tried_once_more():
    async def second_only(request):
        ok = request.headers["Authorization"] == "Bearer 2"
        return web.json_response(POD) if ok else status_response(failure(401))

    script = Script(second_only)
    async with serve(script) as url, connect(Rotating(url)) as client:
        await asyncio.gather(*(client.get(PODS, "p", namespace="ns") for _ in range(5)))
    assert sum(1 for *_, headers in script.asked if headers["Authorization"] == "Bearer 2") == 5


async def test_a_server_that_refuses_everything_does_not_run_the_plugin_in_a_loop():
    async with serve(Script(failure(401))) as url:
        credentials = Rotating(url)
        async with connect(credentials) as client:
            for _ in range(10):
                with pytest.raises(Unauthorized):
                    await client.get(PODS, "p", namespace="ns")
    assert credentials.loads == 2


async def test_missing_credentials_are_told_before_the_first_call():
    class Absent:
        def load(self):
            raise CredentialsError("no kubeconfig")

    with pytest.raises(CredentialsError, match="no kubeconfig"):
        async with connect(Absent()):
            pass


def test_paths_need_a_namespace_exactly_for_namespaced_kinds():
    with pytest.raises(ValueError, match="Pod /p: this kind needs a namespace"):
        PODS.object("p")
    with pytest.raises(ValueError, match="has no namespace"):
        kinds.NODES.at().object("n", "ns")


@pytest.mark.parametrize("name", ["", ".", "..", "../../secrets/s", "p/status", "p%2fstatus"])
def test_a_name_that_no_object_has_makes_no_path(name):
    with pytest.raises(InvalidName, match="no object has such a name"):
        PODS.object(name, "ns")


def test_a_name_stays_one_segment_of_the_path():
    assert PODS.object("p?watch=true#x y", "ns") == (
        "/api/v1/namespaces/ns/pods/p%3Fwatch=true%23x%20y"
    )
    assert kinds.NODES.at().object("system:node-1.example") == "/api/v1/nodes/system:node-1.example"
