"""Nodes and pods with numbers that the API accepts and no cluster has."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.resource import MAX_RESULTS_PER_CLAIM
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.resources import MAX_NODE_GPUS
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
