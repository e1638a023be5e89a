"""Pods of one gang that name different queues: it has one queue, and keeps it while it runs.

Queues that bound their number of pods, as Kueue's and Volcano's do by the resource ``pods``.
"""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.grouping.admitted import ADMITTED_KEY, Terms
from kai_py.grouping.frameworks.job import COMPLETION_INDEX_LABEL
from kai_py.plan.plan import Stage
from tests.support.scenario import (
    QUEUE,
    Cluster,
    at,
    cluster,
    evicted,
    job,
    node,
    nominated,
    placed,
    pod,
    queue,
)

GANG = "default/Job/train"
MIXED = ("a", "b", "b", "a")


def numbered(index: int, named: str) -> Pod:
    labels = {COMPLETION_INDEX_LABEL: str(index)}
    return pod(f"train-{index}", queue=named, owner=job("train", 4), labels=labels)


def annotated(each: Pod, **annotations: str) -> Pod:
    meta = each.metadata
    return replace(each, metadata=replace(meta, annotations={**meta.annotations, **annotations}))


def running(pods: Iterable[Pod], *, recorded: bool = True) -> tuple[Cluster, dict[str, Pod]]:
    """A cluster on which the pods run, with or without the record of their admission."""
    closed = queue("closed", 8, namespaces={"names": ["other"]})
    queues = queue("a"), queue("b"), queue("owner", 8), closed
    waiting = {each.metadata.name: each for each in pods}
    world = cluster(node("n"), *queues, job("train", 4), *waiting.values(), staleness_grace=60.0)
    bound: dict[str, Pod] = {}
    for gang in world.plan().placements:
        for each in gang.pods:
            was = waiting[each.pod.name]
            status = replace(was.status, phase="Running", start_time=at(1000))
            now = replace(was, spec=replace(was.spec, node_name=each.node), status=status)
            record = {ADMITTED_KEY: gang.terms(each).text()} if recorded else {}
            bound[each.pod.name] = annotated(now, **record)
    assert len(bound) == len(waiting)
    return world.add(*bound.values()), bound


@pytest.mark.parametrize("recorded", [True, False], ids=("recorded", "adopted"))
def test_a_gang_of_pods_that_name_different_queues_stays_whole(recorded: bool) -> None:
    world, bound = running(map(numbered, range(4), MIXED), recorded=recorded)
    for now in (1001.0, 1100.0, 1300.0):
        world.add(*bound.values())
        gangs = world.snapshot(now).gangs
        assert {key: (g.queue, len(g.bound)) for key, g in gangs.items()} == {GANG: ("a", 4)}
        assert not world.plan(now).evictions


@pytest.mark.parametrize("named", ["b", "closed", "missing"])
def test_a_pod_that_waits_takes_no_running_pod_out_of_its_queue(named: str) -> None:
    world, _ = running(numbered(index, "a") for index in (1, 2, 3, 4))
    world.add(numbered(0, named))
    snapshot = world.snapshot(1002)
    assert snapshot.queue_allocated["a"]["gpu"] == 4
    assert snapshot.gangs[GANG].queue == "a"
    world.add(*(pod(f"due-{index}", queue="owner") for index in range(8)))
    plan = world.plan(1003)
    assert len(evicted(plan)) == 4
    assert len(nominated(plan)) == 4


def test_a_pod_that_is_edited_to_name_a_third_queue_is_charged_as_before() -> None:
    world, bound = running(map(numbered, range(4), MIXED))
    world.add(annotated(bound["train-1"], **{QUEUE: "owner"}))
    snapshot = world.snapshot(1002)
    assert snapshot.queue_allocated["a"]["gpu"] == 4
    assert not snapshot.queue_allocated.get("owner", {}).get("gpu")
    sizes = {key: len(gang.bound) for key, gang in snapshot.gangs.items()}
    assert sizes == {GANG: 4}
    assert not world.plan(1100).evictions


@pytest.mark.parametrize("recorded", [True, False], ids=("recorded", "adopted"))
def test_pods_that_come_after_the_queue_was_edited_join_the_others(recorded: bool) -> None:
    world, bound = running((numbered(index, "a") for index in range(4)), recorded=recorded)
    world.snapshot(1001)
    for each in bound.values():
        world.add(annotated(each, **{QUEUE: "b"}))
    world.remove(bound["train-0"])
    world.add(numbered(0, "b"))
    plan = world.plan(1002)
    assert [(each.gang, each.queue) for each in plan.placements] == [(GANG, "a")]
    told = 'belongs to gang default/Job/train; ignored: queue "b", as the gang is in queue "a"'
    assert [each.message for each in plan.problems] == [told]
    assert not world.plan(1100).evictions
    world.remove(*(bound[f"train-{index}"] for index in (1, 2, 3)))
    assert world.snapshot(1101).gangs[GANG].queue == "b", "no pod of it runs"
    assert not world.plan(1102).problems


