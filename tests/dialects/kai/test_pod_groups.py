"""KAI's PodGroup: gangs, trees, priorities and terms, as its users write them."""

import pytest

from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.kai import KaiPodGroup, KaiPodGroupSpec, KaiSubGroup
from kai_py.dialects.kai.pod_groups import gang_from_pod_group
from kai_py.grouping.owner_chain import KnownOwners
from kai_py.plan.plan import Stage
from tests.dialects.feeding import NOW, Cluster, node, placed, pod
from tests.dialects.kai.objects import QUEUE, member, members, pod_group, priority_class

KEY = "default/PodGroup.scheduling.run.ai/{}"


def gang(group, *objects):
    name = group["metadata"]["name"]
    return Cluster(QUEUE, group, member("a", name), *objects).gang(KEY.format(name))


def leaf(label, given, *, trees):
    """The subgroup of a pod with this label, and what is wrong with it."""
    children = [KaiSubGroup(name=each, min_member=1) for each in ("a", "default")] if trees else []
    group = KaiPodGroup(ObjectMeta(name="g"), KaiPodGroupSpec(sub_groups=children))
    labels = {"kai.scheduler/subgroup-name": label} if label else {}
    pod = Pod(metadata=ObjectMeta(labels=labels))
    owners = KnownOwners()
    found = gang_from_pod_group(group, pod, owners, queue="", subgroup=given)
    return found.subgroup, found.pod_problem.partition(" it must")[0]


@pytest.mark.parametrize(
    ("label", "given", "flat", "in_tree"),
    [
        ("", "", ("", ""), ("", "label kai.scheduler/subgroup-name is missing;")),
        ("", "a", ("", ""), ("a", "")),
        ("a", "default", None, ("a", "")),
        ("default", "a", ("", ""), ("default", "")),
        ("b", "a", None, None),
    ],
)
def test_a_pod_is_in_the_leaf_of_its_label_or_else_of_its_owner(label, given, flat, in_tree):
    for found, expected in (
        (leaf(label, given, trees=False), flat),
        (leaf(label, given, trees=True), in_tree),
    ):
        if expected is None:
            assert found[0] == label
            assert found[1].startswith(f'label kai.scheduler/subgroup-name names "{label}", ')
        else:
            assert found == expected


def test_a_group_names_no_class_that_only_pods_may_name():
    system = "system-node-critical"
    classes = priority_class(system, 2_000_001_000), priority_class("high", 99)
    assert gang(pod_group("g", priorityClassName=system), *classes).priority == 50
    assert gang(pod_group("g", priorityClassName="high"), *classes).priority == 99


def test_a_group_starts_with_its_floor_and_not_below():
    cluster = Cluster(QUEUE, node("n", 4), pod_group("g", minMember=3), members("g", 2))
    assert cluster.why() == {
        KEY.format("g"): ("BelowMinMember", "minMember is 3; existing pods: 2.")
    }
    cluster.add(member("last", "g"))
    assert sorted(placed(cluster.plan())) == ["g-0", "g-1", "last"]


def test_a_group_says_floor_one_unless_it_says_otherwise():
    assert gang(pod_group("g")).tree.min_members == 1
    assert gang(pod_group("g", minMember=0)).tree.min_members == 0


def test_groups_of_one_name_in_two_namespaces_are_two_gangs():
    here, there = pod_group("g", minMember=2), pod_group("g", minMember=2)
    there["metadata"]["namespace"] = "other"
    strange = member("x", "g")
    strange["metadata"]["namespace"] = "other"
    cluster = Cluster(QUEUE, node("n"), here, there, members("g", 2), strange)
    assert sorted(placed(cluster.plan())) == ["g-0", "g-1"]


def test_a_group_that_appears_later_starts_its_pods():
    cluster = Cluster(QUEUE, node("n"), members("g", 2))
    [(stage, message)] = cluster.why().values()
    assert (stage, message) == ("Invalid", "PodGroup default/g does not exist (yet)")
    cluster.add(pod_group("g", minMember=2))
    assert len(placed(cluster.plan())) == 2


TREE = {
    "minSubGroup": 1,
    "subGroups": [
        {"name": "decode", "minMember": 2, "parent": "serving"},
        {"name": "prefill", "minMember": 1, "parent": "serving"},
        {"name": "serving"},
        {"name": "spare", "minMember": 0},
        {"name": "batch", "minMember": 4},
    ],
}


