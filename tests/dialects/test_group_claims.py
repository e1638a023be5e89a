"""Claims of a PodGroup: one for the whole group, allocated, reserved and paid for once."""

from itertools import permutations

import pytest

from kai_py.commit.claims.reconcile import desired_claims
from kai_py.observe.http_lists import entries_of
from kai_py.plan.plan import Plan
from tests.dialects.feeding import Cluster, node, placed, pod
from tests.dialects.test_native_groups import QUEUE, group

GANG = "default/PodGroup.scheduling.k8s.io/train"
TEMPLATED = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
NAMED = {"name": "gpu", "resourceClaimName": "train-gpu"}
OWNER = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "train"}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
}


def hardware(*nodes, gpus=1):
    for name in nodes:
        yield node(name, 0)
        spec = {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}"} for i in range(gpus)],
        }
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-gpus"},
            "spec": spec,
        }


def train(claimed=TEMPLATED, made="train-gpu", **spec):
    found = group("train", 3, version="v1alpha2", resourceClaims=[claimed], **spec)
    if made:
        found["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": made}]}
    return found


def members(count=3, claimed=TEMPLATED, told="", start=0, **spec):
    marks = {"scheduling.kai.io/queue-name": "team"}
    for i in range(start, start + count):
        each = pod(
            f"train-{i}",
            0,
            annotations=marks,
            schedulingGroup={"podGroupName": "train"},
            resourceClaims=[claimed],
            **spec,
        )
        if told:
            each["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": told}]
        yield each


def claim(name="train-gpu", owner=OWNER, on="", group_uid="uid-PodGroup-train"):
    meta = {"name": name}
    if owner:
        meta["ownerReferences"] = [{**owner, "uid": "uid-PodGroup-train", "controller": True}]
    found = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    if on:
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": on, "device": "gpu-0"}
        consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train"}
        found["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{**consumer, "uid": group_uid}],
        }
    return found


def world(*given):
    return Cluster(QUEUE, CLASS, hardware("a", "b"), *given)


@pytest.mark.parametrize("told", ["", "train-gpu"], ids=["told by the group", "told by the pods"])
def test_a_group_gets_one_allocation_and_is_listed_once(told):
    cluster = world(train(made="" if told else "train-gpu"), claim(), members(told=told))
    plan = cluster.plan()
    assert len(set(placed(plan).values())) == 1
    assert len(placed(plan)) == 3
    [goal] = desired_claims(plan.placements[0])
    [consumer] = goal.consumers
    assert (consumer.api_group, consumer.resource) == ("scheduling.k8s.io", "podgroups")
    assert (consumer.name, consumer.uid) == ("train", "uid-PodGroup-train")
    assert len(goal.allocation.devices.results) == 1


@pytest.mark.parametrize(("others", "starts"), [(255, True), (256, False)])
def test_a_group_is_one_of_the_256_users_of_its_claim(others, starts):
    shared = claim(owner=None, on="a")
    listed = [{"resource": "pods", "name": f"o{n}", "uid": f"o{n}"} for n in range(others)]
    shared["status"]["reservedFor"] = listed
    cluster = world(train(NAMED), shared, members(claimed=NAMED))
    assert len(placed(cluster.plan())) == (3 if starts else 0)
    group_itself = claim(on="a")["status"]["reservedFor"]
    shared["status"]["reservedFor"] = [*listed[:255], *group_itself]
    assert len(placed(cluster.add(shared).plan())) == 3


def test_a_claim_by_name_is_the_groups_where_the_group_lists_it():
    cluster = world(train(NAMED), claim(owner=None), members(claimed=NAMED))
    [goal] = desired_claims(cluster.plan().placements[0])
    assert [each.resource for each in goal.consumers] == ["podgroups"]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other", "resourceClaimName": "train-gpu"},
        {"name": "gpu", "resourceClaimName": "another"},
    ],
    ids=["another name", "another source"],
)
def test_a_claim_that_only_looks_like_the_groups_is_the_pods(other):
    cluster = world(train(other), claim(owner=None), members(claimed=NAMED))
    [goal] = desired_claims(cluster.plan().placements[0])
    assert [each.resource for each in goal.consumers] == ["pods"] * 3


def test_pods_wait_until_the_claim_of_their_group_is_made():
    cluster = world(train(made=""), members())
    stage, message = cluster.why()[GANG]
    assert stage == "ClaimsNotReady"
    assert "not created yet" in message
    cluster.add(claim())
    cluster.add(train())
    assert len(placed(cluster.plan())) == 3


def test_pods_that_come_later_go_where_the_device_is():
    cluster = world(train(), claim(on="b"), members(nodeName="b"), members(2, start=3))
    plan = cluster.plan()
    assert placed(plan) == {"train-3": "b", "train-4": "b"}
    [goal] = desired_claims(plan.placements[0])
    assert goal.allocation is None


def gpus(cluster):
    return cluster.snapshot().queue_allocated["team"].get("gpu", 0.0)


def test_the_claim_is_paid_for_once_by_whoever_is_left():
    cluster = world(train(), claim(on="b"), members(2), members(2, start=2, nodeName="b"))
    assert gpus(cluster) == 1.0
    cluster.remove(members(1, start=2, nodeName="b"))
    assert gpus(cluster) == 1.0
    cluster.add(members(1, nodeName="b"))
    assert gpus(cluster) == 1.0
    assert cluster.snapshot().queue_requested["team"]["gpu"] == 1.0


