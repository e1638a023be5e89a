import asyncio
import json
import re
from contextlib import suppress
from importlib import resources

import aiohttp
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from kai_py.grouping.gang import Owner
from kai_py.observe import dashboard, http
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.http import Probes, serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.http_api import PROCESS_ID, ApiSource
from kai_py.observe.kept_history import ShareHistory
from kai_py.observe.metrics import Metrics
from kai_py.observe.suggestion import Suggestion, SuggestionSearch, SuggestionStep, Verb
from kai_py.observe.token_review import TOKEN_VARIABLE, AccessDenial
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan, Stage, Unplaced
from tests.observe.shown import view_of
from tests.support.patience import patience
from tests.support.records import replace
from tests.support.worlds import gang, world

JOB = Owner("batch/v1", "Job", "team-a", "train", "u")


class State:
    def __init__(self):
        self.metrics = Metrics(CollectorRegistry())
        self.unhealthy = []
        self.unready = []
        self.view = None
        self.decisions = DecisionLog()
        self.shares = ShareHistory()


@pytest.fixture
async def state():
    return State()


def probes_of(state):
    return Probes(
        registry=state.metrics.registry,
        unhealthy=lambda: state.unhealthy,
        unready=lambda: state.unready,
        source=ApiSource(lambda: state.view, state.decisions, state.shares),
    )


@pytest.fixture
async def port(state):
    async with serve(probes_of(state), HttpAccess("127.0.0.1"), 0) as port:
        yield port


@pytest.fixture
async def get(port):
    async with aiohttp.ClientSession() as session:

        async def ask(path):
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        yield ask


async def test_probes_say_what_is_wrong(state, get):
    assert await get("/healthz") == (200, "ok\n")
    assert await get("/readyz") == (200, "ok\n")
    state.unhealthy = ["Pod: no watch events and no error for 250 s"]
    state.unready = ["Node: not read yet"]
    assert await get("/healthz") == (503, "Pod: no watch events and no error for 250 s\n")
    assert await get("/readyz") == (503, "Node: not read yet\n")


async def test_the_last_plan_is_json(state, get):
    assert (await get("/v1/plan"))[0] == 503
    unplaced = Unplaced("team-a/Job/train", JOB, "q", Stage.RESOURCES, "no capacity.", ())
    plan = Plan(unplaced=(unplaced,))
    state.view = ClusterView(1, world({}).snapshot(0.0), plan, np.zeros(0))
    status, body = await get("/v1/plan")
    assert status == 200
    assert json.loads(body)["unplaced"][0]["stage"] == "Resources"


async def test_metrics_follow_the_plan(state, get):
    def line(text, start):
        return next((each for each in text.splitlines() if each.startswith(start)), None)

    unplaced = Unplaced("team-a/Job/train", JOB, "q", Stage.RESOURCES, "no capacity.", ())
    share = QueueShare(
        "q", {"gpu": 8.0}, {"gpu": 16.0}, {"gpu": 9.0}, {"gpu": 4.0}, {"gpu": 6.0}, 2
    )
    state.metrics.show_plan(Plan(unplaced=(unplaced, unplaced), queues=(share,)))
    _, text = await get("/metrics")
    assert line(text, 'kai_py_pending_gangs{queue="q",stage="Resources"}').endswith(" 2.0")
    fair = 'kai_py_queue_resources{queue="q",resource="gpu",view="fair_share"}'
    assert line(text, fair).endswith(" 9.0")
    state.metrics.show_plan(Plan())
    _, text = await get("/metrics")
    assert line(text, "kai_py_pending_gangs{") is None
    assert line(text, "kai_py_queue_resources{") is None


