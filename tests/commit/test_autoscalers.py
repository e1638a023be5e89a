"""Nodes that are promised to pods are kept from autoscalers, and only as long.

Gangs that new nodes do not help stop calling for more.
"""

import pytest
from msgspec.structs import replace

from kai_py.api.autoscaling import PROMISED_KEY, PROTECTING_ANNOTATIONS
from kai_py.commit.autoscalers import LINGER, NodeProtector, ScaleUpTracker
from kai_py.commit.retry import ObjectBackoff, RetryPolicy
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import Plan, Shortage, Stage, Unplaced
from kai_py.watch.errors import from_response
from tests.support.scenario import cluster, job_with_pods, node, pod, queue

KARPENTER, AUTOSCALER = PROTECTING_ANNOTATIONS
RBAC = b'{"message": "nodes \\"a\\" is forbidden: User \\"u\\" cannot patch resource \\"nodes\\""}'


class Nodes:
    """Nodes, and a client that patches them, except the ``failing`` ones."""

    def __init__(self, *nodes, denied=False):
        self.known = {("", each.metadata.name): each for each in nodes}
        self.denied, self.failing, self.writes = denied, {}, 0

    def __call__(self):
        return self.known

    async def patch(self, _resource, name, patch, **_options):
        self.writes += 1
        if self.denied:
            raise from_response("PATCH node", 403, RBAC, {})
        if name in self.failing:
            raise from_response("PATCH node", self.failing[name], b"{}", {})
        each = self.known["", name]
        written = {**each.metadata.annotations, **patch["metadata"]["annotations"]}
        kept = {key: value for key, value in written.items() if value is not None}
        meta = replace(each.metadata, annotations=kept)
        self.known["", name] = replace(each, metadata=meta)

    def annotations(self, name):
        return self.known["", name].metadata.annotations


def annotated(name, **annotations):
    each = node(name)
    return replace(each, metadata=replace(each.metadata, annotations=annotations))


def protector_of(nodes):
    return NodeProtector(nodes, nodes, ObjectBackoff(RetryPolicy(base=0.5, maximum=60.0)))


async def test_a_promised_node_is_protected_once_and_released_later():
    nodes = Nodes(node("a"), node("b"))
    protector = protector_of(nodes)
    protector.update(["a"])
    await protector.run_once(0.0)
    await protector.run_once(1.0)
    assert nodes.annotations("a") == {
        KARPENTER: "true",
        AUTOSCALER: "true",
        PROMISED_KEY: f"{KARPENTER},{AUTOSCALER}",
    }
    assert nodes.annotations("b") == {}
    protector.update(())
    await protector.run_once(LINGER)
    assert KARPENTER in nodes.annotations("a")
    await protector.run_once(LINGER + 2)
    assert nodes.annotations("a") == {}
    assert nodes.writes == 2


async def test_what_others_wrote_stays():
    nodes = Nodes(annotated("a", **{KARPENTER: "true"}))
    protector = protector_of(nodes)
    protector.update(["a"])
    await protector.run_once(0.0)
    protector.update(())
    await protector.run_once(LINGER + 1)
    assert nodes.annotations("a") == {KARPENTER: "true"}


async def test_a_new_leader_releases_what_the_last_one_protected():
    written = {KARPENTER: "true", PROMISED_KEY: f"{KARPENTER},evil/key", "evil/key": "x"}
    nodes = Nodes(annotated("a", **written))
    protector = protector_of(nodes)
    await protector.run_once(1.0)
    assert KARPENTER in nodes.annotations("a"), "it may be promised again at once"
    await protector.run_once(LINGER + 2)
    assert nodes.annotations("a") == {"evil/key": "x"}


async def test_without_the_permission_it_stops_for_a_while():
    nodes = Nodes(node("a"), node("b"), denied=True)
    protector = protector_of(nodes)
    protector.update(["a", "b"])
    assert await protector.run_once(0.0)
    assert nodes.writes == 1


async def test_a_failure_holds_up_its_own_node_only_and_not_for_long():
    nodes = Nodes(node("a"), node("b"), node("c"))
    nodes.failing = {"a": 503, "b": 403}
    protector = protector_of(nodes)
    protector.update(["a", "b", "c"])
    assert not await protector.run_once(0.0)
    assert KARPENTER in nodes.annotations("c")
    nodes.failing = {}
    await protector.run_once(1.0)
    assert KARPENTER in nodes.annotations("a")
    assert KARPENTER in nodes.annotations("b")


def test_nodes_with_nominated_pods_are_promised():
    low = job_with_pods("low", 1, 8, queue="q", node="a")
    high = pod("high", 8, queue="q", priority=100)
    plan = cluster(queue("q", 8), node("a"), node("b", 0), low, high).plan()
    assert [each.node for each in plan.nominations] == ["a"]
    assert plan.promised_nodes == ("a",)


