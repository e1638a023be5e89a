"""What is kept from snapshot to snapshot: the same as long as nothing changes, and no longer.

Objects as they are looked up, and that nothing is kept of names that are gone.
"""

from unittest.mock import patch

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.records.core import Condition, LabelSelector, ObjectMeta, Pod, PodStatus
from kai_py.api.records.policy import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PriorityClass,
)
from kai_py.api.records.unstructured import unstructured
from kai_py.grouping.composite_groups import COMPOSITE_GROUPS, CompositeGroups
from kai_py.plan.state.cluster_totals import ClusterTotals
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.derived_pod import PodUsage
from kai_py.snapshot.object_cache import DEFAULT_PRIORITY_CLASS, ObjectCache
from kai_py.snapshot.tables.budgets import DisruptionBudgets
from kai_py.snapshot.tables.node_usage import NodeUsageTable
from tests.support.scenario import cluster, node, pod, queue, shared

COUNTED = (GPU, "cpu", "memory")


def part(name):
    return shared(pod(name, 0, queue="team", node="n"), "0.25", group="card")


def totals(kept, world):
    snapshot = world.snapshot()
    published = world.devices.node_gpus(snapshot.nodes)
    return kept.of(snapshot, COUNTED, world.devices.accounting, published).tolist()


def test_shared_gpus_are_seen_as_pods_come_and_go():
    first, second = part("first"), part("second")
    world = cluster(node("n"), queue("team", 8), first)
    before = world.snapshot().gpu_sharing
    assert world.snapshot().gpu_sharing is before
    more = world.add(second).snapshot().gpu_sharing
    assert more.used.tolist() == [2 * before.used[0]]
    world.remove(second)
    assert world.snapshot().gpu_sharing.used.tolist() == before.used.tolist()
    assert not world.remove(first).snapshot().gpu_sharing.rows.size


def test_what_is_released_is_copied_only_when_it_changes():
    world = cluster(node("n"), queue("team", 8), pod("runs", 1, queue="team", node="n"))
    before = world.snapshot()
    other = pod("other", 2, queue="team", node="n")
    after = world.add(other).snapshot()
    gpu = after.resources.positions[GPU_RESOURCE]
    assert after.releasing is before.releasing
    assert (before.used[gpu].tolist(), after.used[gpu].tolist()) == ([1.0], [3.0])
    leaving = world.add(pod("other", 2, queue="team", node="n", leaving=True)).snapshot()
    assert (after.has_releasing, leaving.has_releasing) == (False, True)
    assert (after.releasing[gpu].tolist(), leaving.releasing[gpu].tolist()) == ([0.0], [2.0])


def test_totals_are_added_again_when_a_node_changes():
    kept, world = ClusterTotals(), cluster(node("n"), node("m", 4))
    first = totals(kept, world)
    assert first[0] == 12.0
    assert totals(kept, world) == first
    world.add(node("m", 2))
    assert totals(kept, world) == totals(ClusterTotals(), world)
    assert totals(kept, world)[0] == 10.0


def test_totals_handed_out_earlier_stay_as_they_were():
    kept, world = ClusterTotals(), cluster(node("n"))
    snapshot = world.snapshot()
    published = world.devices.node_gpus(snapshot.nodes)
    given = kept.of(snapshot, COUNTED, world.devices.accounting, published)
    given += np.inf
    assert totals(kept, world)[0] == 8.0


def priority(name, *, default):
    meta = ObjectMeta(name=name, uid=name)
    return PriorityClass(metadata=meta, value=7, global_default=default)


def test_the_default_priority_class_is_the_one_that_is_so_now():
    objects, default, plain = (
        ObjectCache(),
        priority("high", default=True),
        priority("high", default=False),
    )
    assert DEFAULT_PRIORITY_CLASS in objects.apply("priorityclasses", None, default)
    assert objects.get(*DEFAULT_PRIORITY_CLASS) is default
    assert DEFAULT_PRIORITY_CLASS in objects.apply("priorityclasses", default, plain)
    assert objects.get(*DEFAULT_PRIORITY_CLASS) is None
    assert objects.get("priorityclasses", "", "high") is plain
    other = priority("other", default=True)
    objects.apply("priorityclasses", plain, default)
    objects.apply("priorityclasses", None, other)
    objects.apply("priorityclasses", default, None)
    assert objects.get(*DEFAULT_PRIORITY_CLASS) is other


