"""Pods of one gang that name different queues: it has one queue, and keeps it while it runs."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.grouping.admitted import ADMITTED_KEY
from kai_py.grouping.frameworks.job import COMPLETION_INDEX_LABEL
from tests.support.scenario import (
    QUEUE,
    Cluster,
    at,
    cluster,
    evicted,
    job,
    node,
    nominated,
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
    assert sizes == {GANG: 3, f"{GANG}/a": 1}
