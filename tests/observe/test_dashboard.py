"""The page in a real browser, on the running demo and on worlds of a known shape."""

import asyncio
from dataclasses import replace

import pytest

from kai_py.demo.performance import Wishes, perform
from kai_py.demo.script import script_for
from kai_py.observe.http import serve
from kai_py.observe.http_access import TOKEN_VARIABLE, Access
from kai_py.observe.suggestion import QueueChange, Suggestion
from tests.observe.browser import browsing, find_browser
from tests.observe.shown import Shown, large_cluster
from tests.worlds import gang, world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="there is no chromium to show the page"),
]
PAINTED = "document.body?.dataset.cycle"
NARROW, WIDE = (400, 800), (1280, 900)


@pytest.fixture
async def tab(tmp_path):
    async with browsing(tmp_path) as tab:
        yield tab
        assert tab.errors == []


async def look(tab, url, size=WIDE, *, dark=False):
    await tab.open(url, width=size[0], height=size[1], dark=dark)
    await tab.until(PAINTED)


async def texts(tab, selector):
    return await tab.value(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText)")


SPOKEN = ("button", "combobox", "link", "textbox", "image", "img", "table", "list", "region")
CONTROLS = """[...document.querySelectorAll("a[href], button, select, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility()).length"""
FOCUSED = """(() => { const it = document.activeElement, all = [...document.querySelectorAll("*")];
  return `${it.tagName} ${all.indexOf(it)} ${it.innerText.slice(0, 40)}`; })()"""


async def test_the_demo_is_shown_while_it_runs(tab):
    stop, told = asyncio.Event(), asyncio.get_running_loop().create_future()
    wishes = Wishes(speed=4.0, keep=True, http=("127.0.0.1", 0), announce=told.set_result)
    playing = asyncio.create_task(perform(script_for(6), wishes, lambda _: None, stop=stop))
    await look(tab, await told)
    assert await texts(tab, "#queues .name span") == ["inference", "research", "training"]
    await tab.until("document.querySelector('.gpu.held')")
    await tab.until("document.querySelector('#gangs [data-gang]')")
    await tab.until("document.querySelector('#decisions [data-kind=evicted]')")
    assert len(await texts(tab, ".nodes > li")) == 7
    assert any("preempt" in text for text in await texts(tab, "#decisions [data-kind=evicted]"))
    assert (await texts(tab, "#status")) == ["live"]
    title = await tab.value("document.querySelector('#fairness title').textContent")
    assert title.startswith("Jain's fairness index, now ")
    stop.set()
    await playing


async def test_a_waiting_gang_tells_its_explanation(tab):
    shown = Shown(world({"n1": 4}, gang("train", pods=2, gpus=8, queue="team")).snapshot(0.0))

    async def advise(_):
        share = QueueChange("team", fair_share=(0.0, 16.0), allocated=(4.0, 16.0))
        starts = ("default/Gang/a", "default/Gang/train")
        found = Suggestion("add a node", (), evicts=("default/Gang/b",), starts=starts)
        return (replace(found, queues=(share,)),)

    probes = shown.probes()
    probes = replace(probes, source=replace(probes.source, advise=advise))
    async with serve(probes, Access("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/", NARROW)
        (line,) = await texts(tab, "#gangs > li")
        assert "train" in line
        assert "Resources" in line
        await tab.value("document.querySelector('#gangs summary').click()")
        await tab.until("document.querySelector('.explanation table')")
        (told,) = await texts(tab, ".explanation")
        assert "0 of 2 pods run, 2 must start together" in told
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
        await tab.until("document.querySelector('#gangs-note').innerText === 'Nobody waits.'")
        await tab.until("document.querySelector('#gangs').children.length === 0")


async def test_keys_reach_every_control_and_readers_hear_what_each_is(tab):
    shown = Shown(world({"n1": 4}, gang("train", pods=2, gpus=8, queue="team")).snapshot(0.0))
    async with serve(shown.probes(), Access("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        controls = await tab.value(CONTROLS)
        reached = []
        for _ in range(2 * controls):
            for kind in ("keyDown", "keyUp"):
                await tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                               windowsVirtualKeyCode=9)  # fmt: skip
            reached.append(await tab.value(FOCUSED))
        assert reached[0].endswith("Skip to the queues")
        assert len({each for each in reached if not each.startswith("BODY")}) >= controls
        tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
        nameless = [
            node["role"]["value"]
            for node in tree
            if not node["ignored"]
            and node["role"]["value"] in SPOKEN
            and not node.get("name", {}).get("value")
        ]
        assert nameless == []
        roles = {node["role"]["value"] for node in tree if not node["ignored"]}
        assert {"main", "table", "columnheader", "status", "heading"} <= roles


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_ten_thousand_nodes_stay_fluid(tab, size):
    shown = Shown(large_cluster().snapshot())
    async with serve(shown.probes(), Access("127.0.0.1"), 0) as port:
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


async def test_without_a_token_the_page_asks_for_one(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    shown = Shown(world({"n1": 4}).snapshot(0.0))
    async with (
        browsing(tmp_path) as tab,
        serve(shown.probes(), Access("127.0.0.1"), 0) as port,
    ):
        await tab.open(f"http://127.0.0.1:{port}/", width=1280, height=900)
        await tab.until("document.querySelector('#sign-in')?.open")
        assert not await tab.value(PAINTED)
        await tab.value(
            "document.querySelector('#token').value = 'secret';"
            "document.querySelector('#sign-in button').click()"
        )
        await tab.until(PAINTED)
