"""Each rule finds its breach, and says which objects are concerned."""

import pytest

from tests.audit.objects import (
    NOW,
    claim,
    device_slice,
    gpus,
    job,
    node,
    pod,
    pod_group,
    queue,
    result,
    stamp,
)
from tests.support.audits import audit

GPUS = {"nvidia.com__gpu": "8"}


def found(*objects):
    return audit(objects, now=NOW)


def kinds(*objects):
    return [finding.kind.value for finding in found(*objects)]


def test_an_empty_cluster_is_clean():
    assert found() == []


def test_a_running_pod_with_its_claim_is_clean():
    assert found(node(), pod("a", claims=["c"]), claim("c", result("gpu-0"), users=["a"])) == []


def test_a_running_pod_whose_claim_is_not_allocated():
    (finding,) = found(pod("a", claims=["c"]), claim("c"))
    assert finding.kind.value == "pod-without-claim"
    assert finding.objects == ("Pod default/a", "ResourceClaim default/c")
    assert finding.message == (
        "pod default/a is on node node-a, but claim default/c is not allocated: its devices may "
        "be given to another pod"
    )


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (["c"], "is not reserved for it"),
        (["=t"], "does not exist"),
        (["gone"], "does not exist"),
    ],
)
def test_a_running_pod_whose_claim_is_not_its_own(claims, said):
    (finding,) = found(
        pod("a", claims=claims), pod("b", claims=["c"]), claim("c", result("gpu-0"), users=["b"])
    )
    assert finding.objects[0] == "Pod default/a"
    assert said in finding.message


def allocated_for(*terms):
    """The claim of pod a, with a selector of these terms."""
    made = claim("c", result("gpu-0"), users=["a"])
    made["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": list(terms)}
    return made


def on_nodes(*names):
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


def test_a_running_pod_whose_devices_are_those_of_another_node():
    (finding,) = found(pod("a", claims=["c"]), allocated_for(on_nodes("node-b")))
    assert finding.message == (
        "pod default/a is on node node-a, but claim default/c has devices of another node: it "
        "cannot use them"
    )
    assert found(pod("a", claims=["c"]), allocated_for(on_nodes("node-b", "node-a"))) == []
    rack = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r"]}]}
    assert found(pod("a", claims=["c"]), allocated_for(on_nodes("node-b"), rack)) == []


def test_a_running_pod_whose_devices_are_in_the_pool_of_another_node():
    gpu, theirs = device_slice({"name": "gpu-0"}), claim("c", result("gpu-0"), users=["a"])
    nodes = node(), node("node-b")
    assert kinds(*nodes, pod("a", claims=["c"]), theirs, gpu) == []
    [finding] = found(*nodes, pod("a", claims=["c"], node="node-b"), theirs, gpu)
    assert "has devices of another node" in finding.message


def test_a_pool_of_several_nodes_is_within_reach_of_each():
    slices = device_slice({"name": "gpu-0"}, slices=2), device_slice(slices=2, name="second")
    slices[1]["spec"]["nodeName"] = "node-b"
    theirs = claim("c", result("gpu-0"), users=["a"])
    objects = node(), node("node-b"), pod("a", claims=["c"], node="node-b"), theirs
    assert kinds(*objects, *slices) == []


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
def test_a_pod_whose_node_does_not_exist(scheduler):
    [finding] = found(node(), pod("a", node="gone", scheduler=scheduler))
    assert finding.kind.value == "pod-without-node"
    assert finding.objects == ("Pod default/a", "Node gone")


@pytest.mark.parametrize(
    "lost", [{"leaving": True}, {"phase": "Succeeded"}, {"bound": NOW - 10}, {"node": ""}]
)
def test_a_pod_without_node_that_ends_or_was_just_bound(lost):
    assert kinds(node(), pod("a", **{"node": "gone", **lost})) == []


def test_pods_without_nodes_are_unknown_where_nodes_were_not_read():
    assert kinds(pod("a", node="gone")) == []


def test_a_pod_of_another_scheduler_counts_once_it_runs():
    objects = pod("a", claims=["c"], scheduler="default-scheduler"), claim("c")
    assert kinds(*objects) == ["pod-without-claim"]
    pinned = pod("a", claims=["c"], scheduler="default-scheduler", phase="Pending")
    assert found(pinned, claim("c")) == []


def test_a_pod_bound_by_us_counts_before_it_runs():
    assert kinds(pod("a", claims=["c"], phase="Pending"), claim("c")) == ["pod-without-claim"]


def test_the_claim_for_extended_resources_counts():
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": []}}
    assert kinds(pod("a", **status), claim("x")) == ["pod-without-claim"]
    assert found(pod("a", **status), claim("x", result("gpu-0"), users=["a"])) == []


def test_a_device_of_two_claims():
    (finding,) = found(claim("c", result("gpu-0")), claim("d", result("gpu-0")))
    assert finding.kind.value == "device-used-twice"
    assert finding.objects == (
        "Device gpu.nvidia.com/node-a/gpu-0",
        "ResourceClaim default/c",
        "ResourceClaim default/d",
    )
    assert finding.message == (
        "device gpu.nvidia.com/node-a/gpu-0 is allocated to claims default/c, default/d"
    )


