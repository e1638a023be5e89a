"""The dashboard for whoever uses keys, a screen reader, high contrast or less motion."""

import itertools

import pytest

from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.snapshot.tables.queues import QueueInfo
from tests.observe.shown import IN_BROWSER, Shown, look
from tests.support.worlds import gang, world

pytestmark = IN_BROWSER

SPOKEN = (
    "button", "combobox", "link", "textbox", "searchbox", "spinbutton", "image", "img", "table",
    "list", "region", "columnheader", "rowheader", "heading", "dialog",
)  # fmt: skip

CONTROLS = """[...document.querySelectorAll("a[href], button, select, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility()).length"""

SAME_IDS = """[...document.querySelectorAll("[id]")].map((each) => each.id)
  .filter((id, place, all) => all.indexOf(id) !== place)"""

LEVELS = """[...document.querySelectorAll("h1, h2, h3")]
  .filter((each) => each.checkVisibility()).map((each) => Number(each.tagName[1]))"""

ODD = ", ".join(f"[tabindex='{place}']" for place in range(1, 10))
"""Places in the order of keys other than that of the page."""

FOCUSED = """(() => { const it = document.activeElement, all = [...document.querySelectorAll("*")];
  return `${it.tagName} ${all.indexOf(it)} ${it.innerText.slice(0, 40)}`; })()"""

CONTRASTS = """(() => {
  const canvas = document.createElement("canvas");
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  canvas.width = canvas.height = 1;
  const over = (colours) => {
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (each) => {
    const colours = [];
    for (let at = each; at; at = at.parentElement) {
      colours.unshift(getComputedStyle(at).backgroundColor);
    }
    return ["white", ...colours];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const each = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !each.checkVisibility()) continue;
    if (each.closest("noscript, .unseen, datalist, .skip, :disabled, title")) continue;
    const ground = behind(each), style = getComputedStyle(each);
    const ink = each.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(over(ground)), light(over([...ground, ink]))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const what = `${each.className || each.tagName} ${each.innerText}`;
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${what}`);
  }
  for (const each of document.querySelectorAll(".swatch")) {
    const [a, b] = [behind(each.parentElement), behind(each)].map((all) => light(over(all)));
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 3) found.push(each.outerHTML);
  }
  return [...new Set(found)];
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_all_text_is_told_from_its_ground(tab, dark):
    names = [f"queue-{number}" for number in range(12)]
    gangs = [gang(f"{queue}-{n}", pods=1, gpus=1, queue=queue, node="n1")
             for queue in names for n in range(3)]  # fmt: skip
    waiting = gang("train", pods=2, gpus=80, queue="queue-1")
    specs = [QueueInfo(name=name) for name in names]
    shown = Shown(world({"n1": 64}, *gangs, waiting, queues=specs).snapshot(0.0))
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/", dark=dark)
        await tab.until("document.querySelectorAll('.gpu').length >= 36")
        await tab.value("document.querySelectorAll('summary').forEach((each) => each.click())")
        await tab.until("document.querySelector('.explanation p')")
        assert await tab.value(CONTRASTS) == []


async def test_whoever_wants_less_motion_sees_none(tab):
    shown = Shown(world({"n1": 4}).snapshot(0.0))
    moving = "getComputedStyle(document.querySelector('.bar i')).transitionDuration"
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        assert await tab.value(moving) != "0s"
        less = {"name": "prefers-reduced-motion", "value": "reduce"}
        await tab.call("Emulation.setEmulatedMedia", features=[less])
        assert await tab.value(moving) == "0s"


async def test_keys_reach_every_control_and_readers_hear_what_each_is(tab):
    shown = Shown(world({"n1": 4}, gang("train", pods=2, gpus=8, queue="team")).snapshot(0.0))
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        await look(tab, f"http://127.0.0.1:{port}/")
        controls = await tab.value(CONTROLS)
        reached = []
        for _ in range(2 * controls):
            for kind in ("keyDown", "keyUp"):
                await tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                               windowsVirtualKeyCode=9)  # fmt: skip
            reached.append(await tab.value(FOCUSED))
        assert reached[0].endswith("Skip to the gangs")
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
        assert await tab.value("document.documentElement.lang") == "en"
        assert await tab.value(SAME_IDS) == []
        assert await tab.value(f'document.querySelectorAll("{ODD}").length') == 0
        levels = await tab.value(LEVELS)
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
