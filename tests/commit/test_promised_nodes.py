"""Nodes that are promised to pods are kept from autoscalers, and only as long."""

from msgspec.structs import replace

from kai_py.api.autoscaling import PROMISED_KEY, PROTECTING_ANNOTATIONS
from kai_py.commit.promised_nodes import LINGER, NodeProtector
from kai_py.commit.retry import ObjectBackoff, RetryPolicy
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
