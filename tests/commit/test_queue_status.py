"""What queues report of a plan."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.queue import read_queue
from kai_py.api.records.core import ObjectMeta
from kai_py.commit.statuses.queue import (
    USAGE_WRITE_SECONDS,
    desired_status,
    merge_patch,
    queue_reports,
    queue_status_patch,
)
from kai_py.embedded.patches import apply_merge_patch
from kai_py.plan.plan import Plan
from kai_py.snapshot.tables.queue_objects import queue_info
from kai_py.snapshot.tables.queues import EvictionRecord, UsageRecord
from kai_py.watch.kinds import WatchedQueue
from tests.support.records import replace
from tests.support.scenario import cluster as scenario
from tests.support.scenario import device_class, gpu_slice, job_with_pods, node, pod, queue

NOW = datetime(2026, 5, 1, 12, 30, 15, 999, tzinfo=UTC)
INTERVAL = 5.0


def known(name, **status):
    document = {"metadata": {"name": name}, "spec": {}, "status": status}
    meta = ObjectMeta(name=name, uid=f"queue-{name}", resource_version="7", generation=3)
    return WatchedQueue(meta, read_queue(document))


def status_of(plan, name, was=None, now=NOW):
    """The status of a queue, as it would stand in the API after the patch."""
    (report,) = [each for each in queue_reports(plan) if each.share.queue == name]
    wanted = desired_status(report, was or known(name), now)
    return wanted.model_dump(mode="json", by_alias=True, exclude_none=True)


def condition(status, kind):
    (found,) = [each for each in status["conditions"] if each["type"] == kind]
    return found


def test_amounts_are_those_of_the_plan_in_the_units_of_the_api():
    requests = {"cpu": "1500m", "memory": "2Gi"}
    plan = scenario(
        node("n", gpus=4),
        queue("q", 4),
        job_with_pods("runs", 2, queue="q", node="n", requests=requests),
        job_with_pods("waits", 4, queue="q", requests=requests),
    ).plan()
    status = status_of(plan, "q")
    assert status["allocated"] == {"gpus": "2", "cpu": "3", "memory": "4Gi"}
    assert status["requested"] == {"gpus": "6", "cpu": "9", "memory": "12Gi"}
    assert status["fairShare"]["gpus"] == "4"
    assert status["observedGeneration"] == 3
    assert status["pendingGangs"] == 1
    assert status["pending"] == [{"reason": "Resources", "gangs": 1, "pods": 4}]


def test_a_queue_reports_what_is_below_it():
    plan = scenario(
        node("n", gpus=8),
        queue("top", 8, 8),
        queue("left", 4, parent="top"),
        queue("right", 2, 2, parent="top"),
        job_with_pods("runs", 3, queue="left", node="n"),
        job_with_pods("big", 9, queue="left"),
        job_with_pods("over", 3, queue="right"),
    ).plan()
    top = status_of(plan, "top")
    assert top["allocated"]["gpus"] == "3"
    assert top["pendingGangs"] == 2
    assert {each["reason"] for each in top["pending"]} == {"QueueMax"}
    assert status_of(plan, "right")["pending"] == [{"reason": "QueueMax", "gangs": 1, "pods": 3}]
    assert status_of(plan, "left")["allocated"]["gpus"] == "3"


def test_a_queue_in_order_says_so():
    status = status_of(scenario(node("n"), queue("q", 4)).plan(), "q")
    said = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert said == {
        "Ready": ("True", "Accepted"),
        "Orphan": ("False", "InTree"),
        "OverDeserved": ("False", "WithinDeserved"),
        "OverMax": ("False", "WithinMax"),
    }
    assert {each["lastTransitionTime"] for each in status["conditions"]} == {"2026-05-01T12:30:15Z"}
    assert {each["observedGeneration"] for each in status["conditions"]} == {3}


def test_a_queue_that_is_open_to_all_says_so():
    rule = {"namespaces": {"names": ["default"]}}
    plan = scenario(
        node("n"), queue("open"), queue("org", **rule), queue("below", parent="org")
    ).plan()
    said = {q: condition(status_of(plan, q), "Ready")["message"] for q in ("open", "org", "below")}
    assert "every namespace may use" in said["open"]
    assert said["org"] == said["below"] == ""


def test_a_device_class_that_does_not_exist_is_named():
    entries = [
        {"name": name, "deviceClassName": name, "max": 1} for name in ("h100", "gpu.nvidia.com")
    ]
    own = {"namespaces": {"names": ["default"]}, "devices": entries}
    plan = scenario(node("n"), device_class(), queue("q", **own), queue("other")).plan()
    found = condition(status_of(plan, "q"), "Ready")
    assert (found["status"], found["reason"]) == ("True", "Accepted")
    assert found["message"] == (
        "spec.devices bounds nothing by DeviceClass h100, which does not exist"
    )
    assert "DeviceClass" not in condition(status_of(plan, "other"), "Ready")["message"]


def test_a_missing_parent_is_named_with_its_field_and_below():
    plan = scenario(node("n"), queue("q", parent="gone"), queue("below", parent="q")).plan()
    for kind, value in (("Ready", "False"), ("Orphan", "True")):
        found = condition(status_of(plan, "q"), kind)
        assert (found["status"], found["reason"]) == (value, "MissingParent")
        assert "spec.parent" in found["message"]
        assert "'gone' does not exist" in found["message"]
        found = condition(status_of(plan, "below"), kind)
        assert (found["status"], found["reason"]) == (value, "AncestorOrphan")
        assert "'q'" in found["message"]


def test_a_cycle_is_named_on_every_queue_in_it():
    plan = scenario(
        node("n"), queue("a", parent="b"), queue("b", parent="a"), queue("fine", 1)
    ).plan()
    for name in ("a", "b"):
        found = condition(status_of(plan, name), "Ready")
        assert (found["status"], found["reason"]) == ("False", "Cycle")
        assert "spec.parent" in found["message"]
    assert condition(status_of(plan, "fine"), "Ready")["status"] == "True"


def test_guarantees_that_the_cluster_is_too_small_for_are_told():
    plan = scenario(
        node("n", gpus=6),
        queue("a", 4),
        queue("b", 4),
        job_with_pods("one", 4, queue="a"),
        job_with_pods("two", 4, queue="b"),
    ).plan()
    found = condition(status_of(plan, "a"), "Ready")
    assert (found["status"], found["reason"]) == ("True", "DeservedScaledDown")
    assert "spec.deservedGPUs is 4 GPUs, of which 3 GPUs can be guaranteed" in found["message"]


def test_a_queue_that_lowers_the_guarantees_of_all_others_is_told():
    plan = scenario(
        node("n", gpus=8),
        queue("a", 4),
        queue("vast", 1_000_000),
        job_with_pods("one", 4, queue="a"),
        job_with_pods("two", 8, queue="vast"),
        job_with_pods("three", 8, queue="vast"),
    ).plan()
    found = condition(status_of(plan, "vast"), "Ready")
    assert (found["status"], found["reason"]) == ("True", "DeservedScaledDown")
    assert "more than the 8 GPUs that all 2 sibling queues" in found["message"]
    assert "lower it to what the queue needs" in found["message"]
    assert "lower it" not in condition(status_of(plan, "a"), "Ready")["message"]


def test_one_gpu_is_singular():
    plan = scenario(
        node("n"), queue("q", 1), *(pod(f"p-{i}", queue="q", node="n") for i in range(2))
    ).plan()
    over = condition(status_of(plan, "q"), "OverDeserved")
    assert "2 GPUs allocated, spec.deservedGPUs is 1 GPU:" in over["message"]


@pytest.mark.parametrize("bound", [0, 2])
def test_a_queue_that_has_all_of_its_bounds_is_within_them(bound):
    own = queue("q", bound, bound, resources={"cpu": {"deserved": bound, "max": bound}})
    plan = scenario(
        node("n"), own, *(pod(f"p-{i}", queue="q", node="n") for i in range(bound))
    ).plan()
    for kind in ("OverDeserved", "OverMax"):
        assert condition(status_of(plan, "q"), kind)["status"] == "False"


def test_w18_more_than_deserved_and_more_than_max_are_told_with_their_fields():
    plan = scenario(
        node("n"),
        queue("q", 2, 3, resources={"cpu": {"deserved": 2, "max": 100}}),
        *(pod(f"p-{i}", queue="q", node="n") for i in range(4)),
    ).plan()
    over = condition(status_of(plan, "q"), "OverDeserved")
    assert (over["status"], over["reason"]) == ("True", "AboveDeserved")
    assert "4 GPUs allocated, spec.deservedGPUs is 2 GPUs" in over["message"]
    assert "4 cpu allocated, spec.resources[cpu].deserved is 2 cpu" in over["message"]
    over = condition(status_of(plan, "q"), "OverMax")
    assert (over["status"], over["reason"]) == ("True", "AboveMax")
    assert "spec.maxGPUs is 3 GPUs" in over["message"]
    assert "cpu" not in over["message"]


def test_a_condition_keeps_its_time_while_it_holds_and_others_are_left_alone():
    old = {
        "type": "Ready",
        "status": "True",
        "reason": "DeservedScaledDown",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    foreign = old | {"type": "Audited", "reason": "ByHand"}
    was = known("q", conditions=[old, foreign, old | {"type": "Orphan"}])
    status = status_of(scenario(node("n"), queue("q", 4)).plan(), "q", was)
    assert condition(status, "Ready")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert condition(status, "Orphan")["lastTransitionTime"] == "2026-05-01T12:30:15Z"
    assert condition(status, "Audited")["reason"] == "ByHand"


def test_past_usage_stays():
    usage = {"observedAt": "2026-01-01T00:00:00Z", "halfLife": "1h", "used": {"gpus": 3.5}}
    was = known("q", usage=usage)
    plan = scenario(node("n"), queue("q", 4)).plan()
    assert status_of(plan, "q", was)["usage"]["used"] == {"gpus": 3.5}
    (report,) = queue_reports(plan)
    assert "usage" not in queue_status_patch(desired_status(report, was, NOW), was)["status"]


def test_past_use_is_written_once_a_period_and_reads_back():
    plan = scenario(node("n"), queue("q", 4)).plan()
    (share,) = plan.queues
    held = UsageRecord(NOW.timestamp(), {"gpu": 7.5, "cpu": 1500.0}, {"gpu": 15.0}, 3600.0)
    first = Plan(queues=(replace(share, past_usage=held),))
    status = status_of(first, "q")
    assert status["usage"]["used"] == {"gpus": 7.5, "cpu": 1.5}
    assert queue_info(known("q", **status).queue).usage == held
    soon = replace(held, at=held.at + 1, used={"gpu": 8.5})
    (soon_report,) = queue_reports(Plan(queues=(replace(share, past_usage=soon),)))
    assert soon_report == queue_reports(first)[0], "no news"
    assert (
        status_of(Plan(queues=(replace(share, past_usage=soon),)), "q", known("q", **status))
        == status
    )
    later = replace(soon, at=held.at + 2 * USAGE_WRITE_SECONDS)
    again = status_of(Plan(queues=(replace(share, past_usage=later),)), "q", known("q", **status))
    assert again["usage"]["used"] == {"gpus": 8.5}


def test_past_evictions_are_written_and_read_back():
    plan = scenario(node("n"), queue("q", 4)).plan()
    (share,) = plan.queues
    told = (EvictionRecord("default/Job/train", float(int(NOW.timestamp())), 3),)
    status = status_of(Plan(queues=(replace(share, evictions=told),)), "q")
    (shown,) = status["evictions"]
    assert (shown["workload"], shown["pods"]) == ("default/Job/train", 3)
    assert queue_info(known("q", **status).queue).evictions == told
    (report,) = queue_reports(Plan(queues=(replace(share, evictions=told),)))
    assert (
        queue_status_patch(desired_status(report, known("q", **status), NOW), known("q", **status))
        is None
    )
    assert status_of(plan, "q", known("q", **status))["evictions"] == []


def test_noise_of_sums_is_no_change():
    shares = scenario(node("n"), queue("q", 4)).plan()
    (report,) = queue_reports(shares)
    noisy = msgspec.json.decode(msgspec.json.encode(report.share))
    assert noisy["allocated"]["gpu"] == 0.0
    report.share.allocated["gpu"] = 0.1 + 0.2
    wanted = desired_status(report, known("q"), NOW)
    assert str(wanted.allocated["gpus"]) == "300m"
    report.share.allocated["gpu"] = -1e-12
    assert str(desired_status(report, known("q"), NOW).allocated["gpus"]) == "0"


leaves = st.one_of(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2))
keys = st.sampled_from("abc")
branches = st.one_of(leaves, st.dictionaries(keys, leaves, max_size=3))
objects = st.dictionaries(keys, st.one_of(branches, st.dictionaries(keys, branches, max_size=3)))


@given(objects, objects)
def test_a_merge_patch_leads_from_one_document_to_the_other(old, new):
    patch = merge_patch(old, new)
    assert apply_merge_patch(old, patch) == new
    assert (patch == {}) == (old == new)


def test_w19_devices_of_claims_count():
    plan = scenario(node("n", gpus=0), gpu_slice("n"), queue("q", 4)).plan()
    assert status_of(plan, "q")["allocated"] == {"gpus": "0"}
