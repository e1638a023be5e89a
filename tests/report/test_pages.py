"""The pages as a browser shows them, from files."""

import pytest

from kai_py.config import Configuration
from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.policy.fairness_rules import NATIVE
from kai_py.report.decisions_page import decisions_page, plan_page
from kai_py.report.simulation_page import simulation_page
from kai_py.simulate.scenarios.fifo import simulate_fifo
from kai_py.simulate.scenarios.report import OUR_POLICY, summarise
from kai_py.simulate.scenarios.scenario import parse_scenario
from kai_py.simulate.scenarios.simulation import simulate
from tests.observe.browser import browsing, find_browser
from tests.observe.shown import view_of
from tests.support.worlds import gang, world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="there is no chromium to show the page"),
]
HOSTILE = "<b onclick=alert(1)>x</b>"
SCENARIO = """
hours: 4
nodes: [{name: n, count: 2, gpus: 4, pricePerHour: 10}]
queues: [{name: a, deservedGPUs: 4}, {name: b, deservedGPUs: 4}]
jobs:
- {name: first, queue: a, pods: 8, minutes: 100, minAvailable: 4}
- {name: second, queue: b, pods: 4, minutes: 30, at: 10}
"""
CURVES = """[...document.querySelectorAll('.js-plotly-plot')]
  .map((each) => each.querySelectorAll('.trace').length)"""
LOADED = "performance.getEntriesByType('resource').map(e => e.name)"


@pytest.fixture
async def show(tmp_path):
    async with browsing(tmp_path / "browser") as tab:

        async def show(page, *, dark=False):
            file = tmp_path / "page.html"
            file.write_text(page, encoding="utf-8")
            await tab.open(file.as_uri(), width=1200, height=900, dark=dark)
            await tab.until("document.readyState === 'complete'")
            assert await tab.value(LOADED) == []
            assert await tab.value("document.querySelectorAll('[onclick]').length") == 0
            return tab

        yield show
        assert tab.errors == []


def simulated():
    scenario = parse_scenario(SCENARIO)
    ours = simulate(scenario, Configuration())
    return {OUR_POLICY: ours, "fifo": simulate_fifo(scenario, NATIVE)}


async def test_a_simulation_shows_two_policies_side_by_side(show):
    results = simulated()
    report = summarise(results[OUR_POLICY], {"fifo": results["fifo"]})
    tab = await show(simulation_page(report, results, title=HOSTILE))
    assert await tab.value("document.querySelector('h1').innerText") == HOSTILE
    use, shares, waits, evictions, fragmentation, cost = await tab.value(CURVES)
    # Four curves and two queues of two curves for each policy; one curve for each size of gang.
    assert (use, shares, fragmentation) == (8, 8, 4)
    assert waits == 4
    assert evictions >= 2
    assert cost == 1
    axes = await tab.value(
        "[...document.querySelectorAll('.infolayer [class*=title]')].map(e => e.textContent)"
    )
    assert {"hours", "GPUs", "minutes waited", "part of the gangs", "pods", "GPU-hours"} <= {*axes}


async def test_two_plans_are_side_by_side_with_names_as_they_are(show):
    before = view_of(world({"n1": 4}, gang("train", pods=2, gpus=8)).snapshot(0.0)).plan
    after = view_of(world({"n1": 16}, gang("train", pods=2, gpus=8)).snapshot(0.0)).plan
    tab = await show(plan_page({HOSTILE: before, "new": after}, title="plan"), dark=True)
    assert f"Pending under {HOSTILE}" in await tab.value("document.body.innerText")
    titles = await tab.value(
        "[...document.querySelectorAll('.annotation-text')].map(e => e.textContent)"
    )
    assert HOSTILE in titles
    fills = await tab.value("getComputedStyle(document.querySelector('.ytitle')).fill")
    assert fills == await tab.value("getComputedStyle(document.body).color")


async def test_decisions_are_plotted_by_kind_and_rule(show):
    evicted = Decision(
        kind=DecisionKind.EVICTED, gang="ns/Job/a", queue=HOSTILE, time=100.0, action="reclaim",
        pods=("ns/a-0", "ns/a-1"), preemptor="ns/Job/b",
    )  # fmt: skip
    pending = Decision(
        kind=DecisionKind.PENDING, gang="ns/Job/a", queue="q", time=101.0, stage="capacity"
    )
    tab = await show(decisions_page([evicted, pending], title="decisions"))
    text = await tab.value("document.body.innerText")
    assert "2 decisions from 1970-01-01 00:01:40 UTC" in text
    assert "ns/Job/b" in text
    assert [each > 0 for each in await tab.value(CURVES)] == [True, False, True, True]
    tab = await show(decisions_page([], title="decisions"))
    assert "No decisions" in await tab.value("document.body.innerText")
