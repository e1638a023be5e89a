"""What the dashboard shows in tests: views that can be changed, and a large cluster."""

from prometheus_client import CollectorRegistry

from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.http import Probes
from kai_py.observe.http_api import ApiSource
from kai_py.observe.share_history import ShareHistory
from tests.observe.views import view_of
from tests.support import scenario


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
