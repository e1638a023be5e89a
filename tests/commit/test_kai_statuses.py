"""What KAI's Queues and PodGroups report, for programs that read them."""

from datetime import UTC, datetime

import msgspec

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.kai import POD_GROUP_API_VERSION, KaiPodGroup, KaiQueue
from kai_py.commit.statuses.kai import kai_queue_patch, kai_queue_reports
from kai_py.commit.statuses.kai_pod_group import (
    KaiPodGroupAnnotations,
    LastEvictions,
    kai_pod_group_annotations,
    kai_pod_group_annotations_patch,
    kai_pod_group_patch,
    kai_pod_group_reports,
)
from kai_py.commit.statuses.pod import differs, pending_statuses, pod_status_patch
from kai_py.commit.statuses.queue import kai_resource_list
from kai_py.dialects.kai.keys import LAST_EVICTION, STALE_SINCE
from kai_py.embedded.patches import apply_merge_patch
from kai_py.grouping.gang import Owner
from kai_py.grouping.gang_settings import GangSettings
from tests.dialects import feeding
from tests.dialects.kai import objects
from tests.support.records import replace
from tests.support.scenario import START, cluster, job, job_with_pods, node, pod, queue

NOW = datetime(2026, 5, 1, 12, 30, 15, tzinfo=UTC)
LATER = datetime(2026, 5, 1, 13, 0, 0, tzinfo=UTC)


def kai_queue(name, status=None):
    meta = ObjectMeta(name=name, uid=f"queue-{name}", resource_version="7")
    return msgspec.structs.replace(
        msgspec.convert({"status": status or {}}, KaiQueue), metadata=meta
    )


def kai_pod_group(name, status=None):
    meta = ObjectMeta(name=name, namespace="default", uid=f"group-{name}", resource_version="7")
    return msgspec.structs.replace(
        msgspec.convert({"status": status or {}}, KaiPodGroup), metadata=meta
    )


def written(patch, before=None):
    return apply_merge_patch(before or {}, patch["status"])


def queue_status(plan, name, before=None, now=NOW):
    patch = kai_queue_patch(kai_queue_reports(plan)["", name], kai_queue(name, before), now)
    return None if patch is None else written(patch, before)


def group_patch(scenario, name, before=None, now=NOW, **changes):
    """The patch of the PodGroup that stands for the Job called ``name``."""
    snapshot = scenario.snapshot()
    owner = Owner(POD_GROUP_API_VERSION, "PodGroup", "default", name, f"group-{name}")
    gang = replace(snapshot.gangs[f"default/Job/{name}"], owner=owner, **changes)
    reports = kai_pod_group_reports(scenario.plan(), [gang], "")
    return kai_pod_group_patch(reports["default", name], kai_pod_group(name, before), now)


def test_a_queue_tells_its_children_and_sums():
    plan = cluster(
        node("n"),
        queue("org", 8),
        queue("team", 4, parent="org"),
        queue("other", 4, parent="org"),
        job_with_pods("runs", 2, queue="team", node="n", requests={"memory": "1Gi"}),
        job_with_pods("waits", 9, queue="team"),
    ).plan()
    status = queue_status(plan, "org")
    assert status["childQueues"] == ["other", "team"]
    assert status["allocated"] == {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "2"}
    assert status["requested"] == {"cpu": "11", "memory": "2Gi", "nvidia.com/gpu": "11"}
    assert queue_status(plan, "team")["allocated"]["nvidia.com/gpu"] == "2"
    said = {each["type"]: each["status"] for each in status["conditions"]}
    assert said == {"Ready": "True", "Orphan": "False", "OverQuota": "False"}


def test_a_queue_that_says_it_is_left_alone_and_what_is_over_goes():
    plan = cluster(node("n"), queue("q", 1), pod("p", queue="q", node="n")).plan()
    status = queue_status(plan, "q")
    assert queue_status(plan, "q", status, LATER) is None
    empty = cluster(node("n"), queue("q", 1)).plan()
    assert queue_status(empty, "q", status)["allocated"] == {}


def test_a_queue_above_its_quota_or_without_its_parent_says_so():
    pods = [pod(f"p{i}", queue="q", node="n") for i in range(3)]
    plan = cluster(node("n"), queue("q", 2, parent="gone"), *pods).plan()
    said = {each["type"]: each for each in queue_status(plan, "q")["conditions"]}
    assert (said["OverQuota"]["status"], said["Orphan"]["status"]) == ("True", "True")
    assert said["Orphan"]["reason"] == "MissingParent"
    assert said["Ready"]["lastTransitionTime"] == "2026-05-01T12:30:15Z"


