"""Objects as they are looked up, and that nothing is kept of names that are gone."""

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.policy import PodDisruptionBudget, PriorityClass
from kai_py.api.records.unstructured import unstructured
from kai_py.snapshot.node_usage import NodeUsageTable, PodUsage
from kai_py.snapshot.object_cache import DEFAULT_PRIORITY_CLASS, ObjectCache
from kai_py.snapshot.tables.budgets import DisruptionBudgets


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
    objects = ObjectCache()
    document = {
        "metadata": {"name": "g", "namespace": "ns", "uid": "u"},
        "spec": {"parentCompositePodGroupName": "above"},
    }
    group = unstructured(document, ("spec",))
    objects.apply("podgroups", None, group)
    objects.apply("podgroups", group, group)
    assert objects.child_groups("podgroups", "ns", "above") == (group,)
    objects.apply("podgroups", group, None)
    assert not objects._child_groups


def test_no_node_is_kept_after_the_last_pod_with_a_volume_on_it():
    table = NodeUsageTable()
    for pod in ("a", "b"):
        table.set_usage(pod, PodUsage("n", {}, exclusive=("ns/claim",)))
    table.set_usage("a", None)
    assert table._with_items.keys() == {"n"}
    table.set_usage("b", None)
    assert not table._with_items


def test_no_namespace_is_kept_after_its_last_budget():
    budgets = DisruptionBudgets({}, lambda _pod: True)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="ns", uid="b"))
    budgets.apply("poddisruptionbudgets", None, budget)
    budgets.apply("poddisruptionbudgets", budget, None)
    assert not budgets._budgets
