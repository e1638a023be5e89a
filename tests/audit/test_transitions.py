"""What an ordinary cluster shows for a moment is no finding."""

import pytest

from tests.audit.objects import NOW, claim, device_slice, gpus, job, node, pod, pod_group, result
from tests.support.audits import audit

GPUS = {"nvidia.com__gpu": "8"}
JUST_NOW = NOW - 5.0


def found(*objects):
    return audit(objects, now=NOW)


@pytest.mark.parametrize(
    "transient",
    [
        pytest.param([pod("a", claims=["c"], bound=JUST_NOW)], id="claims were read before pods"),
        pytest.param([pod("a", claims=["c"], leaving=True)], id="terminating"),
        pytest.param([pod("a", claims=["c"], phase="Succeeded")], id="succeeded"),
        pytest.param([pod("a", claims=["c"], phase="Failed")], id="failed"),
        pytest.param([pod("a", claims=["c"], node="")], id="waiting"),
    ],
)
def test_a_pod_may_be_without_its_claim(transient):
    assert found(*transient, claim("c")) == []


def test_a_template_may_need_no_claim():
    skipped = pod("a", claims=["=t"])
    skipped["status"]["resourceClaimStatuses"] = [{"name": "entry-0"}]
    assert found(skipped) == []


def test_a_claim_may_be_reserved_for_the_group_of_a_pod():
    member = pod("a", claims=["c"])
    member["spec"]["schedulingGroup"] = {"podGroupName": "workers"}
    held = claim("c", result("gpu-0"), groups=["workers"])
    assert found(member, pod_group("workers"), held) == []


def test_a_claim_of_a_group_that_was_not_read_is_unknown():
    member = pod("a", claims=["=t"])
    member["spec"]["schedulingGroup"] = {"podGroupName": "workers"}
    member["status"].pop("resourceClaimStatuses")
    assert found(member) == []


def test_a_finished_pod_may_still_be_reserved_for():
    ended = pod("a", claims=["c"], phase="Succeeded")
    assert found(ended, claim("c", result("gpu-0"), users=["a"])) == []


def test_a_claim_may_be_reserved_for_a_pod_that_came_after_the_pods_were_read():
    assert found(claim("c", result("gpu-0"), users=["new"], since=JUST_NOW)) == []


def test_a_claim_in_deletion_may_outlive_its_pod():
    going = claim("c", result("gpu-0"), users=["gone"])
    going["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert found(going) == []


def test_a_pool_that_is_published_again_says_nothing_of_capacity():
    half = device_slice(
        {"name": "mig-4", "consumesCounters": [draw("4")]},
        {"name": "mig-5", "consumesCounters": [draw("5")]},
        counters=[{"name": "set", "counters": {"slices": {"value": "7"}}}],
        slices=2,
    )
    assert found(half, claim("c", result("mig-4")), claim("d", result("mig-5"))) == []


def draw(amount):
    return {"counterSet": "set", "counters": {"slices": {"value": amount}}}


def members(bound, **options):
    return [pod(f"train-{n}", owner="train", bound=bound, **options) for n in range(2)]


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(members(JUST_NOW), id="being bound"),
        pytest.param(
            [*members(NOW - 3600), pod("train-9", owner="train", node="", created=JUST_NOW)],
            id="a lost pod was replaced",
        ),
        pytest.param(
            [*members(NOW - 3600), pod("train-9", owner="train", leaving=True)], id="terminating"
        ),
        pytest.param(
            [*members(NOW - 3600), pod("train-9", owner="train", phase="Succeeded")],
            id="finishing",
        ),
        pytest.param(
            [
                *members(NOW - 3600),
                pod(
                    "train-9",
                    owner="train",
                    phase="Failed",
                    conditions=[
                        {
                            "type": "Ready",
                            "status": "False",
                            "lastTransitionTime": "2027-01-15T07:59:55Z",
                        }
                    ],
                ),
            ],
            id="a pod failed just now",
        ),
    ],
)
def test_a_gang_may_be_below_min_member(pods):
    assert found(job("train", 4, queue="team"), *pods) == []


def test_a_gang_whose_owner_was_not_read_is_unknown():
    assert found(*members(NOW - 3600)) == []


def test_pods_may_be_bound_before_their_node_shows():
    assert found(*(pod(f"p{n}", requests=gpus(8)) for n in range(3))) == []


def test_the_kubelet_may_still_refuse_a_pod_bound_just_now():
    static = pod(
        "static",
        requests={"cpu": "2"},
        scheduler="",
        annotations={"kubernetes.io/config.mirror": "x"},
    )
    assert found(node(), static, pod("a", requests={"cpu": "8"}, bound=JUST_NOW)) == []


def test_finished_pods_take_nothing():
    ended = [pod(f"p{n}", requests=gpus(8), phase="Succeeded") for n in range(3)]
    assert found(node(**GPUS), *ended) == []


def test_an_ill_device_leaves_allocatable_while_its_pod_runs():
    ill = node(capacity={"nvidia.com/gpu": "8"}, **{"nvidia.com__gpu": "7"})
    assert found(ill, pod("a", requests=gpus(8))) == []


def test_a_node_that_starts_reports_its_devices_late():
    assert found(node(ready_since=JUST_NOW), pod("a", requests=gpus(8))) == []
    assert found(node(), pod("a", requests=gpus(8))) != []


def test_an_extended_resource_served_by_a_claim_takes_nothing_of_the_node():
    uses = [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r"}]
    status = {"resourceClaimName": "x", "requestMappings": uses}
    served = pod("a", requests={"example.com/gpu": "2"}, extendedResourceClaimStatus=status)
    assert found(node(), served, claim("x", result("gpu-0"), users=["a"])) == []


def test_a_resource_of_a_device_class_is_served_by_claims_before_they_are_seen():
    served = pod("a", requests={"deviceclass.resource.kubernetes.io/gpu": "2"})
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {},
    }
    assert found(node(), served, device_class) == []


def test_a_resize_that_waits_for_capacity_is_not_given():
    waits = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    assert found(node(), pod("a", requests={"cpu": "16"}, conditions=[waits])) == []


def test_pods_of_other_schedulers_are_no_gangs_of_ours():
    pods = [pod(f"train-{n}", owner="train", scheduler="default-scheduler") for n in range(2)]
    assert found(job("train", 4, queue="team"), *pods) == []