def test_messages_on_kais_queues_name_kais_fields_and_units():
    resources = {
        "cpu": {"quota": 500, "limit": -1},
        "memory": {"quota": -1, "limit": -1},
        "gpu": {"quota": 1, "limit": -3},
    }
    team = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"parentQueue": "gone", "resources": resources},
    }
    below = {**team, "metadata": {"name": "below"}, "spec": {"parentQueue": "team"}}
    running = objects.in_kai_queue("p", "team", gpus=2, nodeName="n")
    plan = feeding.Cluster(feeding.node("n"), team, below, running).plan()
    said, said_below = (
        {each["type"]: each["message"] for each in queue_status(plan, name)["conditions"]}
        for name in ("team", "below")
    )
    assert said["OverQuota"].startswith(
        "1000 millicores allocated, spec.resources.cpu.quota is 500 millicores: queues below"
    )
    assert "2 GPUs allocated, spec.resources.gpu.quota is 1 GPU: queues below" in said["OverQuota"]
    assert said["Orphan"].startswith("spec.parentQueue: queue 'team': parent 'gone' does not exist")
    assert (
        "spec.resources.gpu.limit is -3, must be a number of at least 0, or -1 for unlimited"
        in said["Ready"]
    )
    assert "no usable spec.parentQueue" in said_below["Orphan"]


def test_kais_queues_are_not_told_of_a_field_for_namespaces():
    plan = feeding.Cluster(feeding.node("n"), objects.kai_queue("q", quota=1, limit=1)).plan()
    [ready] = [e for e in queue_status(plan, "q")["conditions"] if e["type"] == "Ready"]
    assert (ready["reason"], ready.get("message", "")) == ("Accepted", "")


def test_a_pod_group_tells_what_it_holds_and_why_it_waits():
    scenario = cluster(node("n", 2), queue("q", 2, 2), job_with_pods("big", 3, queue="q"))
    status = written(group_patch(scenario, "big", preemptible=False))
    assert status["resourcesStatus"] == {"requested": {"cpu": "3", "nvidia.com/gpu": "3"}}
    [condition] = status["schedulingConditions"]
    assert (condition["type"], condition["nodePool"]) == ("UnschedulableOnNodePool", "default")
    assert (condition["status"], condition["reason"]) == ("True", "Unschedulable")
    assert condition["transitionID"] == "1"
    [reason] = condition["reasons"]
    assert reason["reason"] == "OverLimit"
    assert " q quota has reached the allowable limit of GPUs. " in reason["message"]
    details = reason["details"]["queueDetails"]
    assert details["queueResourceLimits"] == {"nvidia.com/gpu": "2"}
    assert details["podGroupRequestedNonPreemptibleResources"]["nvidia.com/gpu"] == "3"


def test_what_a_running_pod_group_holds_counts_as_fixed_if_it_may_not_be_evicted():
    scenario = cluster(node("n"), queue("q", 8), job_with_pods("runs", 2, queue="q", node="n"))
    held = {"cpu": "2", "nvidia.com/gpu": "2"}
    status = written(group_patch(scenario, "runs", preemptible=False))["resourcesStatus"]
    assert status == {"allocated": held, "allocatedNonPreemptible": held, "requested": held}
    status = written(group_patch(scenario, "runs"))["resourcesStatus"]
    assert status == {"allocated": held, "requested": held}


def test_a_condition_stands_until_the_reason_changes_and_goes_when_nothing_waits():
    waiting = cluster(node("n", 2), queue("q", 8), job_with_pods("big", 3, queue="q"))
    other = {"type": "UnschedulableOnNodePool", "nodePool": "west", "status": "True"}
    status = written(group_patch(waiting, "big", {"schedulingConditions": [other]}))
    assert [each["nodePool"] for each in status["schedulingConditions"]] == ["west", "default"]
    assert group_patch(waiting, "big", status, LATER) is None
    none_exists = cluster(node("n", 2), job_with_pods("big", 3, queue="q"))
    changed = written(group_patch(none_exists, "big", status, LATER), status)
    ours = changed["schedulingConditions"][1]
    assert (ours["transitionID"], ours["lastTransitionTime"]) == ("2", "2026-05-01T13:00:00Z")
    assert ours["reasons"][0]["reason"] == "QueueDoesNotExist"
    for absurd, following in (("9" * 5000, "1"), ("²", "1"), ("-5", "1"), ("7", "8")):
        ours["transitionID"] = absurd
        other_reason = written(group_patch(waiting, "big", changed, LATER), changed)
        assert other_reason["schedulingConditions"][1]["transitionID"] == following
    roomy = cluster(node("n", 8), queue("q", 8), job_with_pods("big", 3, queue="q"))
    left = written(group_patch(roomy, "big", changed), changed)["schedulingConditions"]
    assert [each["nodePool"] for each in left] == ["west"]


def test_a_condition_stands_while_only_other_amounts_of_its_queue_change():
    def with_others(*others):
        return cluster(
            node("n", 4), queue("q", 2, 2), job_with_pods("big", 3, queue="q"), list(others)
        )

    status = written(group_patch(with_others(), "big"))
    cpu_only = pod("cpu", 0, queue="q", node="n")
    assert group_patch(with_others(cpu_only), "big", status, LATER) is None
    assert group_patch(with_others(pod("gpu", 1, queue="q", node="n")), "big", status, LATER)