def test_pods_that_are_leaving_keep_no_other_in_their_queue() -> None:
    world, bound = running(numbered(index, "a") for index in range(4))
    leaving = [
        replace(each, metadata=replace(each.metadata, deletion_timestamp=at(1010)))
        for each in bound.values()
    ]
    again = [numbered(index, "b") for index in range(4)]
    renamed = [
        replace(each, metadata=replace(each.metadata, name=f"{each.metadata.name}x", uid=f"x{i}"))
        for i, each in enumerate(again)
    ]
    world.add(*leaving, *renamed)
    plan = world.plan(1002)
    assert [(each.gang, each.queue) for each in plan.placements] == [(GANG, "b")]
    assert world.snapshot(1003).gangs[f"{GANG}/a"].queue == "a"


def test_pods_admitted_to_several_queues_that_an_edit_makes_one_gang_stay_in_theirs() -> None:
    world, bound = running(numbered(index, "a") for index in range(4))
    of_another = annotated(
        numbered(7, "a"), **{ADMITTED_KEY: Terms(queue="b", minimums={"": 1}).text()}
    )
    spec = replace(of_another.spec, node_name="n")
    moved = replace(of_another, spec=spec, status=bound["train-0"].status)
    for order in ([moved, *bound.values()], [*bound.values(), moved]):
        world.remove(*bound.values())
        snapshot = world.add(*order).snapshot(1002)
        sizes = {key: (gang.queue, len(gang.bound)) for key, gang in snapshot.gangs.items()}
        assert sizes == {GANG: ("a", 4), f"{GANG}/b": ("b", 1)}
        assert snapshot.queue_allocated["b"]["gpu"] == 1
        world.remove(moved)


def pods(names, of, **options):
    return [pod(name, 0, queue=of, created=i, **options) for i, name in enumerate(names)]


def test_a_queue_takes_no_more_pods_than_it_says():
    own = queue("q", 8, resources={"pods": {"max": 2}})
    found = cluster(node("n0"), own, pods("abc", "q")).plan()
    assert sorted(placed(found)) == ["a", "b"]
    (waits,) = found.unplaced
    assert waits.stage is Stage.QUEUE_MAX
    assert "Limit is 2 pods, currently 2 pods allocated" in waits.message
    (share,) = found.queues
    assert (share.allocated["pods"], share.maximum["pods"]) == (2, 2)


def test_a_parent_bounds_the_pods_of_all_its_queues():
    queues = [
        queue("top", 8, resources={"pods": {"max": 3}}),
        *(queue(name, 8, parent="top") for name in "xy"),
    ]
    found = cluster(node("n0"), queues, pods("ab", "x"), pods("cd", "y")).plan()
    assert len(placed(found)) == 3


def test_pods_of_a_queue_that_names_none_are_not_counted():
    found = cluster(node("n0"), queue("q", 8), pods("abc", "q")).plan()
    assert sorted(placed(found)) == ["a", "b", "c"]
    assert "pods" not in found.queues[0].allocated


def test_what_a_queue_deserves_of_pods_is_reclaimed():
    def fitting(deserved):
        shares = {name: {"pods": {"deserved": deserved}} for name in ("x", "y")}
        queues = [queue(name, 8, resources=shares[name]) for name in ("x", "y")]
        small = node("n0")
        small = replace(
            small,
            status=replace(small.status, allocatable={**small.status.allocatable, "pods": "4"}),
        )
        return cluster(small, queues, pods("abcd", "x", node="n0"), pods("e", "y")).plan()

    assert len(evicted(fitting(2))) == 1
    assert evicted(fitting(4)) == []


@pytest.mark.parametrize(
    ("amounts", "guaranteed"),
    [({"max": 8}, 2), ({"deserved": 1, "max": 8}, 1), ({"weight": 2}, 0), ({"deserved": 0}, 0)],
)
def test_a_limit_of_a_base_resource_alone_takes_no_guarantee(amounts, guaranteed):
    """Non-preemptible pods start as far as their queue deserves them."""
    own = queue("q", 8, resources={"cpu": amounts, "pods": {"max": 5}})
    marks = {"scheduling.kai.io/preemptibility": "non-preemptible"}
    waiting = pods("ab", "q", annotations=marks)
    assert len(placed(cluster(node("n0"), own, waiting).plan())) == guaranteed
