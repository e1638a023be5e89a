"""The page in a real browser, on the running demo and on worlds of a known shape."""

import asyncio
import re
from itertools import pairwise

import aiohttp
import pytest

from kai_py.demo.run import DemoOptions, run_demo
from kai_py.demo.script import script_for
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.suggestion import (
    InvalidQuestionError,
    QueueChange,
    Suggestion,
    SuggestionSearch,
)
from kai_py.observe.token_review import TOKEN_VARIABLE
from kai_py.plan.plan import Stage
from kai_py.simulate.what_if import Comparison, NodesNeeded, PlacedGang, WaitingGang
from kai_py.snapshot.tables.queues import QueueInfo
from tests.dra.test_cluster_devices import mig
from tests.observe.browser import browsing
from tests.observe.shown import IN_BROWSER, NARROW, PAINTED, WIDE, Shown, large_cluster, look, texts
from tests.observe.tenants import tenants
from tests.support import scenario
from tests.support.cluster.eventually import eventually
from tests.support.records import replace
from tests.support.worlds import gang, world

pytestmark = IN_BROWSER


async def first_cycle(url):
    """Wait until there is a state to show: before, the answer is 503, an error on the console."""
    async with aiohttp.ClientSession(url) as session:

        async def is_there():
            async with session.get("/v1/state") as answer:
                return answer.ok

        await eventually(is_there, within=30.0)


async def test_the_demo_is_shown_while_it_runs(tab):
    stop, told = asyncio.Event(), asyncio.get_running_loop().create_future()
    wishes = DemoOptions(speed=4.0, keep=True, http=("127.0.0.1", 0), announce=told.set_result)
    playing = asyncio.create_task(run_demo(script_for(6), wishes, lambda _: None, stop=stop))
    await first_cycle(url := await told)
    await look(tab, url)
    assert await texts(tab, "#queues .name span") == ["inference", "research", "training"]
    await tab.until("document.querySelector('.gpu.allocated')")
    await tab.until("document.querySelector('#gangs [data-gang]')")
    await tab.until("document.querySelector('#decisions [data-kind=evicted]')")
    assert len(await texts(tab, ".nodes > li")) == 7
    assert any("preempt" in text for text in await texts(tab, "#decisions [data-kind=evicted]"))
    assert (await texts(tab, "#status")) == ["live"]
    title = await tab.value("document.querySelector('#fairness title').textContent")
    assert title.startswith("Jain's fairness index, now ")
    shares = await tab.value("document.querySelector('#chart title').textContent")
    assert re.search(r"training: \d+ allocated, fair share \d+", shares)
    assert await tab.value("document.querySelectorAll('#chart path.held').length") == 3
    await tab.value(CHOOSE % ("#decision-kind", "evicted"))
    kinds = "[...document.querySelectorAll('#decisions > li')].filter((e) => !e.hidden)"
    assert await tab.value(f"{kinds}.every((e) => e.dataset.kind === 'evicted')")
    await tab.until(f"{kinds}.length")
    stop.set()
    await playing


async def test_a_waiting_gang_tells_its_explanation(tab):
    shown = Shown(world({"n1": 4}, gang("train", pods=2, gpus=8, queue="team")).snapshot(0.0))

    async def advise(_gang, _on_found):
        share = QueueChange("team", fair_share=(0.0, 16.0), allocated=(4.0, 16.0))
        starts = ("default/Gang/a", "default/Gang/train")
        found = Suggestion("add a node", (), evicts=("default/Gang/b",), starts=starts)
        return SuggestionSearch((replace(found, queues=(share,)),))

    probes = shown.probes()
    probes = replace(probes, source=replace(probes.source, suggest=advise))
    async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/", NARROW)
        (line,) = await texts(tab, "#gangs > li")
        assert "train" in line
        assert "Resources" in line
        await tab.value("document.querySelector('#gangs summary').click()")
        await tab.until("document.querySelector('.explanation table')")
        (told,) = await texts(tab, ".explanation")
        assert "0 of 2 pods running, minMember 2" in told
        assert "kai-py explain gang default/Gang/train" in told
        await tab.until("document.querySelector('.advice')")
        (advice,) = await texts(tab, ".advice li")
        assert advice.startswith("add a node – default/Gang/b would lose pods")
        await tab.value("document.querySelector('.advice button').click()")
        (outcome,) = await texts(tab, ".outcome")
        assert "Starts too: default/Gang/a.\n" in outcome
        assert "Loses pods: default/Gang/b.\n" in outcome
        assert "0 → 16" in outcome
        assert "4 → 16" in outcome
        await tab.value("document.querySelector('.advice button').click()")
        assert await texts(tab, ".outcome") == []
        assert "Resources" in (await texts(tab, ".history li"))[0]
        shown.show(world({"n1": 16}, gang("train", pods=2, gpus=8, node="n1")).snapshot(1.0))
        await tab.until("document.querySelector('#gangs-note').innerText === 'No gang is pending.'")
        await tab.until("document.querySelector('#gangs').children.length === 0")