def test_a_device_that_one_claim_has_twice():
    (finding,) = found(claim("c", result("gpu-0"), result("gpu-0")))
    assert finding.message.endswith("is allocated to claim default/c twice")


def test_admin_access_uses_nothing():
    assert found(claim("c", result("gpu-0")), claim("d", result("gpu-0", adminAccess=True))) == []


SHAREABLE = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "80Gi"}},
}


def share(uid, memory):
    return result("gpu-0", shareID=uid, consumedCapacity={"memory": memory})


def test_shares_within_the_capacity_of_their_device():
    shares = claim("c", share("1", "40Gi")), claim("d", share("2", "40Gi"))
    assert found(device_slice(SHAREABLE), *shares) == []


def test_shares_beyond_the_capacity_of_their_device():
    shares = claim("c", share("1", "40Gi")), claim("d", share("2", "41Gi"))
    (finding,) = found(device_slice(SHAREABLE), *shares)
    assert "81Gi of 80Gi memory" in finding.message


def test_a_share_that_two_claims_have():
    shared = {"name": "gpu-0", "allowMultipleAllocations": True}
    one, other = (claim(name, result("gpu-0", shareID="x")) for name in "cd")
    [finding] = found(device_slice(shared), one, other)
    assert finding.kind.value == "device-used-twice"
    assert "has share x allocated twice, to claims default/c, default/d" in finding.message


def test_a_share_beside_the_whole_device():
    claims = claim("c", share("1", "1Gi")), claim("d", result("gpu-0"))
    assert kinds(device_slice(SHAREABLE), *claims) == ["device-used-twice"]


def test_shares_of_a_device_that_allows_one_allocation():
    shares = claim("c", share("1", "1Gi")), claim("d", share("2", "1Gi"))
    alone = {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}}
    assert kinds(device_slice(alone), *shares) == ["device-used-twice"]


def partition(name, slices):
    draws = {"counterSet": "gpu-0", "counters": {"slices": {"value": str(slices)}}}
    return {"name": name, "consumesCounters": [draws]}


COUNTERS = [{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}]


def partitioned(**fields):
    """The counters stand in a slice of their own, as drivers of 1.35 and later publish them."""
    devices = [partition("mig-4", 4), partition("mig-3", 3), partition("mig-2", 2)]
    return (
        device_slice(counters=COUNTERS, slices=2, name="counters", **fields),
        device_slice(*devices, slices=2, name="devices", **fields),
    )


def test_partitions_that_fit_their_gpu():
    claims = claim("c", result("mig-4")), claim("d", result("mig-3"))
    assert found(*partitioned(), *claims) == []


def test_partitions_beyond_their_gpu():
    claims = claim("c", result("mig-4")), claim("d", result("mig-3")), claim("e", result("mig-2"))
    (finding,) = found(*partitioned(), *claims)
    assert finding.message == (
        "counter slices of gpu.nvidia.com/node-a/gpu-0 is overdrawn: 9 of 7 are allocated to "
        "claims default/e, default/d, default/c"
    )


def gang_of(pods, running, **options):
    owner = job("train", pods, queue="team")
    return [owner, *(pod(f"train-{n}", owner="train", **options) for n in range(running))]


def test_a_gang_below_min_member():
    (finding,) = found(*gang_of(4, 2))
    assert finding.kind.value == "gang-below-min-member"
    assert finding.objects == ("Gang default/Job/train",)
    assert "2 of its pods are bound, it needs 4" in finding.message


def test_a_gang_that_waits_for_its_last_pod_too_long():
    waiting = pod("train-3", owner="train", node="")
    assert kinds(*gang_of(4, 3), waiting) == ["gang-below-min-member"]


def test_a_queue_over_its_maximum():
    pods = [pod(f"p{n}", requests=gpus(4), annotations={QUEUE: "team"}) for n in range(2)]
    (finding,) = found(queue("team", 4), node(**GPUS), *pods)
    assert finding.objects == ("Queue team",)
    assert finding.message == (
        "queue team is over its maximum: 8 GPUs are allocated, its maximum is 4"
    )
    assert found(queue("team", 8), node(**GPUS), *pods) == []


def test_a_parent_counts_what_is_below_it():
    pods = [
        pod(f"p{n}", requests=gpus(4), annotations={QUEUE: name})
        for n, name in enumerate(("team-a", "team-b"))
    ]
    queues = queue("all", 6), queue("team-a", parent="all"), queue("team-b", parent="all")
    (finding,) = found(*queues, node(**GPUS), *pods)
    assert finding.objects == ("Queue all",)


def test_a_reservation_for_a_pod_that_is_gone():
    (finding,) = found(claim("c", result("gpu-0"), users=["gone"]))
    assert finding.kind.value == "reservation-without-pod"
    assert finding.objects == ("ResourceClaim default/c", "Pod default/gone")