def test_subgroups_form_a_tree_and_any_enough_of_them_start():
    group = pod_group("g", **TREE)
    tree = gang(group).tree
    assert [child.name for child in tree.children] == ["batch", "serving", "spare"]
    assert [child.name for child in tree.children[1].children] == ["decode", "prefill"]
    assert (tree.min_subgroups, tree.children[1].min_subgroups) == (1, None)
    group = pod_group("g", **(TREE | {"minSubGroup": 2}))
    pods = [members("g", 2, "decode"), members("g", 1, "prefill")]
    assert sorted(placed(Cluster(QUEUE, node("n"), group, *pods).plan())) == [
        "g-decode0",
        "g-decode1",
        "g-prefill0",
    ]
    assert placed(Cluster(QUEUE, node("n"), group, *pods[:1]).plan()) == {}


def test_a_pod_of_an_unknown_subgroup_is_kept_back_alone_and_told_so():
    group = pod_group("g", subGroups=[{"name": "workers", "minMember": 1}])
    cluster = Cluster(QUEUE, node("n"), group, members("g", 1, "workers"))
    cluster.add([member("lost", "g", "typo"), member("bare", "g")])
    plan = cluster.plan()
    assert list(placed(plan)) == ["g-workers0"]
    [unplaced] = plan.unplaced
    assert sorted(each.name for each in unplaced.pods) == ["bare", "lost"]
    assert "subgroup-name is missing; it must name a leaf of PodGroup g (workers)" in (
        unplaced.message
    )


def test_a_subgroup_that_does_not_exist_is_named_with_those_that_do():
    group = pod_group("g", subGroups=[{"name": "workers", "minMember": 1}])
    cluster = Cluster(QUEUE, node("n"), group, members("g", 1, "workers"))
    cluster.add([member("lost", "g", "typo")])
    [unplaced] = cluster.plan().unplaced
    assert 'names "typo", which is not a leaf of PodGroup g (workers)' in unplaced.message


def test_a_subgroup_of_a_group_without_any_is_told():
    cluster = Cluster(QUEUE, node("n"), pod_group("g"), members("g", 1, "s1"))
    [unplaced] = cluster.plan().unplaced
    assert 'names "s1", but PodGroup g has no subGroups' in unplaced.message


def test_gates_are_named():
    group = pod_group("g", minMember=2)
    gated = member("g-1", "g", schedulingGates=[{"name": "example.com/hold"}])
    [unplaced] = Cluster(QUEUE, node("n"), group, member("g-0", "g"), gated).plan().unplaced
    assert unplaced.stage is Stage.SCHEDULING_GATED
    assert unplaced.message.endswith("gated pods: 1 (by example.com/hold).")


def test_the_domain_of_the_pods_that_run_already_is_named():
    """Other racks have the capacity, but the gang must stay in its own."""
    constraint = {"topology": "racks", "requiredTopologyLevel": "rack"}
    group = pod_group("g", minMember=1, topologyConstraint=constraint)
    nodes = [node(name, labels={"rack": name}) for name in ("r1", "r2")]
    running = member("g-0", "g", gpus=8, nodeName="r1")
    racks = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "rack"}]},
    }
    waiting = member("g-1", "g")
    [unplaced] = Cluster(QUEUE, nodes, racks, group, running, waiting).plan().unplaced
    assert "its other pods are in r1, which has no capacity for 1 pod more" in unplaced.message


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"minSubGroup": 3}, "spec.minSubGroup is 3, but there are only 2 subgroups below"),
        ({"minSubGroup": 1, "minMember": 1}, "spec.minMember and spec.minSubGroup are both set"),
        ({"minMember": -1}, "spec.minMember is -1, which is below 0"),
        ({"add": {"name": "c", "minSubGroup": -2}}, "spec.subGroups[c].minSubGroup is -2, which"),
        (
            {"add": {"name": "c", "minSubGroup": 0, "minMember": 0}},
            "spec.subGroups[c].minMember and spec.subGroups[c].minSubGroup are both set",
        ),
        ({"add": {"name": "c", "parent": "gone"}}, 'there is no subgroup "gone"'),
        ({"add": {"name": "c", "parent": "c"}}, "it is its own ancestor"),
        ({"add": {"name": "a"}}, 'the name "a" is used more than once'),
        ({"stalenessGracePeriod": "soon"}, "spec.stalenessGracePeriod: 'soon' is not a duration"),
    ],
)
def test_a_group_that_makes_no_sense_waits_with_the_reason_and_stops_no_other(spec, told):
    entries = [{"name": "a", "minMember": 0}, {"name": "b", "minMember": 0}]
    entries += [spec.pop("add")] if "add" in spec else []
    group = pod_group("g", subGroups=entries, **spec)
    cluster = Cluster(QUEUE, node("n"), group, members("g", 1, "a"))
    cluster.add([pod_group("fine"), member("ok", "fine")])
    plan = cluster.plan()
    assert list(placed(plan)) == ["ok"]
    assert plan.unplaced[0].stage == "Invalid"
    assert told in plan.unplaced[0].message
    assert plan.unplaced[0].message.startswith("PodGroup default/g: ")


