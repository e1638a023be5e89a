"""The auditor inside the scheduler: slices, confirmation, metrics, log, a rule that fails."""

import logging
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from kai_py.audit import finding
from kai_py.audit.documents import decode_objects, observed_cluster
from kai_py.config import Configuration
from kai_py.observe import auditor
from kai_py.observe.auditor import Auditor
from tests.audit.objects import NOW, claim, node, pod, result

SOUND = [node(), pod("a", claims=["c"]), claim("c", result("gpu-0"), users=["a"])]
LOST = [node(), pod("a", claims=["c"]), claim("c")]


class World:
    """What an auditor observes, a clock of its own, and the metrics."""

    def __init__(self):
        self.objects = LOST
        self.now = NOW
        self.readings = 0
        self.registry = CollectorRegistry()
        self.auditor = Auditor(self.registry, self.observe, self.clock)

    def observe(self):
        if self.objects is None:
            return None
        return observed_cluster(decode_objects(self.objects), Configuration(), self.now)

    def clock(self):
        self.readings += 1
        return self.readings * 0.001

    def look(self, after):
        self.now += after
        while not self.auditor.advance(1.0):
            pass

    def count(self, kind="pod-without-claim"):
        return self.registry.get_sample_value("kai_py_audit_findings", {"kind": kind})


def test_a_finding_counts_once_it_has_lasted(caplog):
    caplog.set_level(logging.INFO)
    world = World()
    world.look(0)
    assert world.count() == 0
    world.look(finding.CONFIRM_SECONDS - 1)
    assert world.count() == 0
    world.look(1)
    assert world.count() == 1
    assert [each.objects[0] for each in world.auditor.findings] == ["Pod default/a"]
    world.look(60)
    world.objects = SOUND
    world.look(60)
    assert world.count() == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_finding_that_comes_and_goes_is_never_confirmed():
    world = World()
    for objects in (LOST, SOUND) * 5:
        world.objects = objects
        world.look(60)
        assert world.count() == 0


@pytest.mark.slow
def test_a_look_is_made_in_slices():
    world = World()
    world.objects = [node(), *(pod(f"p{n}", requests={"cpu": "1m"}) for n in range(2000))]
    slices = 1
    while not world.auditor.advance(0.004):
        slices += 1
    assert slices > 10
    assert world.registry.get_sample_value("kai_py_audits_total") == 1


@pytest.mark.slow
async def test_the_pause_is_a_hundred_times_the_slice(monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 20:
            raise KeyboardInterrupt

    world = World()
    world.objects = [node(), *(pod(f"p{n}", requests={"cpu": "1m"}) for n in range(2000))]
    monkeypatch.setattr(auditor.asyncio, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        await world.auditor.run()
    spent = world.registry.get_sample_value("kai_py_audit_seconds_total")
    assert spent / sum(pauses) <= 0.0101


def test_nothing_is_said_of_a_cluster_that_cannot_be_looked_at():
    world = World()
    world.objects = None
    assert world.auditor.advance(1.0)
    assert world.registry.get_sample_value("kai_py_audits_total") == 0


def test_a_rule_that_fails_does_not_blind_the_others(monkeypatch, caplog):
    def fails(cluster):
        yield None
        raise ValueError("an object of a kind that never was")

    monkeypatch.setattr(auditor, "RULES", (fails, *auditor.RULES))
    world = World()
    world.look(0)
    world.look(60)
    assert world.count() == 1
    assert world.registry.get_sample_value("kai_py_audit_failures_total") == 2
    assert "an object of a kind that never was" in caplog.text


def test_what_a_rule_finds_before_it_fails_counts(monkeypatch):
    def fails_later(rule, cluster):
        yield from rule(cluster)
        raise ValueError("an object of a kind that never was")

    rules = tuple(partial(fails_later, rule) for rule in auditor.RULES)
    monkeypatch.setattr(auditor, "RULES", rules)
    world = World()
    world.look(0)
    world.look(60)
    assert world.count() == 1


def test_a_finding_on_a_late_view_waits_until_the_view_has_caught_up():
    """Claims have come to version 9, pods hang at 5: the pod may have gone with its devices."""
    world, shown = World(), [(5, 9)]
    world.auditor = Auditor(CollectorRegistry(), world.observe, world.clock, lambda: shown[0])
    for _ in range(5):
        world.look(60)
        assert world.auditor.findings == ()
    shown[0] = (9, 12)
    world.look(60)
    assert len(world.auditor.findings) == 1, "all kinds show what any showed when it was found"
    world.objects = SOUND
    world.look(60)
    assert world.auditor.findings == ()