def test_a_pod_with_a_node_pays_before_one_that_waits():
    cluster = world(train(), claim(on="b"), members(1), members(2, start=1))
    assert gpus(cluster) == 0.0
    cluster.add(members(1, start=2, nodeName="b"))
    assert gpus(cluster) == 1.0
    assert cluster.snapshot().queue_requested["team"]["gpu"] == 1.0


def test_the_holders_of_the_device_are_the_pods_of_the_group():
    cluster = world(train(), claim(on="b"), members(2), members(2, start=2, nodeName="b"))
    held = next(entry for entry in entries_of(cluster.snapshot()) if entry.claims)
    [holder] = held.claims
    assert holder.pods == ("train-2", "train-3")
    assert (holder.gang, holder.queue) == (GANG, "team")


URGENT = {"scheduling.kai.io/queue-name": "team"}


def urgent(priority=100):
    """A pod that wants a device of its own, and its claim."""
    found = claim("urgent-gpu", owner=None)
    wanted = {"name": "gpu", "resourceClaimName": "urgent-gpu"}
    return [
        found,
        pod("urgent", 0, annotations=URGENT, priority=priority, resourceClaims=[wanted]),
    ]


def one_node(*given):
    return Cluster(QUEUE, CLASS, hardware("b"), *given)


def outcome(plan: Plan):
    """What is evicted, what waits for that capacity, and what starts."""
    leaving = sorted(eviction.pod.name for eviction in plan.evictions)
    return leaving, [n.pod.name for n in plan.nominations], sorted(placed(plan))


ALL = ["train-0", "train-1", "train-2"]


def test_evicting_all_of_a_group_frees_its_devices():
    cluster = one_node(train(), claim(on="b"), members(nodeName="b"), urgent())
    assert outcome(cluster.plan()) == (ALL, ["urgent"], [])


def test_a_pod_that_stays_keeps_the_devices_of_its_group():
    stays = members(1, start=2, nodeName="b", priority=1000)
    cluster = one_node(train(), claim(on="b"), members(2, nodeName="b"), stays, urgent())
    assert outcome(cluster.plan()) == ([], [], [])


def test_the_devices_of_a_group_that_was_evicted_are_promised_until_they_are_given_back():
    cluster = one_node(train(), claim(on="b"), members(), urgent())
    assert outcome(cluster.plan()) == ([], ["urgent"], [])
    cluster.add(claim())
    assert outcome(cluster.plan()) == ([], [], ["urgent"])


def test_a_group_that_holds_its_devices_still_starts_on_them():
    cluster = one_node(train(), claim(on="b"), members())
    assert outcome(cluster.plan()) == ([], [], ALL)


def test_the_devices_of_another_schedulers_group_are_not_counted_on():
    theirs = members(schedulerName="default-scheduler", nodeName="b")
    cluster = one_node(train(), claim(on="b"), theirs, urgent())
    assert outcome(cluster.plan()) == ([], [], [])


def own_groups(cluster):
    return cluster.planner.builder.releasable_claims.our_groups()


OURS = frozenset({("default", "train")})


def test_a_group_is_ours_however_short_its_pods_lived_and_in_whatever_order_that_is_told():
    def pods():
        return members(nodeName="b")

    told = {
        "group": lambda cluster: cluster.add(train()),
        "claim": lambda cluster: cluster.add(claim(on="b")),
        "pods": lambda cluster: cluster.add(pods()),
        "gone": lambda cluster: cluster.remove(pods()),
    }
    for order in permutations(told):
        if order.index("pods") < order.index("gone") > order.index("group"):
            cluster = one_node(urgent())
            for each in order:
                told[each](cluster)
            assert own_groups(cluster) == OURS, order
            assert outcome(cluster.plan()) == ([], ["urgent"], []), order


def test_a_group_of_ours_is_forgotten_with_its_claim_or_when_it_is_deleted():
    cluster = one_node(train(), claim(on="b"), members(nodeName="b"))
    assert own_groups(cluster) == OURS
    cluster.add(claim())
    assert own_groups(cluster) == frozenset()
    cluster.remove(members(nodeName="b")).add(claim(on="b"))
    assert own_groups(cluster) == OURS
    cluster.remove(train()).add(train())
    assert own_groups(cluster) == frozenset()


@pytest.mark.parametrize("left", [True, False], ids=["with pods", "after its pods"])
def test_the_group_of_another_scheduler_is_not_ours(left):
    theirs = list(members(schedulerName="default-scheduler", nodeName="b"))
    cluster = one_node(train(), claim(on="b"), theirs, urgent())
    if not left:
        cluster.remove(theirs)
    assert own_groups(cluster) == frozenset()
    assert outcome(cluster.plan()) == ([], [], [])


def test_no_gang_waits_for_devices_of_a_group_that_are_never_released():
    """As after a restart: whose the pods were is not known."""
    cluster = one_node(train(), claim(on="b"), urgent())
    assert own_groups(cluster) == frozenset()
    assert outcome(cluster.plan()) == ([], [], [])


def test_whose_a_group_without_pods_is_can_be_told():
    cluster = one_node(train(), claim(on="b"), urgent())
    groups = cluster.planner.builder.releasable_claims
    ((found, names),) = groups.unknown_groups().items()
    assert (found.name, names) == ("train-gpu", {"train"})
    groups.adopt_group("default", "train")
    assert (own_groups(cluster), groups.unknown_groups()) == (OURS, {})
    assert outcome(cluster.plan()) == ([], ["urgent"], [])


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
def test_whose_a_group_with_pods_is_needs_no_telling(scheduler):
    pods = members(schedulerName=scheduler, nodeName="b")
    assert (
        one_node(train(), claim(on="b"), pods).planner.builder.releasable_claims.unknown_groups()
        == {}
    )