async def test_an_open_metrics_scrape_tells_which_cycle_was_slow(state, port, get):
    with state.metrics.timed("plan", 41):
        pass
    headers = {"Accept": "application/openmetrics-text;version=1.0.0"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        text = await response.text()
        assert response.content_type == "application/openmetrics-text"
    assert text.endswith("# EOF\n")
    plan = [line for line in text.splitlines() if "kai_py_cycle_seconds_bucket" in line]
    assert any('stage="plan"' in line and '# {cycle="41"}' in line for line in plan)
    assert "cycle=" not in (await get("/metrics"))[1]


async def test_rates_exist_before_anything_happened(get):
    _, text = await get("/metrics")
    assert 'kai_py_pod_bindings_total{outcome="bound"} 0.0' in text
    assert 'kai_py_evictions_total{action="reclaim",outcome="blocked"} 0.0' in text
    assert 'kai_py_cycle_seconds_count{stage="plan"} 0.0' in text


async def test_api_calls_are_counted_by_verb_kind_and_code(state, get):
    state.metrics.count_call("create", "Pod/binding", 201, 0.002)
    state.metrics.count_call("create", "Pod/binding", 0, 30.0)
    _, text = await get("/metrics")
    assert 'kai_py_api_calls_total{code="201",kind="Pod/binding",verb="create"} 1.0' in text
    assert 'kai_py_api_calls_total{code="0",kind="Pod/binding",verb="create"} 1.0' in text


def look_at(state, snapshot):
    state.view = view_of(snapshot)
    state.decisions.record(state.view.plan, snapshot.gangs, snapshot.now)
    state.shares.record(state.view.plan, snapshot.now)


WAITING = gang("train", pods=2, gpus=8)


async def test_state_nodes_and_explanations_are_json(state, get):
    assert (await get("/v1/state"))[0] == 503
    look_at(state, world({"n1": 4, "n2": 4}, WAITING).snapshot(0.0))
    status, body = await get("/v1/state")
    assert (status, json.loads(body)["pending"][0]["gang"]) == (200, WAITING.key)
    assert json.loads(body)["domains"][0]["fill"] == "00"
    status, body = await get("/v1/nodes?domain=&limit=1")
    assert (status, [node["node"] for node in json.loads(body)["nodes"]]) == (200, ["n1"])
    status, body = await get(f"/v1/explain/gang/{WAITING.key}")
    assert (status, json.loads(body)[0]["state"]) == (200, "Resources")
    status, body = await get("/v1/explain/pod/default/train-1")
    assert (status, json.loads(body)[0]["gang"]) == (200, WAITING.key)
    assert (await get("/v1/explain/gang/missing"))[0] == 404
    assert (await get("/v1/explain/cat/missing"))[0] == 404
    assert (await get("/v1/nodes?domain=elsewhere"))[0] == 404
    assert (await get("/v1/nodes?limit=-1"))[0] == 400


HUGE = "9" * 5000


@pytest.mark.parametrize(
    "query",
    [
        *(f"nodes?offset={text}" for text in (HUGE, "-1", "NaN", "1e3", "٣", "", "0x1", "1.0")),
        *(f"nodes?limit={text}" for text in (HUGE, "all", "%00", "%0d%0aforged")),
        *(f"gangs?limit={text}" for text in (HUGE, "-1")),
        *(f"decisions?since={text}" for text in (HUGE, "-5", "yesterday")),
        *(f"decisions?seconds={text}" for text in (HUGE, "inf")),
        f"explain/gang/{WAITING.key}?seconds={HUGE}",
        f"explain/gang/{WAITING.key}?suggestions=perhaps",
        *(f"events?since={text}" for text in (HUGE, "-x", "x")),
    ],
)
async def test_a_parameter_that_is_no_value_is_refused_with_a_sentence(state, get, query):
    look_at(state, world({"n1": 4}, WAITING).snapshot(0.0))
    status, body = await get(f"/v1/{query}")
    assert status == 400
    assert body.startswith(("expected a whole number", "suggestions must be true or false"))
    assert len(body) < 160
    assert body.count("\n") == 1


async def test_running_gangs_are_told_the_largest_first_by_queue_and_name(state, get):
    assert (await get("/v1/gangs"))[0] == 503
    runs = [gang(name, pods=pods, gpus=2, node="n1", queue=queue) for name, pods, queue in
            (("small", 1, "a"), ("large", 3, "a"), ("other", 2, "b"))]  # fmt: skip
    look_at(state, world({"n1": 16}, *runs, WAITING).snapshot(0.0))

    async def told(query):
        status, body = await get(f"/v1/gangs?{query}")
        assert status == 200
        page = json.loads(body)
        return page["total"], [each["gang"].rpartition("/")[2] for each in page["gangs"]]

    assert await told("") == (3, ["large", "other", "small"])
    assert await told("queue=a&limit=1") == (2, ["large"])
    assert await told("search=SMA") == (1, ["small"])
    (first, *_) = json.loads((await get("/v1/gangs"))[1])["gangs"]
    assert (first["gpus"], first["bound"], first["nodes"]) == (6.0, 3, ["n1"])


async def test_an_explanation_has_what_would_help_and_what_was_decided(state):
    async def advise(gang, _on_found):
        step = SuggestionStep(verb=Verb.DELETE, api_version="batch/v1", kind="Job", name="other")
        return SuggestionSearch(
            (Suggestion(f"let another end for {gang}", (step,)),), is_finished=False
        )

    look_at(state, world({"n1": 4}, WAITING).snapshot(0.0))
    probes = probes_of(state)
    probes = replace(probes, source=replace(probes.source, suggest=advise))
    async with (
        serve(probes, HttpAccess("127.0.0.1"), 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def explained(subject, query=""):
            async with session.get(f"/v1/explain/{subject}{query}") as response:
                assert response.status == 200
                return (await response.json())[0]

        told = await explained(f"gang/{WAITING.key}")
        assert told["suggestions"][0]["text"] == f"let another end for {WAITING.key}"
        assert told["suggestions"][0]["steps"][0]["verb"] == "delete"
        assert [each["stage"] for each in told["history"]] == ["Resources"]
        assert (told["shortage"]["found"], told["shortage"]["needed"]) == (0, 2)
        short = await explained("queue/team", "?suggestions=false")
        assert (short["gang"], short["suggestions"]) == (WAITING.key, [])
        look_at(state, world({"n1": 16}, WAITING).snapshot(60.0))
        told = await explained(f"gang/{WAITING.key}", "?seconds=30")
        assert [each["kind"] for each in told["history"]] == ["placed"]
        assert told["suggestions"] == []
        look_at(state, world({"n1": 16}).snapshot(90.0))
        told = await explained(f"gang/{WAITING.key}")
        assert (told["state"], told["queue"]) == ("Deleted", "team")
        assert [each["kind"] for each in told["history"]] == ["pending", "placed"]


async def test_decisions_and_history_are_json(state, get):
    look_at(state, world({"n1": 4}, WAITING).snapshot(0.0))
    _, body = await get("/v1/decisions")
    assert [(d["number"], d["kind"], d["stage"]) for d in json.loads(body)] == [
        (1, "pending", "Resources")
    ]
    assert json.loads((await get("/v1/decisions?since=1"))[1]) == []
    assert len(json.loads((await get("/v1/decisions?seconds=60"))[1])) == 1
    assert json.loads((await get("/v1/history"))[1])[0]["allocated"] == {"team": 0.0}
    assert (await get("/v1/decisions?since=x"))[0] == 400


async def test_a_state_that_is_known_is_not_sent_again(state, port):
    look_at(state, world({"n1": 4}).snapshot(0.0))
    url = f"http://127.0.0.1:{port}/v1/state"
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as first:
            tag = first.headers["ETag"]
        async with session.get(url, headers={"If-None-Match": tag}) as second:
            assert second.status == 304
        state.view = view_of(world({"n1": 4}).snapshot(1.0), number=2)
        async with session.get(url, headers={"If-None-Match": tag}) as third:
            assert third.status == 200


async def test_events_tell_what_was_missed_and_what_happens(state, port):
    look_at(state, world({"n1": 4}, WAITING).snapshot(0.0))
    url = f"http://127.0.0.1:{port}/v1/events?since=0"
    async with aiohttp.ClientSession() as session, session.get(url) as events:
        assert events.content_type == "text/event-stream"
        first = await events.content.readuntil(b'data: {"cycle":1}\n\n')
        assert f"id: {PROCESS_ID}-1\nevent: decision\n".encode() in first
        snapshot = world({"n1": 16}, WAITING).snapshot(1.0)
        look_at(state, snapshot)
        second = await events.content.readuntil(b'data: {"cycle":2}\n\n')
        assert f'id: {PROCESS_ID}-2\nevent: decision\ndata: {{"kind":"placed"'.encode() in second


async def test_a_reader_that_comes_back_gets_what_it_missed_also_after_a_restart(state, port):
    look_at(state, world({"n1": 4}, WAITING).snapshot(0.0))

    async def heard(last):
        url = f"http://127.0.0.1:{port}/v1/events"
        headers = {"Last-Event-ID": last}
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as events:
            return await events.content.readuntil(b'data: {"cycle":1}\n\n')

    assert b"event: decision" in await heard(f"{PROCESS_ID}-0")
    assert b"event: decision" not in await heard(f"{PROCESS_ID}-1")
    assert b"event: decision" in await heard("another-700")


async def test_tokens_that_are_not_ours_are_reviewed_with_the_path(state, tmp_path):
    (tmp_path / "token").write_text("ours")
    asked = []

    async def review(token, path):
        asked.append((token, path))
        return None if token == "reader" else AccessDenial(403, "eve may not")

    access = HttpAccess("127.0.0.1", tmp_path / "token", review)
    async with serve(probes_of(state), access, 0) as port, aiohttp.ClientSession() as session:

        async def ask(**headers):
            url = f"http://127.0.0.1:{port}/v1/decisions"
            async with session.get(url, headers=headers) as got:
                return got.status, await got.text()

        assert (await ask(Authorization="Bearer ours"))[0] == 200
        assert (await ask())[0] == 401
        assert asked == []
        assert (await ask(Authorization="Bearer reader"))[0] == 200
        assert await ask(Authorization="Bearer eve") == (403, "eve may not\n")
        assert asked == [("reader", "/v1/decisions"), ("eve", "/v1/decisions")]


async def test_without_the_token_only_metrics_and_probes_answer(state, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    async with (
        serve(probes_of(state), HttpAccess("0.0.0.0"), 0) as port,
        aiohttp.ClientSession() as session,
    ):

        async def ask(path, **headers):
            async with session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as got:
                return got.status

        assert await ask("/v1/decisions") == 401
        assert await ask("/v1/decisions", Authorization="Bearer secret") == 200
        assert [await ask(path) for path in ("/", "/metrics", "/healthz")] == [200] * 3


async def test_ready_names_what_it_does_without(state):
    probes = replace(probes_of(state), unreadable=lambda: ["PodDisruptionBudget: not read"])
    async with (
        serve(probes, HttpAccess("127.0.0.1"), 0) as port,
        aiohttp.ClientSession() as session,
    ):
        for sentences, status in (([], 200), (["Pod: not read yet"], 503)):
            state.unready = sentences
            async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                lines = (await response.text()).splitlines()
                assert response.status == status
            assert lines == [*(sentences or ["ok"]), "PodDisruptionBudget: not read"]


async def test_the_page_may_load_nothing_from_elsewhere(port):
    async with aiohttp.ClientSession() as session:
        for path in dashboard.FILES:
            async with session.get(f"http://127.0.0.1:{port}{path}") as got:
                assert got.status == 200
                assert "default-src 'none'" in got.headers["Content-Security-Policy"]
                assert not re.findall(r"https?://(?!www\.w3\.org)", await got.text())


def test_every_file_of_the_page_is_served():
    folder = resources.files(dashboard)
    shipped = {
        each.name for each in folder.iterdir() if each.name.endswith((".js", ".css", ".html"))
    }
    assert shipped == {name for name, _ in dashboard.FILES.values()}


async def test_connections_beyond_a_limit_end_the_oldest(state, monkeypatch):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    async with serve(probes_of(state), HttpAccess("127.0.0.1"), 0) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in opened:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: local")
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/healthz"
            kept = await session.get(url)
            assert kept.status == 200
            async with aiohttp.ClientSession() as another, another.get(url) as answer:
                assert answer.status == 200
            async with asyncio.timeout(patience(10)):
                with suppress(ConnectionResetError):
                    assert await opened[0][0].read() == b"", "the oldest is closed"
            async with session.get(url) as answer:
                assert answer.status == 200
        for _, writer in opened:
            writer.close()