async def test_an_address_with_a_broken_name_does_not_stop_the_page(tab):
    shown = Shown(world({"n1": 4}, gang("train", pods=2, gpus=8)).snapshot(0.0))
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/#gang=50%")
        await tab.until("document.querySelectorAll('#decisions > li').length === 1")


async def test_what_is_wrong_with_queues_and_nodes_is_told_in_words(tab):
    cordoned = scenario.node("n0", 8, unschedulable=True)
    lost = scenario.queue("lost", 4, parent="nowhere")
    made = scenario.cluster(lost, cordoned, scenario.pod("p", 1, queue="lost"))
    shown = Shown(made.snapshot())
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        (problem,) = await texts(tab, "#queues .problem")
        assert "nowhere" in problem
        assert await texts(tab, "#queues .unseen") == [": 1 NodeFilters"]
        await tab.until("document.querySelector('.nodes .unseen')")
        (spoken,) = await texts(tab, ".nodes .unseen")
        assert spoken == "cordoned; free"
        await tab.value("document.querySelector('#queues .link').click()")
        assert await tab.value("document.querySelector('#gang-queue').value") == "lost"


async def test_partitions_are_inside_their_gpu_and_name_their_holder(tab):
    made = scenario.cluster(
        scenario.device_class(), scenario.queue("team", 8), scenario.node("n0", 0), *mig("n0"),
        scenario.claim("part", owner="p", held_by=["p"], on=[("n0", "gpu-0-a")]),
        scenario.claiming(scenario.pod("p", 0, queue="team", node="n0"), "part"),
    )  # fmt: skip
    shown = Shown(made.snapshot())
    cells = "[...document.querySelectorAll('.cells > *')].map((each) => each.title)"
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        await tab.until("document.querySelector('.gpu.divided')")
        assert await tab.value(cells) == ["gpu-0: 1 partition in use", "gpu-1 · gpu · Free"]
        part = "document.querySelector('.gpu.divided > .gpu.allocated').title"
        assert await tab.value(part) == "gpu-0-a · mig · Allocated · default/Pod/p"
        (spoken,) = await texts(tab, ".nodes .unseen")
        assert "p: 0.5 GPUs" in spoken
        await tab.value("document.querySelector('.nodes summary').click()")
        await tab.until("document.querySelector('.devices table')")
        rows = await texts(tab, ".devices tbody tr")
        assert "gpu-0-a\tmig\tAllocated\tdefault/part\tp\tteam" in rows


CHOOSE = """(() => { const it = document.querySelector("%s"); it.value = "%s";
  it.dispatchEvent(new Event("change")); it.dispatchEvent(new Event("input")); })()"""


async def test_gangs_that_run_are_listed_by_queue_and_name(tab):
    runs = [gang(name, pods=1, gpus=2, node="n1", queue=queue) for name, queue in
            (("train", "a"), ("tune", "a"), ("serve", "b"))]  # fmt: skip
    specs = [QueueInfo(name=name) for name in "ab"]
    shown = Shown(world({"n1": 8}, *runs, queues=specs).snapshot(60.0))
    names = "[...document.querySelectorAll('#gangs strong')].map((e) => e.innerText).join()"
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        await tab.value(CHOOSE % ("#gang-state", "running"))
        await tab.until(f"{names} === 'serve,train,tune'")
        await tab.value(CHOOSE % ("#gang-queue", "a"))
        await tab.until(f"{names} === 'train,tune'")
        await tab.value(CHOOSE % ("#filter", "TUN"))
        await tab.until(f"{names} === 'tune'")
        await tab.value("document.querySelector('#gangs summary').click()")
        await tab.until("document.querySelector('.explanation .questions button')")
        (told,) = await texts(tab, ".explanation")
        assert "1 of 1 pod run" in told
        assert "What if it ended?" in told
        await tab.value(CHOOSE % ("#filter", "missing"))
        await tab.until("document.querySelector('#gangs-note').innerText === 'No such gang.'")


ASKING = """(() => { const form = document.querySelector("#what-if"), given = %s;
  for (const [name, value] of Object.entries(given)) form.elements[name].value = value;
  form.requestSubmit(form.querySelector("[value=%s]")); })()"""