def test_no_composite_group_is_kept_after_the_last_group_below_it():
    groups = CompositeGroups()
    above, group = (
        unstructured({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, ("spec",))
        for name, spec in (("above", {}), ("g", {"parentCompositePodGroupName": "above"}))
    )
    groups.apply(COMPOSITE_GROUPS, None, above)
    groups.apply("podgroups", None, group)
    groups.apply("podgroups", group, group)
    assert groups.below("podgroups", above) == (group,)
    groups.apply("podgroups", group, None)
    groups.apply(COMPOSITE_GROUPS, above, None)
    assert not groups._below
    assert not groups._parents


def test_what_was_made_of_an_object_is_kept_until_it_changes():
    objects, high = ObjectCache(), priority("high", default=False)
    keys = objects.apply("priorityclasses", None, high)
    objects.kept(keys[0])["made"] = 1
    objects.apply("priorityclasses", None, priority("other", default=False))
    assert objects.kept(keys[0]) == {"made": 1}
    objects.apply("priorityclasses", high, priority("high", default=False))
    assert not objects.kept(keys[0])


def test_no_node_is_kept_after_the_last_pod_with_a_volume_on_it():
    table = NodeUsageTable()
    for name in ("a", "b"):
        table.set_usage(name, PodUsage("n", {}, exclusive=("ns/claim",)))
    table.set_usage("a", None)
    assert table._with_items.keys() == {"n"}
    table.set_usage("b", None)
    assert not table._with_items


def test_budgets_are_built_again_only_for_pods_of_theirs_that_change_in_what_counts():
    def seen(name, *, app="runs", ready="True", phase="Running"):
        meta = ObjectMeta(name=name, namespace="ns", uid=name, labels={"app": app})
        status = PodStatus(phase=phase, conditions=(Condition("Ready", ready),))
        return Pod(metadata=meta, status=status)

    budgets = DisruptionBudgets(lambda _pod: True)
    spec = PodDisruptionBudgetSpec(
        selector=LabelSelector(match_labels={"app": "runs"}),
        unhealthy_pod_eviction_policy="AlwaysAllow",
    )
    meta = ObjectMeta(name="b", namespace="ns", uid="b")
    budgets.apply("poddisruptionbudgets", None, PodDisruptionBudget(metadata=meta, spec=spec))
    built = [budgets.snapshot()]
    for each, changes in (
        (seen("p"), True),
        (seen("p"), False),
        (seen("p", ready="False"), True),
        (seen("p", ready="False"), False),
        (seen("other", app="other"), False),
        (seen("other", app="other", ready="False"), False),
        (seen("q", phase="Pending"), False),
        (seen("q"), True),
    ):
        budgets.observe(each)
        built.append(budgets.snapshot())
        assert (built[-1] is not built[-2]) is changes, each
    budgets.remove(seen("other", app="other"))
    assert budgets.snapshot() is built[-1]
    budgets.remove(seen("p"))
    (left,) = budgets.snapshot()
    assert (left.pods, left.exempt) == ({"q"}, frozenset())
    budgets.observe(seen("q", ready="False"))
    (left,) = budgets.snapshot()
    assert (left.pods, left.exempt) == ({"q"}, {"q"})


def test_no_namespace_is_kept_after_its_last_budget():
    budgets = DisruptionBudgets(lambda _pod: True)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="ns", uid="b"))
    budgets.apply("poddisruptionbudgets", None, budget)
    budgets.apply("poddisruptionbudgets", budget, None)
    assert not budgets._budgets


def test_a_pod_is_among_those_of_its_first_two_budgets():
    """The Eviction API refuses to evict a pod of several budgets, whichever they are."""

    def seen(app, phase="Running"):
        meta = ObjectMeta(name="p", namespace="ns", uid="p", labels={"app": app})
        return Pod(metadata=meta, status=PodStatus(phase=phase))

    def budget(name, app="runs", namespace="ns"):
        selector = LabelSelector(match_labels={"app": app})
        meta = ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}/{name}")
        return PodDisruptionBudget(meta, PodDisruptionBudgetSpec(selector=selector))

    def protecting():
        assert {uid for each in budgets.snapshot() for uid in each.pods} <= {"p"}
        return [each.name for each in budgets.snapshot()]

    budgets = DisruptionBudgets(lambda _pod: True)
    budgets.observe(seen("runs"))
    for name in ("d", "b", "e", "c"):
        budgets.apply("poddisruptionbudgets", None, budget(name))
        budgets.apply("poddisruptionbudgets", None, budget(f"other-{name}", "other"))
    budgets.apply("poddisruptionbudgets", None, budget("a", namespace="elsewhere"))
    assert protecting() == ["ns/b", "ns/c"]
    budgets.apply("poddisruptionbudgets", budget("b"), None)
    assert protecting() == ["ns/c", "ns/d"]
    budgets.apply("poddisruptionbudgets", budget("c"), budget("c", "other"))
    assert protecting() == ["ns/d", "ns/e"]
    budgets.observe(seen("other"))
    assert protecting() == ["ns/c", "ns/other-b"]
    with patch("kai_py.snapshot.tables.budgets._selects", side_effect=AssertionError):
        budgets.observe(seen("other"))
    budgets.observe(seen("other", phase="Pending"))
    assert protecting() == []
    budgets.observe(seen("runs"))
    assert protecting() == ["ns/d", "ns/e"]
    budgets.remove(seen("runs"))
    assert protecting() == []
    assert not budgets._pods
    assert not budgets._protecting
    assert not budgets._protected
