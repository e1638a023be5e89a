"""Kubernetes' own groups: trees, priorities, eviction as a whole, and which pods may be in one."""

import pytest

from tests.dialects.feeding import NOW, Cluster, node, placed, pod

QUEUE = {
    "apiVersion": "scheduling.kai.io/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"deservedGPUs": 16},
}
MARKS = {"scheduling.kai.io/queue-name": "team"}
TREE = "default/CompositePodGroup.scheduling.k8s.io/serve"
TRAIN = "default/PodGroup.scheduling.k8s.io/train"


def group(name, floor=0, *, kind="PodGroup", version="v1alpha3", **spec):
    policy = {"gang": {"minCount": floor}} if floor else {"basic": {}}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def composite(name, floor=0, **spec):
    policy = {"gang": {"minGroupCount": floor}} if floor else {"basic": {}}
    return group(name, kind="CompositePodGroup", **{"schedulingPolicy": policy} | spec)


def below(parent):
    return {"parentCompositePodGroupName": parent}


def members(name, count, gpus=1, **spec):
    return [
        pod(f"{name}-{i}", gpus, annotations=MARKS, schedulingGroup={"podGroupName": name}, **spec)
        for i in range(count)
    ]


def test_composite_groups_start_whole():
    cluster = Cluster(
        QUEUE,
        node("n", 8),
        composite("serve", 2),
        composite("decode", 1, **below("serve")),
        group("prefill", 2, **below("serve")),
        group("workers", 2, **below("decode")),
        members("prefill", 2),
        members("workers", 1),
    )
    assert cluster.why() == {
        TREE: ("BelowMinMember", "minMember is 4; existing pods: 3."),
    }
    cluster.add(members("workers", 2)[1:])
    assert len(placed(cluster.plan())) == 4


def test_a_group_that_is_needed_and_missing_keeps_the_others_waiting():
    cluster = Cluster(
        QUEUE,
        node("n", 8),
        composite("serve", 2),
        group("prefill", 2, **below("serve")),
        members("prefill", 2),
    )
    assert cluster.why()[TREE][0] == "BelowMinMember"
    cluster.add(group("decode", 1, **below("serve"))).add(members("decode", 1))
    assert sorted(placed(cluster.plan())) == ["decode-0", "prefill-0", "prefill-1"]


def test_of_loose_groups_each_starts_by_itself():
    cluster = Cluster(
        QUEUE,
        node("n", 2),
        composite("serve"),
        group("a", 2, **below("serve")),
        group("b", 2, **below("serve")),
        members("a", 2),
        members("b", 2),
    )
    assert len(placed(cluster.plan())) == 2


def test_composite_groups_that_are_missing_or_go_round_are_told():
    cluster = Cluster(QUEUE, group("train", 1, **below("late")), members("train", 1))
    assert 'CompositePodGroup "late" does not exist (yet)' in cluster.why()[TRAIN][1]
    cluster.add(composite("late", **below("later"))).add(composite("later", **below("late")))
    assert "form a cycle" in cluster.why()[TRAIN][1]


@pytest.mark.parametrize(
    ("above", "below_it", "field"),
    [
        ((), {"schedulingPolicy": {"gang": {"minCount": 0}}}, "gang.minCount"),
        (
            (composite("all", schedulingPolicy={"gang": {"minGroupCount": 0}}),),
            below("all"),
            "gang.minGroupCount",
        ),
    ],
)
def test_a_gang_of_no_pods_is_told(above, below_it, field):
    cluster = Cluster(QUEUE, node("n", 8), *above, group("train", 1, **below_it))
    [(stage, message)] = cluster.add(members("train", 2)).why().values()
    assert stage == "Invalid"
    assert f"spec.schedulingPolicy.{field} must be a whole number of at least 1, is 0" in message


@pytest.mark.parametrize("mode", ["PodGroup", {"all": {}}])
def test_a_group_that_leaves_whole_gives_no_surplus(mode):
    urgent = group("urgent", 1, priority=100)
    running = members("train", 3, nodeName="n")
    loose = Cluster(QUEUE, node("n", 3), group("train", 1), running, urgent, members("urgent", 1))
    assert len(loose.plan().evictions) == 1
    whole = loose.add(group("train", 1, disruptionMode=mode))
    assert len(whole.plan().evictions) == 3


@pytest.mark.parametrize("later", [0.0, 1e6])
def test_a_group_that_lost_pods_while_it_runs_is_not_ended(later):
    left = members("train", 3, nodeName="n")[:1]
    cluster = Cluster(QUEUE, node("n", 8), group("train", 3), left)
    cluster.plan(NOW)
    assert cluster.plan(NOW + later).evictions == ()


def test_the_priority_of_a_group_is_that_of_its_gang():
    cluster = Cluster(QUEUE, group("train", 1, priority=7), members("train", 1, priority=3))
    assert cluster.gang(TRAIN).priority == 7
    assert (
        Cluster(QUEUE, group("train", 1), members("train", 1, priority=3)).gang(TRAIN).priority == 3
    )


@pytest.mark.parametrize(
    "reference",
    [
        {"workloadRef": {"workloadName": "w", "templateName": "workers"}},
        {"podGroupTemplateRef": {"workload": {"workloadName": "w"}}},
    ],
)
def test_marks_of_a_group_go_before_its_workloads_and_these_before_its_pods(reference):
    def marked(labels):
        return group("train", 1, **reference) | {"metadata": {"name": "train", "labels": labels}}

    workload = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "labels": {"scheduling.kai.io/preemptibility": "preemptible"}},
    }
    own = {"scheduling.kai.io/preemptibility": "non-preemptible"}
    cluster = Cluster(QUEUE, marked({}), workload, members("train", 1, priority=1000))
    assert cluster.gang(TRAIN).preemptible
    assert not cluster.add(marked(own)).gang(TRAIN).preemptible
    kais = cluster.add(marked({"kai.scheduler/queue": "kais"})).gang(TRAIN)
    assert kais.queue == "kais"


def test_a_composite_group_speaks_for_the_groups_below_it():
    marks = {"metadata": {"name": "serve", "labels": {"scheduling.kai.io/queue-name": "other"}}}
    cluster = Cluster(composite("serve", 1) | marks, group("a", 1, **below("serve")))
    assert cluster.add(members("a", 1)).gang(TREE).queue == "other"


def test_a_group_with_preemption_policy_never_evicts_no_pod():
    urgent = group("urgent", 1, priority=100, preemptionPolicy="Never")
    cluster = Cluster(
        QUEUE,
        node("n", 1),
        group("train", 1),
        members("train", 1, nodeName="n"),
        urgent,
        members("urgent", 1),
    )
    assert not cluster.plan().evictions


def test_pods_of_several_schedulers_are_refused_until_they_agree():
    stranger = members("train", 2, schedulerName="default-scheduler")[1]
    cluster = Cluster(QUEUE, node("n", 8), group("train", 1), members("train", 1))
    assert len(placed(cluster.plan())) == 1
    cluster.add(stranger)
    assert cluster.why()[TRAIN] == (
        "Invalid",
        'pods with spec.schedulingGroup "train" name the schedulers "default-scheduler", '
        '"kai-scheduler"; all pods of a group must name the same scheduler in spec.schedulerName',
    )
    cluster.remove(stranger)
    assert len(placed(cluster.plan())) == 1