async def test_what_if_puts_changes_to_the_simulation_and_tells_what_came_of_it(tab):
    shown = Shown(world({"n1": 4}, gang("train", pods=2, gpus=8, queue="team")).snapshot(0.0))
    asked = []

    async def simulated(pairs):
        asked.append(pairs)
        if dict(pairs).get("drain") == "nowhere":
            raise InvalidQuestionError("node nowhere: not found")
        if "until-placed" in dict(pairs):
            return NodesNeeded("n1", 2)
        share = QueueChange("team", fair_share=(0.0, 16.0), allocated=(4.0, 16.0))
        return Comparison(
            starts=(PlacedGang("default/Gang/train", "team", ("n1-added-1", "n1-added-2")),),
            pending=(WaitingGang("default/Gang/big", "team", Stage.RESOURCES, 9, "no capacity."),),
            queues=(share,),
        )

    probes = shown.probes()
    probes = replace(probes, source=replace(probes.source, what_if=simulated))
    async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        await tab.until("document.querySelector('#what-if [name=kind]').options.length")
        assert await texts(tab, "[name=kind] option") == ["n1: 4 × nvidia.com/gpu (1 node)"]
        given = '{count: 2, queue: "team", value: "", remove: "default/Gang/a b"}'
        await tab.value(ASKING % (given, "simulate"))
        await tab.until("document.querySelector('#what-if-answer .outcome')")
        assert asked.pop() == (
            ("set", "team.maxGPUs="),
            ("add-nodes", "n1=2"),
            ("remove", "default/Gang/a b"),
        )
        (told,) = await texts(tab, "#what-if-answer")
        for part in (
            "Starts: default/Gang/train.",
            "n1-added-1, n1-added-2",
            "4 → 16",
            "1 gang still pending",
            "default/Gang/big – Resources: no capacity.",
            "kai-py what-if --set team.maxGPUs= --add-nodes n1=2 --remove 'default/Gang/a b'",
        ):
            assert part in told
        await tab.value(ASKING % ('{remove: ""}', "until-placed"))
        await tab.until("document.querySelector('#what-if-answer').innerText.includes('2 more')")
        assert asked.pop() == (("set", "team.maxGPUs="), ("until-placed", "n1"))
        await tab.value("document.querySelector('.nodes summary').click()")
        await tab.until("document.querySelector('.questions button')")
        await tab.value("document.querySelector('.questions button').click()")
        await tab.until("document.querySelector('#what-if-answer .outcome')")
        assert asked.pop() == (("drain", "n1"),)
        await tab.value(ASKING % ('{drain: "nowhere"}', "simulate"))
        await tab.until("document.querySelector('#what-if-answer').innerText.includes('not found')")
        tab.errors.clear()


async def test_a_lost_connection_is_told_and_taken_up_again(tab):
    waits = gang("train", pods=2, gpus=8, queue="team")
    shown = Shown(world({"n1": 4}, waits).snapshot(0.0))
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        await tab.until("document.querySelector('#decisions [data-kind=pending]')")
    await tab.until("document.querySelector('#status').dataset.state === 'lost'")
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), port):
        await tab.until("document.querySelector('#status').innerText === 'live'")
        placed = gang("train", pods=2, gpus=8, queue="team")
        shown.show(world({"n1": 16}, placed).snapshot(1.0))
        await tab.until("document.querySelector('#decisions [data-kind=placed]')")
        assert len(await texts(tab, "#decisions [data-kind=pending]")) == 1
    assert all("ERR_CONNECTION" in each or "ERR_INCOMPLETE" in each for each in tab.errors)
    tab.errors.clear()


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_long_names_of_queues_wrap(tab, size):
    name = "-".join(["research"] * 20)
    shown = Shown(scenario.cluster(scenario.node("n1", 8), scenario.queue(name, 8)).snapshot())
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/", size)
        await tab.until("document.querySelector('#queues .name')")
        assert await tab.value("document.documentElement.scrollWidth") == size[0]
        cells = "[...document.querySelectorAll('#queues th, #queues td')]"
        assert await tab.value(f"{cells}.every(e => e.getBoundingClientRect().right < innerWidth)")


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_the_longest_names_in_a_deep_tree_are_cut_until_focused(tab, size):
    names = [f"{depth}-" + ".".join(["q" * 50] * 4) for depth in range(6)]
    made = scenario.cluster(scenario.node("n1", 8))
    made.add(scenario.queue(names[0], 8))
    for parent, name in pairwise(names):
        made.add(scenario.queue(name, 8, parent=parent))
    made.add(scenario.pod("p" * 253, queue=names[-1], node="n1"))
    shown = Shown(made.snapshot())
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/", size)
        await tab.until("document.querySelector('#chart-legend .key')")
        assert await tab.value("document.documentElement.scrollWidth") == size[0]
        assert await texts(tab, "#queues .name span") == names
        height = "document.querySelector('#queues tbody tr').getBoundingClientRect().height"
        assert await tab.value(height) < 90
        await tab.value("document.querySelector('#queues .link').focus()")
        assert await tab.value(height) > 90


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_ten_thousand_nodes_stay_fluid(tab, size):
    shown = Shown(large_cluster().snapshot())
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/", size, dark=True)
        assert await tab.value("document.querySelectorAll('.blocks').length") == 4
        assert await tab.value("document.querySelectorAll('*').length") < 5000
        assert await tab.value("document.documentElement.scrollWidth") == size[0]
        await tab.value(
            "const d = document.querySelector('#domain'); d.value = '=z1/r300';"
            "d.dispatchEvent(new Event('change'))"
        )
        await tab.until("document.querySelectorAll('.nodes > li').length === 16")
        assert (await texts(tab, ".node-name"))[:2] == ["n4800", "n4801"]


