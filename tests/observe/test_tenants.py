"""What a user with rights in one namespace is told, and what is kept from it."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from kai_py.observe import http_api
from kai_py.observe.cluster_state import cluster_state
from kai_py.observe.suggestion import (
    QueueChange,
    Suggestion,
    SuggestionSearch,
    SuggestionStep,
    Verb,
)
from kai_py.observe.tenant_answers import tenant_state
from kai_py.observe.visibility import Visibility, named_queues, own_queues
from kai_py.simulate.what_if import Comparison, PlacedGang
from tests.observe.shown import Shown
from tests.observe.tenants import ApiServer, asking, moved, pods_of
from tests.support import scenario
from tests.support.patience import patience

ANNA = {pods_of("ml")}
HIDDEN = "a workload of another namespace"
PATHS = (
    "/v1/state",
    "/v1/nodes?domain=",
    "/v1/gangs",
    "/v1/decisions",
    "/v1/history",
    "/v1/list/gangs",
    "/v1/list/queues",
    "/v1/list/devices",
    "/v1/queues/ml-queue",
    "/v1/explain/gang/ml/Pod/more?suggestions=false",
)


@pytest.fixture
def ask(tmp_path):
    @asynccontextmanager
    async def as_user(rights=ANNA, **source):
        token = tmp_path / "token"
        token.write_text("of the administrator")
        async with asking(ApiServer(anna=rights), token, **source) as answer:

            async def own(path, token="anna", **headers):
                status, text = await answer(token, path, **headers)
                return status, json.loads(text) if status == 200 else text

            own.text = answer
            yield own

    return as_user


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_names_the_work_of_others(ask, path):
    async with ask() as own:
        status, answer = await own(path)
        assert status == 200
        assert "secret" not in json.dumps(answer)
        assert "vision" not in json.dumps(answer)


async def test_own_gangs_are_listed_and_others_counted(ask):
    async with ask() as own:
        _, answer = await own("/v1/list/gangs")
        assert [row["gang"] for row in answer["gangs"]] == ["ml/Pod/more", "ml/Pod/train"]
        assert answer["others"] == {"running": 1, "pending": 1, "pods": 2, "gpus": 8.0}
        assert answer["queues"] == ["company", "ml-queue"]
        _, state = await own("/v1/state")
        assert [gang["gang"] for gang in state["pending"]] == ["ml/Pod/more"]
        assert state["others"]["gpus"] == 8.0
        assert state["allocated"] == 16.0
        [domain] = state["domains"]
        assert domain["by_queue"] == {"ml-queue": 8.0, "": 8.0}
        assert [state["owners"][at] for at in domain["owners"] if at >= 0] == ["ml-queue", ""]


async def test_own_queues_are_those_of_own_gangs_and_above(ask):
    async with ask() as own:
        _, answer = await own("/v1/list/queues")
        assert [row["queue"] for row in answer["queues"]] == ["company", "ml-queue"]
        assert answer["others"]["gpu"] == 8.0
        assert (await own("/v1/queues/vision-queue"))[0] == 404
        assert (await own("/v1/explain/queue/vision-queue"))[0] == 403
    async with ask(ANNA | {("get", "queues", "", "vision-queue")}) as own:
        assert (await own("/v1/queues/vision-queue"))[1]["gangs"] == []
    async with ask(ANNA | {("get", "queues", "", "")}) as own:
        _, answer = await own("/v1/list/queues")
        assert len(answer["queues"]) == 4


async def test_devices_of_others_are_counted(ask):
    async with ask() as own:
        _, answer = await own("/v1/list/devices")
        rows = [(each["node"], each["status"], each["count"]) for each in answer["devices"]]
        assert rows == [("n0", "Allocated", 8), ("", "Allocated", 8), ("", "Free", 8)]
    async with ask(ANNA | {("list", "nodes", "", "")}) as own:
        _, answer = await own("/v1/list/devices")
        assert {each["node"] for each in answer["devices"]} == {"n0", "n1", "n2"}
        assert "secret" not in json.dumps(answer)


async def test_only_own_work_is_explained(ask):
    async with ask() as own:
        status, [answer] = await own("/v1/explain/pod/ml/more")
        assert (status, answer["gang"]) == (200, "ml/Pod/more")
        for subject in ("gang/vision/Pod/secret-wait", "pod/vision/secret-wait", "job/vision/none"):
            status, text = await own(f"/v1/explain/{subject}")
            assert (status, "list pods in namespace vision" in text) == (403, True)
        assert (await own("/v1/plan"))[0] == 403


def test_amounts_of_hidden_queues_are_left_out():
    seen = Visibility(frozenset({"ml"}), frozenset({"ml-queue"}), nodes=False)
    rows = [{"queue": name, "deserved": 8} for name in ("ml-queue", "dark", "")]
    told = seen.redacted({"gang": "ml/Pod/more", "queue": "dark", "queues": rows})
    assert told == {"gang": "ml/Pod/more", "queue": "", "queues": [rows[0], rows[2]]}


def test_how_many_gangs_of_a_hidden_queue_are_pending_is_not_told():
    world = scenario.cluster(
        scenario.queue("theirs", 8, namespaces={"names": ["vision"]}),
        *moved([scenario.pod("waits", 1, queue="theirs")], "vision"),
        *moved([scenario.pod("sly", 1, queue="theirs")], "ml"),
    )
    view = Shown(world.snapshot()).view
    state = cluster_state(view)
    for queues, length in ((frozenset(), 0), ({"theirs"}, 2)):
        seen = Visibility(frozenset({"ml"}), queues, nodes=False)
        (own,) = tenant_state(state, view, seen).pending
        assert (own.gang, own.queue_length) == ("ml/Pod/sly", length)
    seen = Visibility(frozenset({"ml"}), frozenset({"ml-queue"}), nodes=False)
    own = {"gang": "ml/Pod/more", "queue": "ml-queue", "queue_position": 2, "queue_length": 3}
    assert seen.redacted(own) == own
    told = seen.redacted(own | {"queue": "dark"})
    assert told == own | {"queue": "", "queue_position": 0, "queue_length": 0}


async def test_suggestions_do_not_name_others(ask):
    async def suggest(_gang, on_found):
        step = SuggestionStep(
            verb=Verb.DELETE, api_version="v1", kind="Pod", name="secret-run", namespace="vision"
        )
        found = Suggestion(
            "evict vision/Pod/secret-run (vision/secret-run-0)",
            (step,),
            evicts=("vision/Pod/secret-run", "ml/Pod/train"),
            queues=(QueueChange("vision-queue", (1, 2), (1, 2)),),
        )
        on_found(found)
        return SuggestionSearch((found,))

    async with ask(suggest=suggest) as own:
        _, [answer] = await own("/v1/explain/gang/ml/Pod/more")
        [suggestion] = answer["suggestions"]
        assert suggestion["evicts"] == [HIDDEN, "ml/Pod/train"]
        assert "secret" not in json.dumps(suggestion)
        path = "/v1/explain/gang/ml/Pod/more?stream=true"
        lines = [json.loads(line) for line in (await own.text("anna", path))[1].splitlines()]
        assert [sorted(line) for line in lines] == [
            ["explained"],
            ["gang", "suggestion"],
            ["finished"],
        ]
        assert lines[1]["suggestion"] == suggestion
        assert "secret" not in json.dumps(lines)


async def test_what_if_is_about_own_work(ask):
    asked = []

    async def what_if(changes):
        asked.append(changes)
        started = (PlacedGang("ml/Pod/more", "ml-queue", ("n2",)),)
        hidden = (PlacedGang("vision/Pod/secret-wait", "vision-queue", ("n2",)),)
        queues = (
            QueueChange("ml-queue", (8, 16), (8, 16)),
            QueueChange("vision-queue", (1, 2), (1, 2)),
        )
        return Comparison(starts=started + hidden, queues=queues)

    async with ask(what_if=what_if) as own:
        _, answer = await own("/v1/what-if?set=ml-queue.maxGPUs=16&namespace=ml")
        assert asked == [(("set", "ml-queue.maxGPUs=16"),)]
        assert [each["gang"] for each in answer["starts"]] == ["ml/Pod/more"]
        assert [each["queue"] for each in answer["queues"]] == ["ml-queue"]
        assert answer["others"] == {"starts": 1}
        for change in (
            "remove=vision/Pod/secret-run",
            "set=vision-queue.maxGPUs=0",
            "set=ml.maxGPUs=0",
            "set=ml-queue.idle.maxGPUs=0",
            "drain=n1",
        ):
            assert (await own(f"/v1/what-if?{change}"))[0] == 403, change
        assert (await own("/v1/what-if?remove=ml/Pod/train&drain=n0"))[0] == 200
        assert len(asked) == 2


async def test_rights_to_everything_show_everything(ask):
    everything = {("list", "pods", "", ""), ("list", "nodes", "", ""), ("get", "queues", "", "")}
    for rights in (everything, {path.partition("?")[0] for path in PATHS}):
        async with ask(rights) as own:
            assert len((await own("/v1/list/gangs"))[1]["gangs"]) == 4
            assert (await own("/v1/state"))[1]["others"] is None


async def test_the_namespaces_in_question_are_reviewed_first(ask, monkeypatch):
    monkeypatch.setattr("kai_py.observe.http_access.MAX_NAMESPACES", 1)
    async with ask({pods_of("vision")}) as own:
        _, answer = await own("/v1/list/gangs")
        assert (answer["gangs"], answer["unreviewed"]) == ([], 1)
        _, answer = await own("/v1/list/gangs?namespace=vision")
        assert len(answer["gangs"]) == 2


async def test_a_stream_has_own_decisions(tmp_path):
    token = tmp_path / "token"
    token.write_text("of the administrator")
    async with asking(ApiServer(anna=ANNA), token) as answer:
        text = await answer.stream("anna", "/v1/events?since=0")
        assert "ml/Pod/more" in text
        assert "vision" not in text


async def test_metrics_need_a_token_only_through_the_api_server(ask):
    through = {"X-Forwarded-Uri": "/api/v1/namespaces/kai-py/services/kai-py:http/proxy"}
    for headers in (through, {"Connection": "Upgrade", "Upgrade": "websocket"}):
        async with ask({"/metrics"}) as own:
            assert (await own.text("", "/metrics"))[0] == 200
            assert (await own.text("", "/metrics", **headers))[0] == 401
            assert (await own.text("anna", "/metrics", **headers))[0] == 200
        async with ask() as own:
            assert (await own.text("anna", "/metrics", **headers))[0] == 403


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vision/Pod/a needs it", f"{HIDDEN} needs it"),
        ("(vision/a-0, ml/a-0)", f"({HIDDEN}, ml/a-0)"),
        ("vision/Job.batch/x.", HIDDEN),
        ("key example.com/vision/x stays", "key example.com/vision/x stays"),
        ("revision/3 stays", "revision/3 stays"),
    ],
)
def test_names_in_texts(text, shown):
    seen = Visibility(frozenset({"ml"}), frozenset(), nodes=False, hidden=frozenset({"vision"}))
    assert seen.text(text).rstrip(".") == shown.rstrip(".")


def test_hidden_queues_are_not_named_in_texts():
    seen = Visibility(
        frozenset({"ml"}), frozenset({"ml-queue"}), nodes=False, hidden_queues=frozenset({"dark"})
    )
    text = 'queue dark has 8 GPUs; use queue dark; queue ml-queue, queue "dark" and dark matter'
    assert seen.text(text) == (
        "another queue has 8 GPUs; use queue dark; queue ml-queue, another queue and dark matter"
    )


def test_naming_a_closed_queue_shows_none_of_it():
    world = scenario.cluster(
        scenario.node("n", 8),
        scenario.queue("company", 8),
        scenario.queue("theirs", 8, parent="company", namespaces={"names": ["vision"]}),
        *moved([scenario.pod("sly", 1, queue="theirs")], "ml"),
    )
    view = Shown(world.snapshot()).view
    assert own_queues(view, {"ml"}) == set()
    assert own_queues(view, {"vision"}) == {"theirs"}
    assert named_queues(view, {"ml"}) == {"theirs", "company"}


def test_naming_a_deleted_queue_shows_none_of_it():
    world = scenario.cluster(
        scenario.node("n", 8),
        *moved([scenario.pod("runs", 1, queue="gone", node="n")], "vision"),
        *moved([scenario.pod("sly", 1, queue="gone")], "ml"),
    )
    view = Shown(world.snapshot()).view
    assert own_queues(view, {"ml"}) == set()
    assert own_queues(view, {"vision"}) == {"gone"}
    seen = Visibility(
        frozenset({"ml"}), frozenset(), nodes=False, missing_queues=named_queues(view, {"ml"})
    )
    assert seen.redacted({"queue": "gone"}) == {"queue": "gone"}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("explain/gang/ml/Pod/mroe", " (did you mean ml/Pod/more?)"),
        ("explain/pod/ml/trian", " (did you mean ml/train?)"),
        ("explain/pod/ml/secret-runn", ""),
        ("queues/ml-queu", " (did you mean ml-queue?)"),
        ("queues/vision-queu", ""),
    ],
)
async def test_a_name_that_does_not_resolve_gets_the_nearest_that_the_reader_sees(ask, path, meant):
    async with ask() as own:
        status, text = await own(f"/v1/{path}")
        assert status == 404
        assert "".join(text.strip().partition(" (")[1:]) == meant


@pytest.mark.parametrize(
    ("rights", "total", "first"),
    [
        (ANNA, 1, "n0"),
        ({pods_of("vision")}, 1, "n1"),
        (ANNA | {("list", "nodes", "", "")}, 3, "n0"),
    ],
)
async def test_pages_of_nodes_count_and_hold_those_that_are_shown(ask, rights, total, first):
    """Among thousands of nodes of others, a tenant's own would be on pages far apart."""
    async with ask(rights) as own:
        _, page = await own("/v1/nodes?domain=&limit=1")
        assert (page["total"], [each["node"] for each in page["nodes"]]) == (total, [first])
        assert (await own(f"/v1/nodes?node={first}&limit=1"))[0] == 200
        assert (await own("/v1/nodes?node=n1"))[0] == (200 if total > 1 or first == "n1" else 404)


