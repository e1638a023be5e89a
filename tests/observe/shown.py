"""What the dashboard shows in tests: views that can be changed, and a large cluster.

Views of small worlds, as a scheduler would hand them to those who show them.

The dashboard in a browser: how large it is shown, and what it says.
"""

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.http import Probes
from kai_py.observe.http_api import ApiSource
from kai_py.observe.kept_history import ShareHistory
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.cluster_totals import gpus_of_nodes
from tests.observe.browser import find_browser
from tests.support import scenario


def view_of(snapshot, number=1):
    devices = ClusterDevices()
    plan = run_cycle(snapshot, CycleSettings(), CycleMemory(devices))
    published = devices.node_gpus(snapshot.nodes)
    gpus = gpus_of_nodes(snapshot, devices.accounting, published)
    return ClusterView(number, snapshot, plan, np.asarray(gpus))


class Shown:
    """A source whose view can be changed."""

    def __init__(self, *snapshots):
        self.decisions, self.shares, self.view = DecisionLog(), ShareHistory(), None
        for snapshot in snapshots:
            self.show(snapshot)

    def show(self, snapshot):
        self.view = view_of(snapshot, number=self.decisions.cycle + 1)
        self.decisions.record(self.view.plan, snapshot.gangs, snapshot.now)
        self.shares.record(self.view.plan, snapshot.now)

    def now(self):
        """The time of the view: its data is always new."""
        return self.view.snapshot.now if self.view else 0.0

    def probes(self):
        source = ApiSource(lambda: self.view, self.decisions, self.shares)
        return Probes(CollectorRegistry(), list, list, source, now=self.now)


def large_cluster():
    """10,000 nodes in four zones; a third of them in use."""
    made = scenario.Cluster().add(scenario.queue("team", 80_000))
    for i in range(10_000):
        labels = {
            "topology.kubernetes.io/zone": f"z{i // 2500}",
            "topology.kubernetes.io/rack": f"r{i // 16}",
        }
        made.add(scenario.node(f"n{i}", gpus=8, labels=labels))
        if i % 3 == 0:
            made.add(scenario.pod(f"p{i}", 6, queue="team", node=f"n{i}"))
    return made


IN_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="there is no chromium to show the page"),
]
"""Marks of modules that show the page."""
PAINTED = "document.body?.dataset.cycle"
NARROW, WIDE = (390, 800), (1280, 900)


async def look(tab, url, size=WIDE, *, dark=False):
    await tab.open(url, width=size[0], height=size[1], dark=dark)
    await tab.until(PAINTED)


async def texts(tab, selector):
    return await tab.value(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText)")