def test_a_reservation_for_an_earlier_pod_of_the_same_name():
    again = pod("a", claims=[])
    again["metadata"]["uid"] = "another"
    assert kinds(again, claim("c", result("gpu-0"), users=["a"])) == ["reservation-without-pod"]


def test_a_reservation_for_a_group_that_is_gone():
    held = claim("c", result("gpu-0"), groups=["workers"])
    assert kinds(pod_group("others"), held) == ["reservation-without-pod"]
    assert found(pod_group("workers"), held) == []
    assert found(held) == [], "groups were not read"


def test_a_node_over_its_capacity():
    pods = [pod(f"p{n}", requests={"cpu": "3", **gpus(3)}) for n in range(3)]
    (finding,) = found(node(**GPUS), *pods)
    assert finding.objects == ("Node node-a",)
    assert "9 GPUs of 8" in finding.message
    assert found(node(**GPUS), *pods[:2]) == []


def test_a_node_with_too_many_pods():
    pods = [pod(f"p{n}", requests={"cpu": "1m"}) for n in range(3)]
    assert kinds(node(pods="2"), *pods) == ["node-over-capacity"]


def sharing(name, fraction, group, **extra):
    return pod(
        name,
        annotations={"gpu-fraction": fraction, **extra},
        labels={"runai-gpu-group": group},
    )


def test_parts_of_one_card():
    pods = [sharing(f"p{n}", "0.5", "g") for n in range(3)]
    (finding,) = found(node(**GPUS), *pods)
    assert finding.objects == ("Node node-a", "GPU g")
    assert "add up to 1.5 GPUs" in finding.message
    assert found(node(**GPUS), *pods[:2]) == []


def test_shared_cards_are_cards():
    pods = pod("whole", requests=gpus(8)), sharing("part", "0.5", "g")
    assert kinds(node(**GPUS), *pods) == ["node-over-capacity"]
    assert found(node(**GPUS), pod("whole", requests=gpus(7)), pods[1]) == []


def test_a_reservation_pod_and_its_group_are_one_card():
    labels = {"runai-gpu-group": "g", "app": "kai-resource-reservation"}
    reservation = pod("r", requests=gpus(1), labels=labels)
    reservation["metadata"]["namespace"] = "kai-resource-reservation"
    objects = reservation, sharing("part", "0.5", "g"), pod("whole", requests=gpus(7))
    assert found(node(**GPUS), *objects) == []


def reservation(group="g", uuid="GPU-1", name="r", **extra):
    labels = {"runai-gpu-group": group, "app": "kai-resource-reservation"}
    labels["app.kubernetes.io/managed-by"] = "kai-py"
    notes = {"run.ai/reserve_for_gpu_index": uuid} if uuid else {}
    made = pod(name, requests=gpus(1), labels=labels, annotations=notes, **extra)
    made["metadata"]["namespace"] = "kai-resource-reservation"
    return made


GIVEN = {"scheduling.kai.io/visible-gpus": "GPU-1"}


def test_a_shared_gpu_with_its_reservation_is_clean():
    assert found(node(**GPUS), reservation(), sharing("part", "0.5", "g", **GIVEN)) == []
    assert found(node(**GPUS), sharing("before", "0.5", "g")) == []


@pytest.mark.parametrize(
    "kept", [(), (reservation("h"),), (reservation(uuid="GPU-2"),), (reservation(leaving=True),)]
)
def test_a_shared_gpu_that_is_not_reserved(kept):
    everything = found(node(**GPUS), *kept, sharing("part", "0.5", "g", **GIVEN))
    [finding] = [each for each in everything if each.kind.value == "gpu-not-reserved"]
    assert "default/part uses GPU-1 on node node-a" in finding.message
    recent = sharing("part", "0.5", "g", **GIVEN)
    recent["status"]["conditions"][0]["lastTransitionTime"] = stamp(NOW - 1.0)
    assert "gpu-not-reserved" not in kinds(node(**GPUS), *kept, recent)


def test_one_gpu_that_two_reservations_keep():
    both = reservation("g", name="r1"), reservation("h", name="r2")
    parts = [sharing(f"p-{group}", "0.5", group, **GIVEN) for group in "gh"]
    assert kinds(node(**GPUS), *both, *parts) == ["device-used-twice"]


def test_a_reservation_that_no_pod_needs():
    assert kinds(node(**GPUS), reservation()) == ["reservation-without-pod"]
    assert found(node(**GPUS), reservation(uuid="")) == []
    assert found(node(**GPUS), reservation(startTime=stamp(NOW - 1.0))) == []


def test_one_card_of_two_groups():
    pods = [sharing(f"p{n}", "0.5", f"g{n}", **{"scheduling.kai.io/gpu-index": "3"}) for n in "12"]
    (finding,) = found(node(**GPUS), *pods)
    assert finding.kind.value == "device-used-twice"


QUEUE = "scheduling.kai.io/queue-name"