class Waiting:
    """A simulation that takes until it is released."""

    def __init__(self):
        self.begun, self.released = asyncio.Semaphore(0), asyncio.Event()

    async def __call__(self, *_):
        self.begun.release()
        await self.released.wait()
        return Comparison()


async def test_one_reader_leaves_simulations_to_others(tmp_path):
    simulation, token = Waiting(), tmp_path / "token"
    token.write_text("of the administrator")
    rights = ApiServer(anna=ANNA, bert={pods_of("vision")})
    drain = "/v1/what-if?drain=n"
    async with asking(rights, token, what_if=simulation, suggest=simulation) as ask:
        waiting = [asyncio.ensure_future(ask("anna", f"{drain}0&n={n}")) for n in range(2)]
        async with asyncio.timeout(patience(10)):
            await simulation.begun.acquire()
            await simulation.begun.acquire()
            assert await ask("anna", f"{drain}0") == (503, "you have 2 questions already\n")
            status, answer = await ask("anna", "/v1/explain/gang/ml/Pod/more")
            assert status == 200
            assert not json.loads(answer)[0]["suggestions"], "the reason is told all the same"
            waiting.append(asyncio.ensure_future(ask("bert", f"{drain}1")))
            await simulation.begun.acquire()
            simulation.released.set()
            assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 3
            assert (await ask("anna", f"{drain}0"))[0] == 200


@pytest.mark.slow
async def test_no_reader_takes_all_event_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(http_api, "MAX_LISTENERS_OF_READER", 1)
    monkeypatch.setattr(http_api, "MAX_LISTENERS", 2)
    token = tmp_path / "token"
    token.write_text("of the administrator")
    rights = {"anna": ANNA, "bert": ANNA, "cora": ANNA}
    async with asking(ApiServer(**rights), token) as ask:
        streams = [asyncio.ensure_future(ask("anna", "/v1/events"))]
        await asyncio.sleep(0.3)
        assert await ask("anna", "/v1/events") == (503, "you have 1 event streams already\n")
        streams.append(asyncio.ensure_future(ask("bert", "/v1/events")))
        await asyncio.sleep(0.3)
        status, told = await ask("cora", "/v1/events")
        assert (status, "there are 2 event streams already" in told) == (503, True)
        for each in streams:
            each.cancel()
