"""Decisions as events tell them, and what stands in for events that are gone."""

from datetime import UTC, datetime

import msgspec
import pytest

from kai_py.api import event_annotations
from kai_py.api.records.core import ObjectMeta
from kai_py.api.references import PodRef
from kai_py.commit.binding import BindingOutcome, BindingResult
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.events import event_body
from kai_py.commit.eviction import EvictionOutcome, EvictionResult
from kai_py.commit.transaction import GangOutcome
from kai_py.embedded.kinds.cluster import from_events_group
from kai_py.grouping.gang import Owner
from kai_py.observe.decision_log import DecisionKind
from kai_py.observe.event_history import (
    EVENTS_MISSING,
    ClusterEvent,
    DecisionHistory,
    InvolvedObject,
    decisions_of_events,
)
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Action, Eviction, GangPlacement, Placement, Plan, Stage, Unplaced
from kai_py.snapshot.tables.queues import EvictionRecord
from tests.observe.shown import view_of
from tests.support.worlds import gang, world

JOB = Owner("batch/v1", "Job", "default", "train", "uid")
KEY = "default/Job/train"


class Recorder(list):
    """Keeps events as the API server gives them back, a second apart where that is asked for."""

    now = 1.0

    def record(self, event):
        now = datetime.fromtimestamp(self.now, UTC)
        body = event_body(event, reporter="kai", instance="i", now=now, token="1")
        document = from_events_group({"kind": "Event", **body})
        self.append(msgspec.convert(document, ClusterEvent))


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def narrator(recorder):
    return EventWriter(recorder, lambda _name: None)


def pod(number):
    return PodRef("default", f"train-{number}", f"uid-{number}")


def place(narrator, *numbers, action=Action.ALLOCATE):
    pods = tuple(Placement(pod(number), f"node-{number}") for number in numbers)
    bound = tuple(BindingResult(each.pod, each.node, BindingOutcome.BOUND) for each in pods)
    narrator.report_outcome(GangOutcome(GangPlacement(KEY, JOB, "team", action, pods), bound))


def evict(narrator, number):
    eviction = Eviction(
        pod=pod(number),
        node=f"node-{number}",
        gang=KEY,
        owner=JOB,
        queue="team",
        action=Action.RECLAIM,
        preemptor="default/Job/other",
        preemptor_queue="rival",
        reason="reclaimed by workload default/other",
    )
    narrator.report_eviction(EvictionResult(eviction, EvictionOutcome.EVICTED))


def test_pods_that_were_placed_together_are_one_decision(narrator, recorder):
    place(narrator, 0, 1, action=Action.RECLAIM)
    recorder.now = 60.0
    place(narrator, 2, action=Action.RECLAIM)
    first, second = decisions_of_events(recorder)
    assert (first.kind, first.gang, first.queue) == (DecisionKind.PLACED, KEY, "team")
    assert first.action == "reclaim"
    assert first.pods == ("default/train-0", "default/train-1")
    assert first.nodes == ("node-0", "node-1")
    assert first.message == "capacity was reclaimed from queues above their fair share"
    assert (second.time, second.pods) == (60.0, ("default/train-2",))


def test_an_eviction_is_told_once_with_its_rule_and_for_whom(narrator, recorder):
    evict(narrator, 0)
    evict(narrator, 1)
    [told] = decisions_of_events(recorder)
    assert (told.kind, told.gang, told.action) == (DecisionKind.EVICTED, KEY, "reclaim")
    assert (told.preemptor, told.preemptor_queue) == ("default/Job/other", "rival")
    assert told.pods == ("default/train-0", "default/train-1")
    assert told.message == "reclaimed by workload default/other"


def test_waiting_is_told_once_for_each_stage(narrator, recorder):
    for now, stage, message in (
        (0.0, Stage.RESOURCES, "no capacity"),
        (5.0, Stage.RESOURCES, "less capacity"),
        (9.0, Stage.QUEUE_MAX, "above the max"),
    ):
        recorder.now = now
        narrator.report_pending(Unplaced(KEY, JOB, "team", stage, message, ()))
    told = decisions_of_events(recorder)
    assert [(each.stage, each.previous_stage, each.message) for each in told] == [
        ("Resources", "", "no capacity"),
        ("QueueMax", "Resources", "above the max"),
    ]


def test_events_of_others_tell_nothing():
    stranger = ClusterEvent(reason="Scheduled", message="Successfully assigned default/x to n")
    assert decisions_of_events([stranger, ClusterEvent(reason="Pulled")]) == ()


def test_events_of_a_namespace_tell_nothing_of_gangs_in_others():
    def forged(namespace):
        annotations = {event_annotations.GANG: "vision/Job/train"}
        metadata = ObjectMeta(namespace=namespace, annotations=annotations)
        subject = InvolvedObject("Pod", "vision", "worker")
        return ClusterEvent(metadata=metadata, involved_object=subject, reason="Preempted")

    assert len(decisions_of_events([forged("vision")])) == 1
    assert decisions_of_events([forged("ml"), forged("")]) == ()


def test_what_events_no_longer_tell_is_taken_from_the_cluster():
    view = view_of(world({"n1": 16}, gang("train", pods=2, gpus=8, node="n1")).snapshot(60.0))
    [running] = view.snapshot.gangs
    [told] = DecisionHistory((), view.snapshot, view.plan).about(running)
    assert "not written yet" in told.message, "it may have started a moment ago"
    assert (told.kind, told.nodes, told.message) == (DecisionKind.PLACED, ("n1",), EVENTS_MISSING)
    record = EvictionRecord("default/Job/gone", 30.0, 3)
    share = QueueShare("team", {}, {}, {}, {}, {}, 0, evictions=(record,))
    [told] = DecisionHistory((), view.snapshot, Plan(queues=(share,))).about("default/Job/gone")
    assert (told.kind, told.time) == (DecisionKind.EVICTED, 30.0)
    assert told.message == f"3 pods were evicted; {EVENTS_MISSING}"


def test_only_what_is_newer_and_concerns_the_gang(narrator, recorder):
    evict(narrator, 0)
    recorder.now = 60.0
    place(narrator, 0)
    view = view_of(world({"n1": 1}).snapshot(60.0))
    told = DecisionHistory(decisions_of_events(recorder), view.snapshot, view.plan)
    assert [each.kind for each in told.about("default/Job/other")] == [DecisionKind.EVICTED]
    assert [each.kind for each in told.about(KEY)] == [DecisionKind.EVICTED, DecisionKind.PLACED]
    assert [each.kind for each in told.about(KEY, since=30.0)] == [DecisionKind.PLACED]
    assert told.about("default/Job/missing") == ()
