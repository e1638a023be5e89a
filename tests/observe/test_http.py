import json

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kai_py.grouping.gang import Owner
from kai_py.observe.http import Probes, serve
from kai_py.observe.metrics import Metrics
from kai_py.plan.decisions import Plan, QueueShare, Stage, Unplaced

JOB = Owner("batch/v1", "Job", "team-a", "train", "u")


class State:
    def __init__(self):
        self.metrics = Metrics(CollectorRegistry())
        self.unhealthy = []
        self.unready = []
        self.plan = None


@pytest.fixture
async def state():
    return State()


@pytest.fixture
async def get(state):
    probes = Probes(
        registry=state.metrics.registry,
        unhealthy=lambda: state.unhealthy,
        unready=lambda: state.unready,
        last_plan=lambda: state.plan,
    )
    async with serve(probes, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:

        async def ask(path):
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        yield ask


async def test_probes_say_what_is_wrong(state, get):
    assert await get("/healthz") == (200, "ok\n")
    assert await get("/readyz") == (200, "ok\n")
    state.unhealthy = ["Pod: nothing heard for 200 s"]
    state.unready = ["Node: not read yet"]
    assert await get("/healthz") == (503, "Pod: nothing heard for 200 s\n")
    assert await get("/readyz") == (503, "Node: not read yet\n")


async def test_the_last_plan_is_json(state, get):
    assert (await get("/v1/plan"))[0] == 404
    unplaced = Unplaced("team-a/Job/train", JOB, "q", Stage.RESOURCES, "no room.", ())
    state.plan = Plan(unplaced=(unplaced,))
    status, body = await get("/v1/plan")
    assert status == 200
    assert json.loads(body)["unplaced"][0]["stage"] == "Resources"


async def test_metrics_follow_the_plan(state, get):
    def line(text, start):
        return next((each for each in text.splitlines() if each.startswith(start)), None)

    unplaced = Unplaced("team-a/Job/train", JOB, "q", Stage.RESOURCES, "no room.", ())
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
