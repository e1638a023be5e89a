"""What Kubernetes' own PodGroups say: kube-scheduler's conditions and reasons, from our plans."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.unstructured import Unstructured
from kai_py.commit.statuses.group_conditions import (
    NativeGroupStatusWriter,
    PodGangStatusWriter,
    composite_group_reports,
    native_group_patch,
    native_group_reports,
)
from kai_py.commit.statuses.pod import pending_statuses
from kai_py.plan.plan import Plan
from tests.dialects.feeding import Cluster, node
from tests.dialects.test_native_groups import QUEUE, TRAIN, composite, group, members

NOW = datetime(2026, 5, 1, 12, 30, 15, tzinfo=UTC)
OTHER = {"type": "Other", "status": "True", "reason": "Theirs", "message": ""}


def conditions(cluster, name="train", before=(), version="v1alpha2", disrupted=None):
    """Condition type to status and reason after a plan; None where nothing is written."""
    snapshot = cluster.snapshot()
    reports = native_group_reports(
        cluster.planner.decide(snapshot), snapshot.gangs.values(), disrupted or {}
    )
    known = Unstructured(
        api_version=f"scheduling.k8s.io/{version}",
        kind="PodGroup",
        metadata=ObjectMeta(name=name, namespace="default", uid="u", resource_version="7"),
        content={"status": {"conditions": list(before)}},
    )
    patch = native_group_patch(reports["default", name], known, NOW)
    if patch is None:
        return None
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}
    return {
        each["type"]: (each["status"], each["reason"]) for each in patch["status"]["conditions"]
    }


def stated(status, reason, kind="PodGroupScheduled"):
    return {"type": kind, "status": status, "reason": reason, "message": ""}


RUNNING = Cluster(QUEUE, node("n"), group("train", 2), members("train", 2, nodeName="n"))
WAITING = Cluster(QUEUE, node("n", 1), group("train", 2), members("train", 2))


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1alpha2", "PodGroupScheduled"),
        ("v1alpha3", "PodGroupInitiallyScheduled"),
        ("v1beta1", "PodGroupInitiallyScheduled"),
    ],
)
def test_a_group_with_its_floor_says_so_in_the_words_of_its_version(version, kind):
    assert conditions(RUNNING, version=version) == {kind: ("True", "Scheduled")}


@pytest.mark.parametrize(
    "status", [[], "x", {"conditions": "x"}, {"conditions": [None, 1, {}, {"type": []}, {"x": 1}]}]
)
def test_a_status_of_any_form_is_replaced(status):
    """A server without a schema of the kind accepts it."""
    snapshot = RUNNING.snapshot()
    reports = native_group_reports(RUNNING.planner.decide(snapshot), snapshot.gangs.values(), {})
    known = RUNNING.record(group("train", 2))
    patch = native_group_patch(
        reports["default", "train"], replace(known, content={"status": status}), NOW
    )
    [condition] = patch["status"]["conditions"]
    assert condition["reason"] == "Scheduled"


def test_a_group_without_capacity_says_so_and_others_conditions_stay():
    assert conditions(WAITING, before=[OTHER]) == {
        "Other": ("True", "Theirs"),
        "PodGroupScheduled": ("False", "Unschedulable"),
    }


def test_a_group_that_had_started_stays_scheduled():
    assert conditions(WAITING, before=[stated("True", "Scheduled")]) is None


def test_what_is_said_already_is_not_written():
    assert conditions(RUNNING, before=[stated("True", "Scheduled")]) is None


def test_half_a_group_says_nothing():
    assert conditions(Cluster(QUEUE, node("n"), group("train", 2), members("train", 1))) is None


def test_a_group_that_makes_no_sense_is_an_error():
    stranger = members("train", 2, schedulerName="default-scheduler")
    mixed = Cluster(QUEUE, group("train", 1), members("train", 1), stranger[1:])
    assert conditions(mixed) == {"PodGroupScheduled": ("False", "SchedulerError")}


def test_groups_below_a_composite_group_each_say_their_own():
    cluster = Cluster(
        QUEUE,
        node("n", 2),
        composite("serve"),
        group("train", 2, parentCompositePodGroupName="serve"),
        group("late", 2, parentCompositePodGroupName="serve"),
        members("train", 2, nodeName="n"),
        members("late", 2),
    )
    assert conditions(cluster) == {"PodGroupScheduled": ("True", "Scheduled")}
    assert conditions(cluster, "late") == {"PodGroupScheduled": ("False", "Unschedulable")}


def test_groups_of_groups_say_when_their_floor_runs():
    cluster = Cluster(
        QUEUE,
        node("n", 2),
        composite("serve", 2),
        composite("decode", 1, parentCompositePodGroupName="serve"),
        group("workers", 2, parentCompositePodGroupName="decode"),
        group("late", 2, parentCompositePodGroupName="serve"),
        members("workers", 2, nodeName="n"),
        members("late", 2),
    )
    kind = "CompositePodGroupInitiallyScheduled"
    assert composite_conditions(cluster, "decode") == {kind: ("True", "Scheduled")}
    assert composite_conditions(cluster, "serve") == {kind: ("False", "Unschedulable")}
    assert composite_conditions(cluster, "serve", before=[stated("True", "Scheduled", kind)]) == {}


def composite_conditions(cluster, name, before=()):
    snapshot = cluster.snapshot()
    reports = composite_group_reports(cluster.planner.decide(snapshot), snapshot.gangs.values(), {})
    known = Unstructured(
        api_version="scheduling.k8s.io/v1alpha3",
        kind="CompositePodGroup",
        metadata=ObjectMeta(name=name, namespace="default", uid="u", resource_version="7"),
        content={"status": {"conditions": list(before)}},
    )
    patch = native_group_patch(reports["default", name], known, NOW) or {"status": {}}
    return {
        each["type"]: (each["status"], each["reason"])
        for each in patch["status"].get("conditions", ())
    }


def test_a_group_that_is_evicted_says_so_until_it_runs_again():
    told = conditions(WAITING, disrupted={TRAIN: "team b takes the capacity"})
    assert told is not None
    assert told["DisruptionTarget"] == ("True", "PreemptionByScheduler")
    before = [
        stated("True", "Scheduled"),
        stated("True", "PreemptionByScheduler", "DisruptionTarget"),
    ]
    assert conditions(RUNNING, before=before) == {"PodGroupScheduled": ("True", "Scheduled")}


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("kind", [PodGangStatusWriter, NativeGroupStatusWriter])
def test_groups_are_told_where_their_kind_is_served_and_unless_that_is_switched_off(
    kind, enabled, served
):
    told, writer = [], object.__new__(kind)
    writer._enabled = enabled
    writer._mirror = SimpleNamespace(served=lambda _kind: "v1" if served else None)
    writer._disruptions = SimpleNamespace(update=lambda _plan, _gangs: {})
    writer._writer = writer._groups = writer._composites = SimpleNamespace(update=told.append)
    writer.update(Plan(), [])
    assert bool(told) is (served and (enabled or kind is NativeGroupStatusWriter))


def test_the_message_of_a_condition_is_short_whatever_a_tenant_has_written():
    """It is written to each of the pods, while the annotation is written once."""
    wide = group("train", 2)
    wide["metadata"]["annotations"] = {QUEUE_NAME_KEY: "q" * 200_000}
    cluster = Cluster(node("n"), wide, members("train", 2))
    snapshot = cluster.snapshot()
    plan = cluster.planner.decide(snapshot)
    messages = [each.message for each in pending_statuses(plan)]
    assert len(messages) == 2
    assert all("create it, or set" in each and len(each) < 300 for each in messages)

    [unplaced] = plan.unplaced
    plan = replace(plan, unplaced=(replace(unplaced, message="m" * 200_000),))
    messages = [each.message for each in pending_statuses(plan)]
    messages += [
        each.message for each in native_group_reports(plan, snapshot.gangs.values(), {}).values()
    ]
    assert len(messages) == 3
    assert all(each.endswith("… and 195904 more characters") for each in messages)
