"""What cannot be read of a pod on a node still takes its place there.

Nodes and pods with numbers that the API accepts and no cluster has.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import Container, ObjectMeta, PodSpec, ResourceRequirements
from kai_py.api.records.resource import MAX_RESULTS_PER_CLAIM
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.resources import MAX_NODE_GPUS
from kai_py.watch import kinds
from kai_py.watch.collection import Collection
from kai_py.watch.kinds import WATCHED
from tests.snapshot.test_quarantine import contained
from tests.support.examples import examples
from tests.support.scenario import (
    claim,
    claiming,
    claiming_job,
    cluster,
    device_class,
    gpu_slice,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
    shared,
)

WAITING = job_with_pods("new", 1, queue="team")


def unreadable(each, *paths):
    return replace(each, metadata=replace(each.metadata, unreadable=paths))


def requesting(each, **amounts):
    main = Container(name="main", resources=ResourceRequirements(requests=amounts))
    return replace(each, spec=replace(each.spec, containers=(main,)))


def started(*objects):
    world, failures = contained(queue("team", 8), *objects)
    plan = world.add(*WAITING).plan()
    return placed(plan), plan, failures


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
def test_requests_that_can_be_read_are_counted(scheduler):
    runs = pod("runs", 3, queue="team", node="n", scheduler_name=scheduler)
    held = unreadable(runs, "spec.tolerations[0].key")
    assert started(node("n", 3), held)[0] == {}
    assert started(node("n", 4), held)[0] == {"new-0": "n"}
    problem = started(node("n", 4), held)[1].problems[0]
    assert problem.object.name == "runs"
    assert "spec.tolerations[0].key cannot be read" in problem.message


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
@pytest.mark.parametrize("path", ["spec", "spec.containers", "spec.overhead"])
def test_requests_that_cannot_be_read_close_the_node(path, scheduler):
    runs = pod("runs", 0, queue="team", node="n", scheduler_name=scheduler)
    held = unreadable(runs, path)
    assert started(node("n"), held)[0] == {}
    assert started(node("n"), node("m"), held)[0] == {"new-0": "m"}
    gone, _ = contained(queue("team", 8), node("n"), held)
    gone.add(*WAITING).remove(held)
    assert placed(gone.plan()) == {"new-0": "n"}, "the node is open again"


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
def test_an_amount_that_is_none_closes_the_node(scheduler):
    runs = pod("runs", 0, queue="team", node="n", scheduler_name=scheduler)
    found, _, _ = started(node("n"), requesting(runs, cpu="many"))
    assert found == {}


def test_the_queue_is_charged_with_what_can_be_read():
    world, _ = contained(
        queue("team", 8), node("n"), unreadable(pod("runs", 3, queue="team", node="n"), "spec.x")
    )
    assert world.snapshot().queue_allocated["team"][GPU] == 3


def test_a_waiting_pod_that_cannot_be_read_stays_pending_alone():
    odd = unreadable(pod("odd", 1, queue="team"), "spec.affinity")
    found, plan, failures = started(node("n"), odd)
    assert found == {"new-0": "n"}
    assert "spec.affinity cannot be read" in plan.unplaced[0].message
    assert len(failures) == 1


def test_pods_wait_for_a_claim_that_cannot_be_read_and_one_on_a_node_closes_it():
    devices = (device_class(), gpu_slice("n"))
    odd = unreadable(claim("c", owner="runs"), "status.allocation.devices")
    waits = claiming(pod("runs", 0, queue="team"), "c")
    found, plan, _ = started(node("n"), *devices, odd, waits)
    assert found == {"new-0": "n"}
    assert 'resourceclaim "c": status.allocation.devices cannot be read' in (
        plan.unplaced[0].message
    )
    runs = claiming(pod("runs", 0, queue="team", node="n"), "c")
    assert started(node("n"), *devices, odd, runs)[0] == {}


def test_pods_on_a_node_that_cannot_be_read_are_charged_and_no_others_get_there():
    odd = unreadable(node("n"), "status.allocatable")
    world, _ = contained(queue("team", 8), odd, pod("runs", 3, queue="team", node="n"))
    world.add(*WAITING)
    assert placed(world.plan()) == {}
    assert world.snapshot().queue_allocated["team"][GPU] == 3


def read(kind, document):
    told = []
    collection = Collection(kind, lambda _kind, old, new: told.append((old, new)))
    collection.put(collection.read(kind.at().decode, json.dumps(document).encode()))
    return collection, told


def test_pods_nodes_and_claims_hold_capacity():
    assert {each.name for each in WATCHED if each.holds_capacity} == {
        "Node",
        "Pod",
        "ResourceClaim",
    }


def test_the_mirror_keeps_what_holds_capacity_and_lists_it_as_rejected():
    document = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "3"},
        "spec": {"nodeName": "n", "priority": 1e40},
    }
    collection, told = read(kinds.PODS, document)
    [(_, found)] = told
    assert (found.spec, found.metadata.unreadable) == (PodSpec(node_name="n"), ("spec.priority",))
    assert collection.rejected["d", "p"].reason == "spec.priority cannot be read"
    good = replace(found, metadata=ObjectMeta(name="p", namespace="d", uid="u"))
    collection.put(good)
    assert not collection.rejected
    class_document = {"metadata": {"name": "p"}, "value": "high"}
    collection, told = read(kinds.PRIORITY_CLASSES, class_document)
    assert (told, len(collection.rejected)) == ([], 1)


ABSURD = st.sampled_from(["9223372036854775807", "1e19", "1e30", "100E", str(2**30), "1e-30", "0"])


def test_a_node_of_2_to_the_30_gpus_counts_as_the_ceiling_and_says_so():
    world = cluster(
        node("honest"), node("liar", gpus=2**30), queue("team", 8), pod("p", queue="team")
    )
    plan = world.plan()
    assert placed(plan)
    (told,) = plan.problems
    assert told.object.name == "liar"
    assert f"is too large, it counts as {MAX_NODE_GPUS}" in told.message


def test_a_node_at_the_ceiling_is_taken_at_its_word():
    world = cluster(node("n", gpus=MAX_NODE_GPUS), queue("team", 8), pod("p", queue="team"))
    assert world.plan().problems == ()


def test_a_pod_of_2_to_the_63_gpus_waits_with_its_reason_and_others_start():
    world = cluster(
        node("n"),
        queue("team", 8),
        pod("absurd", requests={"nvidia.com/gpu": "9223372036854775807"}, queue="team"),
        pod("canary", queue="team"),
    )
    world.plan()
    plan = world.add(pod("absurd", gpus=2**63 - 1, queue="team")).plan()
    assert placed(plan) == {"canary": "n"}
    (told,) = [each for each in plan.unplaced if "absurd" in each.gang]
    assert "2147483647 or more of nvidia.com/gpu, which no node can have" in told.message


def test_a_claim_of_2_to_the_62_devices_leaves_the_requests_of_other_pods_as_they_were():
    absurd = claiming(pod("absurd", 0, queue="team"), "absurd-gpu")
    world = cluster(device_class(), node("n", 0), gpu_slice("n", 4), queue("team", 8))
    world.add(*claiming_job("honest", 2, 3, queue="team"))
    world.add(claim("absurd-gpu", 2**62, owner="absurd"), absurd)
    plan = world.plan()
    assert "absurd" not in placed(plan)
    assert world.snapshot().queue_requested["team"][GPU] == 6 + MAX_RESULTS_PER_CLAIM
    world.remove(absurd)
    assert world.snapshot().queue_requested["team"][GPU] == 6


def test_more_shared_gpus_than_the_node_has_break_no_score():
    labels = {f"runai-gpu-group/g{n}": f"g{n}" for n in range(50)}
    posing = shared(pod("posing", 0, node="n", labels=labels), "0.5")
    world = cluster(node("n"), node("m"), queue("team", 16), posing)
    plan = world.add(shared(pod("canary", 0, queue="team"), "0.5"), pod("w", queue="team")).plan()
    assert placed(plan) == {"canary": "m", "w": "m"}


@settings(max_examples=examples(60), deadline=None)
@given(gpus=ABSURD, cpu=ABSURD, memory=ABSURD, on=st.sampled_from(["", "n"]))
def test_no_amount_of_one_pod_stops_another(gpus, cpu, memory, on):
    wanted = {"nvidia.com/gpu": gpus, "cpu": cpu, "memory": memory}
    world = cluster(node("n"), node("m"), queue("team", 16), queue("other", 0))
    world.add(pod("absurd", 0, requests=wanted, queue="other", node=on))
    world.add(*job_with_pods("canary", 2, 1, queue="team"))
    names = placed(world.plan())
    assert {"canary-0", "canary-1"} <= names.keys()
    world.remove(pod("absurd", 0))
    assert world.snapshot().used.max(initial=0) == 0