async def test_a_filter_and_links_lead_to_what_is_meant(tab):
    shown = Shown(tenants().snapshot())
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        page = f"http://127.0.0.1:{port}/"
        await look(tab, f"{page}?q=vision")
        await tab.until("document.querySelectorAll('#gangs > li').length === 1")
        assert await texts(tab, "#gangs strong") == ["secret-wait"]
        assert await texts(tab, "#queues .name span") == ["company", "vision-queue"]
        await tab.until("document.querySelector('#decisions > li')")
        seen = "[...document.querySelectorAll('#decisions > li')].filter((e) => !e.hidden).length"
        assert await tab.value(seen) == 1
        for kind in ("keyDown", "keyUp"):
            await tab.call("Input.dispatchKeyEvent", type=kind, key="q", code="KeyQ")
        assert await tab.value("document.activeElement.id") == "filter"
        await tab.value(CHOOSE % ("#filter", ""))
        await tab.until("document.querySelectorAll('#gangs > li').length === 2")
        await tab.until("!location.search.includes('q=')")
        await tab.value("location.hash = 'gang=ml/Pod/train'")
        await tab.until("document.querySelector('[data-gang=\"ml/Pod/train\"] details')?.open")
        assert await tab.value("document.querySelector('#gang-state').value") == "running"
        await tab.until("document.querySelector('.explanation a')")
        await tab.value("location.hash = 'queue=ml-queue'")
        await tab.until("document.querySelector('#gang-queue').value === 'ml-queue'")
        await tab.value("location.hash = 'node=n2'")
        await tab.until("document.querySelector('.nodes details[open] .node-name')")
        assert await texts(tab, ".nodes details[open] .node-name") == ["n2"]


async def test_ones_own_gangs_come_first(tab):
    shown = Shown(tenants().snapshot())
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/?namespace=vision")
        await tab.until("document.querySelector('#gangs strong').innerText === 'secret-wait'")
        (largest,) = await texts(tab, "#largest")
        assert largest.endswith(
            "8 pods of 1 GPU, 4 pods of 2 GPUs, 2 pods of 4 GPUs, 1 pod of 8 GPUs"
        )
        assert "Goodput" in (await texts(tab, "#totals"))[0]
        cards = await tab.value("[...document.querySelectorAll('main > section')].map((e) => e.id)")
        assert cards[:3] == ["gangs-card", "queues-card", "map-card"]


async def test_what_is_stale_is_dimmed_until_it_comes_again(tab):
    shown = Shown(tenants().snapshot())
    dimmed = "document.body.classList.contains('stale')"
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        now = shown.view.snapshot.now
        probes = replace(shown.probes(), now=lambda: now + 5)
    async with serve(probes, HttpAccess("127.0.0.1"), port):
        await look(tab, f"http://127.0.0.1:{port}/")
        assert not await tab.value(dimmed)
        assert (await texts(tab, "#status")) == ["live"]
    await tab.until(dimmed)
    assert "shown is the state" in (await texts(tab, "#status"))[0]
    async with serve(probes, HttpAccess("127.0.0.1"), port):
        await tab.until(f"!{dimmed}")
    tab.errors.clear()


async def test_without_a_token_the_page_asks_for_one(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    shown = Shown(world({"n1": 4}).snapshot(0.0))
    async with (
        browsing(tmp_path) as tab,
        serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port,
    ):
        await tab.open(f"http://127.0.0.1:{port}/", width=1280, height=900)
        await tab.until("document.querySelector('#sign-in')?.open")
        assert not await tab.value(PAINTED)
        await tab.value(
            "document.querySelector('#token').value = 'secret';"
            "document.querySelector('#sign-in button').click()"
        )
        await tab.until(PAINTED)