@pytest.mark.parametrize(
    ("name", "value"), [("train", 50), ("build-preemptible", 75), ("build", 100), ("none", 50)]
)
def test_priority_classes_count_even_where_they_are_not_installed(name, value):
    found = gang(pod_group("g", priorityClassName=name))
    assert (found.priority, found.preemptible) == (value, value < 100)


def test_the_clusters_priority_classes_go_first_and_changes_are_seen():
    cluster = Cluster(QUEUE, pod_group("g", priorityClassName="train"), member("a", "g"))
    cluster.add(priority_class("train", 110))
    found = cluster.gang(KEY.format("g"))
    assert (found.priority, found.preemptible) == (110, False)
    cluster.add([priority_class("base", 7, default=True), pod_group("g", priorityClassName="no")])
    assert cluster.gang(KEY.format("g")).priority == 7
    cluster.remove(priority_class("base", 7, default=True))
    assert cluster.gang(KEY.format("g")).priority == 50


def test_preemptibility_overrides_the_priority_both_ways():
    assert gang(pod_group("g", priorityClassName="inference")).preemptible is False
    said = pod_group("g", priorityClassName="inference", preemptibility="preemptible")
    assert gang(said).preemptible is True
    assert gang(pod_group("g", preemptibility="non-preemptible")).preemptible is False


def test_terms_of_a_group():
    found = gang(
        pod_group(
            "g",
            stalenessGracePeriod="-1s",
            preemptionDelay="5m",
            metadata={
                "creationTimestamp": "2027-01-15T06:00:00Z",
                "annotations": {
                    "kai.scheduler/last-eviction-timestamp": "2027-01-15T07:30:00+00:00",
                },
            },
        )
    )
    assert (found.settings.staleness_grace, found.settings.preemption_delay) == (-1.0, 300.0)
    assert found.created == NOW - 7200
    assert found.settings.last_evicted == NOW - 1800


def short_group(said="", **spec):
    """A group for three pods of which two run, since when its annotation says."""
    marks = {"kai.scheduler/stale-podgroup-timestamp": said} if said else {}
    return pod_group("g", minMember=3, metadata={"annotations": marks}, **spec)


def running(count):
    return members("g", count, nodeName="n")


def ended(cluster, now):
    return sorted(eviction.pod.name for eviction in cluster.plan(now).evictions)


def test_a_restart_does_not_restart_the_grace_period():
    before = "2027-01-15T07:59:30Z"
    cluster = Cluster(QUEUE, node("n"), short_group(before), running(2))
    assert cluster.gang(KEY.format("g")).stale_since == NOW - 30
    assert ended(cluster, NOW + 29) == []
    assert ended(cluster, NOW + 30) == ["g-0", "g-1"]
    told_late = Cluster(QUEUE, node("n"), running(2), short_group(before))
    assert ended(told_late, NOW + 30) == ["g-0", "g-1"]


def test_a_mark_from_before_a_gang_was_whole_counts_no_more():
    cluster = Cluster(QUEUE, node("n"), short_group("2027-01-15T07:00:00Z"), running(3))
    assert cluster.gang(KEY.format("g")).stale_since is None
    cluster.remove(running(3)[2:])
    assert ended(cluster, NOW + 100) == []
    assert ended(cluster, NOW + 159) == []
    assert ended(cluster, NOW + 160) == ["g-0", "g-1"]


def test_a_mark_in_the_future_does_not_lengthen_the_grace():
    cluster = Cluster(QUEUE, node("n"), short_group("2027-01-15T09:00:00Z"), running(2))
    assert cluster.gang(KEY.format("g")).stale_since == NOW


def test_the_own_grace_of_a_group_counts_and_a_negative_one_never_ends():
    cluster = Cluster(QUEUE, node("n"), short_group(stalenessGracePeriod="5s"), running(2))
    assert ended(cluster, NOW) == []
    assert ended(cluster, NOW + 5) == ["g-0", "g-1"]
    lasting = Cluster(QUEUE, node("n"), short_group(stalenessGracePeriod="-1s"), running(2))
    assert ended(lasting, NOW) == []
    assert ended(lasting, NOW + 1e6) == []