async def test_a_release_that_failed_is_repeated_and_then_forgotten():
    nodes = Nodes(node("a"))
    protector = protector_of(nodes)
    protector.update(["a"])
    await protector.run_once(0.0)
    protector.update(())
    nodes.failing = {"a": 503}
    await protector.run_once(LINGER + 1)
    assert KARPENTER in nodes.annotations("a")
    nodes.failing = {}
    await protector.run_once(LINGER + 10)
    assert nodes.annotations("a") == {}
    await protector.run_once(LINGER + 20)
    # Forgotten: what another process marks now is not this one's to release.
    nodes.known["", "a"] = annotated("a", **{KARPENTER: "true", PROMISED_KEY: KARPENTER})
    await protector.run_once(LINGER + 30)
    assert KARPENTER in nodes.annotations("a")


SETTLED = 300.0


@pytest.fixture
def wakes():
    return []


@pytest.fixture
def scale_ups(wakes):
    return ScaleUpTracker(settled_after=SETTLED, max_ineffective=2, wake=wakes.append)


def waits(stage=Stage.TOPOLOGY, found=0, needed=8):
    owner = Owner("batch/v1", "Job", "default", "train", "u")
    short = Shortage(found, needed, ())
    return Plan(
        unplaced=(Unplaced("default/Job/train", owner, "q", stage, "no rack.", (), shortage=short),)
    )


def stage_after(scale_ups, plan, nodes, now):
    names = [f"node-{number}" for number in range(nodes)]
    return scale_ups.suppress_ineffective(plan, names, now).unplaced[0].stage


def scale_up(scale_ups, plan, nodes, now):
    """One more node, and what is said once it has settled."""
    assert stage_after(scale_ups, plan, nodes - 1, now) == stage_after(
        scale_ups, plan, nodes, now + 1
    )
    return stage_after(scale_ups, plan, nodes, now + 1 + SETTLED)


def test_a_gang_stops_calling_after_so_many_scale_ups_without_effect(scale_ups, wakes):
    assert scale_up(scale_ups, waits(), 2, 0.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 3, 1000.0) is Stage.SCALE_UP_INEFFECTIVE
    assert wakes == [SETTLED, SETTLED]
    (told,) = scale_ups.suppress_ineffective(waits(), ["node-0"], 2000.0).unplaced
    assert told.message == (
        "no rack; 2 scale-ups added no usable capacity for it, so it requests no more nodes."
    )


def test_nodes_that_come_one_after_the_other_are_one_scale_up(scale_ups):
    for number in range(1, 10):
        assert stage_after(scale_ups, waits(), number, 10.0 * number) is Stage.TOPOLOGY
    assert stage_after(scale_ups, waits(), 9, 1000.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 10, 2000.0) is Stage.SCALE_UP_INEFFECTIVE


def test_a_gang_that_finds_more_capacity_calls_on(scale_ups):
    scale_up(scale_ups, waits(), 2, 0.0)
    assert scale_up(scale_ups, waits(found=4), 3, 1000.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(found=4), 4, 2000.0) is Stage.SCALE_UP_INEFFECTIVE


def test_a_gang_that_asks_for_something_else_calls_again(scale_ups):
    scale_up(scale_ups, waits(), 2, 0.0)
    assert scale_up(scale_ups, waits(), 3, 1000.0) is Stage.SCALE_UP_INEFFECTIVE
    assert stage_after(scale_ups, waits(needed=4), 3, 1500.0) is Stage.TOPOLOGY


def test_a_gang_that_came_during_a_scale_up_is_not_counted_in(scale_ups):
    scale_ups.suppress_ineffective(waits(needed=1), ["node-0"], 0.0)
    scale_ups.suppress_ineffective(waits(needed=1), ["node-0", "node-1"], 1.0)
    assert stage_after(scale_ups, waits(), 2, 2.0) is Stage.TOPOLOGY
    assert stage_after(scale_ups, waits(), 2, 301.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 3, 1000.0) is Stage.TOPOLOGY
    assert scale_up(scale_ups, waits(), 4, 2000.0) is Stage.SCALE_UP_INEFFECTIVE


def test_a_gang_that_waits_for_its_queue_does_not_call(scale_ups):
    for number in range(1, 6):
        now = 1000.0 * number
        assert stage_after(scale_ups, waits(Stage.QUEUE_MAX), number, now) is Stage.QUEUE_MAX


@pytest.mark.parametrize(
    ("names", "wakes_up"), [("ab", False), ("a", False), ("ac", True), ("abc", True)]
)
def test_only_a_node_that_is_new_begins_a_scale_up(scale_ups, wakes, names, wakes_up):
    scale_ups.suppress_ineffective(waits(), "ab", 0.0)
    scale_ups.suppress_ineffective(waits(), names, 1.0)
    assert wakes == ([SETTLED] if wakes_up else [])