def test_waiting_for_ones_own_pods_is_no_condition_and_one_attempt_stays_told():
    owner, *pods = job_with_pods("half", 3, queue="q")
    incomplete = cluster(node("n", 8), queue("q", 8), owner, pods[:2])
    assert "schedulingConditions" not in written(group_patch(incomplete, "half"))
    full = cluster(node("n", 2), queue("q", 8), job_with_pods("big", 3, queue="q"))
    status = written(group_patch(full, "big"))
    roomy = cluster(node("n", 8), queue("q", 8), job_with_pods("big", 3, queue="q"))
    assert group_patch(roomy, "big", status, settings=GangSettings(attempts_exhausted=True)) is None


def test_pods_of_a_group_that_asks_so_are_not_marked():
    waiting = pod("p", queue="nowhere")
    plan = cluster(node("n"), waiting).plan()
    [status] = pending_statuses(replace(plan, unplaced=(replace(plan.unplaced[0], marked=False),)))
    assert status.reason == ""
    assert not differs(status, waiting)
    assert "conditions" not in pod_status_patch(status, waiting, NOW)["status"]
    [marked] = pending_statuses(plan)
    assert differs(marked, waiting)


def test_devices_by_class_and_pods_are_no_resources_of_kai():
    amounts = {"gpu": 3.0, "deviceclass/gpu.nvidia.com": 3.0, "cpu": 1500.0, "pods": 3.0}
    assert kai_resource_list(amounts) == {"nvidia.com/gpu": "3", "cpu": "1500m"}


def marks_patch(said, since, uid="group-g"):
    """The patch of the PodGroup g whose annotation says ``said``."""
    group = kai_pod_group("g")
    marks = {STALE_SINCE: said} if said else {}
    meta = msgspec.structs.replace(group.metadata, annotations={"mine": "stays", **marks})
    known = msgspec.structs.replace(group, metadata=meta)
    return kai_pod_group_annotations_patch(KaiPodGroupAnnotations(uid, since), known, NOW)


def test_a_group_is_told_since_when_it_is_short_and_that_it_is_whole_again():
    since = NOW.timestamp() - 0.25
    patch = marks_patch("", since)
    assert patch["metadata"]["annotations"] == {STALE_SINCE: "2026-05-01T12:30:15Z"}
    assert patch["metadata"]["resourceVersion"] == "7"
    assert marks_patch("2026-05-01T12:30:15Z", since) is None
    healed = marks_patch("2026-05-01T12:30:15Z", None)
    assert healed["metadata"]["annotations"] == {STALE_SINCE: None}
    assert marks_patch("", None) is None
    assert marks_patch("", since, uid="another of this name") is None


def test_a_group_is_told_when_a_pod_of_it_was_last_evicted():
    def patch(said):
        group = kai_pod_group("g")
        meta = msgspec.structs.replace(group.metadata, annotations=said)
        known = msgspec.structs.replace(group, metadata=meta)
        marks = KaiPodGroupAnnotations("group-g", None, NOW.timestamp())
        return kai_pod_group_annotations_patch(marks, known, NOW)

    told = {LAST_EVICTION: "2026-05-01T12:30:15Z"}
    assert patch({})["metadata"]["annotations"] == told
    assert patch({LAST_EVICTION: "2026-05-01T12:00:00Z"})["metadata"]["annotations"] == told
    assert patch(told) is None
    assert patch({LAST_EVICTION: "2026-05-01T13:00:00Z"}) is None


def test_an_eviction_that_is_planned_again_is_not_a_new_one():
    owner = Owner(POD_GROUP_API_VERSION, "PodGroup", "default", "g", "u")
    low = job_with_pods("low", 2, queue="q", node="n")
    high = job_with_pods("high", 2, queue="q", priority=1000)
    planned = cluster(node("n", 2), queue("q", 2), low, high).plan()
    evictions = tuple(msgspec.structs.replace(each, owner=owner) for each in planned.evictions)
    assert {each.gang for each in evictions} == {"default/Job/low"}
    plan, nothing = (replace(planned, evictions=each) for each in (evictions, ()))
    times = LastEvictions()
    assert times.update(planned, 1.0) == {}
    assert times.update(plan, 2.0) == {"default/Job/low": 2.0}
    assert times.update(plan, 3.0) == {"default/Job/low": 2.0}
    assert times.update(nothing, 4.0) == {"default/Job/low": 2.0}
    assert times.update(plan, 5.0) == {"default/Job/low": 5.0}


def test_only_gangs_of_kai_groups_are_told():
    owner = job("train", 3, "q")
    short = [owner, *(pod(f"train-{i}", owner=owner, node="n") for i in range(2))]
    gangs = list(cluster(node("n"), queue("q", 8), short).snapshot().gangs.values())
    assert [gang.stale_since for gang in gangs] == [START + 1000.0]
    assert kai_pod_group_annotations(gangs, {}) == {}
    grouped = replace(gangs[0], owner=Owner(POD_GROUP_API_VERSION, "PodGroup", "default", "g", "u"))
    assert kai_pod_group_annotations([grouped], {}) == {
        ("default", "g"): KaiPodGroupAnnotations("u", START + 1000.0)
    }
