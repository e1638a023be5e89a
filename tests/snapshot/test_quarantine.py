"""An exception about one object ends at that object, whatever raises it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.grouper import Grouper
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.quarantine import Quarantine
from kai_py.watch.kinds import KIND_BY_COLLECTION
from tests.support.scenario import (
    Cluster,
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
)

BROKEN = "broken"


class Boom(Exception):
    """What no code expects."""


def contained(*objects, identify: Callable | None = None) -> tuple[Cluster, list]:
    """A cluster whose failures are kept in the list."""
    failures: list = []
    quarantine = Quarantine(
        lambda invalid, error: failures.append((invalid, error)), KIND_BY_COLLECTION
    )
    world = cluster()
    world.devices = ClusterDevices(quarantine=quarantine)
    world.builder = SnapshotBuilder(
        identify or Grouper().identify, world.devices, lambda spec: spec, quarantine=quarantine
    )
    world.memory.devices = world.devices
    return world.add(*objects), failures


def identify_all_but_broken(pod: Pod, owners):
    if pod.metadata.name.startswith(BROKEN) and "mended" not in pod.metadata.labels:
        raise Boom("no such thing")
    return Grouper().identify(pod, owners)


WORLD = (node("n"), queue("team", 8), queue("other", 8))


def test_a_pod_whose_gang_cannot_be_derived_waits_with_its_reason_and_others_start():
    world, failures = contained(*WORLD, identify=identify_all_but_broken)
    world.add(pod("broken", queue="team"), *job_with_pods("canary", 2, queue="other"))
    plan = world.plan()
    assert placed(plan) == {"canary-0": "n", "canary-1": "n"}
    assert [each.object.name for each in plan.problems] == ["broken"]
    assert "Boom: no such thing" in plan.problems[0].message
    (waiting,) = plan.unplaced
    assert waiting.gang == "default/Pod/broken"
    assert "set aside until it changes" in waiting.message
    assert [type(error) for _, error in failures] == [Boom]


def test_what_a_set_aside_pod_on_a_node_requests_is_counted():
    world, _ = contained(*WORLD, identify=identify_all_but_broken)
    world.add(pod("broken", 6, queue="team", node="n"))
    snapshot = world.snapshot()
    gpus = snapshot.resources.positions["nvidia.com/gpu"]
    assert snapshot.used[gpus].tolist() == [6]
    assert snapshot.queue_allocated["team"]["gpu"] == 6
    world.add(*job_with_pods("canary", 3, queue="other"))
    assert not placed(world.plan())
    world.remove(pod("broken"))
    assert len(placed(world.plan())) == 3
    assert not world.snapshot().invalid_objects


def test_a_set_aside_pod_stays_set_aside_while_it_is_evicted():
    world, _ = contained(*WORLD, identify=identify_all_but_broken)
    broken = pod("broken", 6, queue="team", node="n")
    world.add(broken)
    world.builder.expect_eviction(broken.metadata.uid)
    assert [each.object.name for each in world.snapshot().invalid_objects] == ["broken"]


def test_repeated_failures_are_told_once_and_a_changed_object_is_tried_again():
    world, failures = contained(*WORLD, identify=identify_all_but_broken)
    for number in range(5):
        world.add(pod("broken", queue="team", annotations={"try": str(number)}))
        world.plan()
    assert len(failures) == 1
    world.add(pod("broken", queue="team", labels={"mended": "yes"}))
    assert placed(world.plan()) == {"broken": "n"}
    assert not world.snapshot().invalid_objects


def test_a_set_aside_pod_is_tried_again_when_what_it_names_changes():
    known = []

    def identify(each: Pod, owners):
        if not owners.named("podgroups", "default", "g"):
            raise Boom
        known.append(each.metadata.name)
        return Grouper().identify(each, owners)

    world, _ = contained(*WORLD, identify=identify)
    world.add(pod("p", queue="team"))
    assert not placed(world.plan())
    world.builder.apply("podgroups", None, pod("g"))
    assert known == ["p"]


@pytest.mark.parametrize("method", ["observe", "place", "release", "remove"])
def test_no_table_of_pods_lets_an_exception_out(method, monkeypatch):
    world, failures = contained(*WORLD, pod("before", queue="team"))
    for table in world.builder._tables.pod_tables:
        original = getattr(table, method)

        def failing(changed, original=original):
            name = getattr(getattr(changed, "metadata", None), "name", "") or str(
                getattr(changed, "uid", changed)
            )
            if BROKEN in name:
                raise Boom
            return original(changed)

        with monkeypatch.context() as patched:
            patched.setattr(table, method, failing)
            world.add(pod("broken", queue="team"))
            world.add(pod("broken", queue="team", leaving=True))
            world.remove(pod("broken"))
            world.add(pod("after", queue="other"))
            assert {"before", "after"} <= placed(world.plan()).keys(), type(table).__name__
            world.remove(pod("after"))
    assert method == "release" or failures


def test_no_table_of_objects_lets_an_exception_out(monkeypatch):
    world, _ = contained(*WORLD)
    for table in world.builder._tables.object_tables:
        original = table.apply

        def failing(kind, old, new, original=original):
            if getattr(new, "name", "") == BROKEN:
                raise Boom
            original(kind, old, new)

        monkeypatch.setattr(table, "apply", failing)
    world.add(queue(BROKEN, 4), pod("p", queue="team"))
    assert placed(world.plan()) == {"p": "n"}
    (*_, last) = world.snapshot().invalid_objects
    assert last.object.name == BROKEN
    world.remove(queue(BROKEN))
    assert not world.snapshot().invalid_objects


def test_a_gang_that_cannot_be_put_together_is_counted_and_not_placed(monkeypatch):
    world, _ = contained(*WORLD)
    gangs = world.builder._tables.gangs
    original = gangs._gang

    def failing(key, by_order):
        if BROKEN in key:
            raise Boom
        return original(key, by_order)

    monkeypatch.setattr(gangs, "_gang", failing)
    world.add(*job_with_pods(BROKEN, 2, queue="team", node="n"))
    world.add(*job_with_pods("canary", 2, queue="other"))
    plan = world.plan()
    assert placed(plan).keys() == {"canary-0", "canary-1"}
    assert world.snapshot().queue_allocated["team"]["gpu"] == 2
    assert [each.object.kind for each in plan.problems] == ["Job"]


def test_a_claim_whose_allocation_cannot_be_read_holds_its_devices_whole():
    world, failures = contained(node("n", 0), gpu_slice("n", 2), device_class(), queue("team", 8))
    held = claim("held", owner="holder", held_by=["holder"], on=[("n", "gpu-0")])
    results = held.status.allocation.devices.results
    shared = replace(results[0], share_id="s", consumed_capacity={"memory": "not-a-quantity"})
    allocation = replace(
        held.status.allocation,
        devices=replace(held.status.allocation.devices, results=(shared,)),
    )
    broken = replace(held, status=replace(held.status, allocation=allocation))
    world.add(broken, claiming(pod("holder", 0, queue="team", node="n"), "held"))
    for name in ("a", "b"):
        world.add(claim(f"{name}-gpu", owner=name))
        world.add(claiming(pod(name, 0, queue="team"), f"{name}-gpu"))
    assert len(placed(world.plan())) == 1
    assert [invalid.object.name for invalid, _ in failures] == ["held"]
    world.remove(broken)
    assert world.snapshot().invalid_objects == ()


def test_without_a_quarantine_the_exception_is_raised():
    world = cluster()
    world.builder = SnapshotBuilder(identify_all_but_broken, world.devices, lambda spec: spec)
    with pytest.raises(Boom):
        world.add(pod("broken", queue="team"))