def test_one_attempt_is_one_attempt_until_the_condition_of_its_pool_goes():
    condition = {"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True"}
    tried = pod_group("g", {"schedulingConditions": [condition]}, schedulingBackoff=1)
    cluster = Cluster(QUEUE, node("n"), tried, member("a", "g"))
    [(stage, message)] = cluster.why().values()
    assert stage == "Backoff"
    assert "only scheduling attempt" in message
    condition["nodePool"] = "other"
    assert placed(cluster.add(tried).plan()) == {"a": "n"}
    condition["nodePool"] = "default"
    unbounded = pod_group("g", {"schedulingConditions": [condition]})
    assert placed(cluster.add(unbounded).plan()) == {"a": "n"}


def test_groups_that_do_not_want_marks_have_none():
    quiet = pod_group("g", markUnschedulable=False, minMember=2)
    cluster = Cluster(QUEUE, node("n"), quiet, member("a", "g"))
    assert [each.marked for each in cluster.plan().unplaced] == [False]
    loud = pod_group("g", markUnschedulable=True, minMember=2)
    assert [each.marked for each in cluster.add(loud).plan().unplaced] == [True]


def test_masters_and_heads_come_first_then_task_priority():
    labels = {
        "plain": {},
        "low": {"kai.scheduler/task-priority": "-5"},
        "high": {"kai.scheduler/task-priority": "9"},
        "head": {"ray.io/node-type": "head", "kai.scheduler/task-priority": "1"},
        "master": {"training.kubeflow.org/job-role": "master"},
    }
    pods = [member(name, "g", labels=marks) for name, marks in labels.items()]
    found = Cluster(QUEUE, pod_group("g"), pods).gang(KEY.format("g"))
    assert [m.pod.name for m in found.members] == ["master", "head", "high", "low", "plain"]


TOPOLOGY = """
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: dc}
spec:
  levels: [{nodeLabel: block}, {nodeLabel: example.com/rack, alias: rack}]
"""
RACKS = [
    node(f"n{i}", 2, {"block": "b", "example.com/rack": rack}) for i, rack in enumerate("xxyyy")
]


def test_a_required_level_may_be_named_by_its_alias():
    constraint = {"topology": "dc", "requiredTopologyLevel": "rack"}
    group = pod_group("g", minMember=6, topologyConstraint=constraint)
    cluster = Cluster(QUEUE, TOPOLOGY, RACKS, group, members("g", 6))
    assert set(placed(cluster.plan()).values()) == {"n2", "n3", "n4"}
    cluster.remove(TOPOLOGY)
    [(stage, message)] = cluster.why().values()
    assert (stage, message) == ("Topology", "Requested topology dc does not exist")
    cluster.add(TOPOLOGY)
    assert len(placed(cluster.plan())) == 6


def test_subgroups_have_constraints_of_their_own():
    rack = {"topology": "dc", "requiredTopologyLevel": "rack"}
    entries = [
        {"name": name, "minMember": 2, "topologyConstraint": rack} for name in ("left", "right")
    ]
    group = pod_group("g", subGroups=entries)
    pods = [members("g", 2, name, gpus=2) for name in ("left", "right")]
    where = placed(Cluster(QUEUE, TOPOLOGY, RACKS, group, *pods).plan())
    racks = {name: "x" if where[name] in ("n0", "n1") else "y" for name in where}
    assert racks["g-left0"] == racks["g-left1"]
    assert racks["g-right0"] == racks["g-right1"]


def test_our_own_annotation_goes_before_kais_which_goes_before_owners():
    owner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    kais = {"pod-group-name": "g"}
    both = kais | {"scheduling.kai.io/pod-group": "ours"}
    world = [QUEUE, pod_group("g"), owner]
    found = Cluster(*world, pod("p", owner=owner, annotations=kais)).snapshot().gangs
    assert list(found) == [KEY.format("g")]
    found = Cluster(*world, pod("p", owner=owner, annotations=both)).snapshot().gangs
    assert list(found) == ["default/PodGroup/ours"]


def test_a_subgroup_that_the_gang_runs_without_waits_for_its_pods_and_says_so():
    leaves = [{"name": "driver", "minMember": 1}, {"name": "executor", "minMember": 3}]
    group = pod_group("g", minSubGroup=1, subGroups=leaves)
    driver = member("d", "g", "driver", nodeName="n")
    executors = [member(f"e-{i}", "g", "executor") for i in range(3)]
    cluster = Cluster(QUEUE, node("n", 8), group, driver, executors[:2])
    told = ("BelowMinMember", "minMember of subgroup executor is 3; existing pods: 2.")
    assert cluster.why() == {KEY.format("g"): told}
    assert len(placed(cluster.add(executors[2]).plan())) == 3
