import asyncio
import contextlib
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kai_py.api.event_annotations import PREEMPTOR
from kai_py.api.references import ClaimRef, PodRef
from kai_py.api.workload_names import queue_list
from kai_py.commit import events
from kai_py.commit.binding import BindingOutcome, BindingResult
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.events import Event, EventRecorder, EventType, TokenBucket
from kai_py.commit.eviction import EvictionOutcome, EvictionResult
from kai_py.commit.namespace_texts import NamespaceTexts
from kai_py.commit.statuses.pod import PendingPodStatus
from kai_py.commit.transaction import GangOutcome
from kai_py.embedded.resources import EVENTS
from kai_py.grouping.gang import Owner
from kai_py.plan.observations import CapacityHold
from kai_py.plan.plan import Action, Eviction, Plan, Stage, Unplaced
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import JOB, NO_ROLE, QUICK, Cluster, gang_with_claims, refuse
from tests.support.records import replace as replaced
from tests.support.worlds import gang as waiting

FREE = TokenBucket(1e6, 1000)


@pytest.fixture
def cluster():
    cluster = Cluster()
    cluster.dropped = 0
    return cluster


@contextlib.asynccontextmanager
async def recording(cluster, bucket=FREE, *, drain=True, busy=lambda: False):
    def drop():
        cluster.dropped += 1

    recorder = EventRecorder(
        cluster.access().client,
        bucket,
        reporter="kai-scheduler",
        instance="host-1",
        on_dropped=drop,
        retry=QUICK,
        busy=busy,
    )
    running = asyncio.create_task(recorder.run())
    try:
        yield recorder
        if drain:
            await recorder.drain(5.0)
    finally:
        running.cancel()


def written(cluster):
    return [
        (
            e["involvedObject"]["kind"],
            e["involvedObject"]["name"],
            e["type"],
            e["reason"],
            e["message"],
        )
        for e in sorted(
            cluster.api.list(EVENTS), key=lambda e: int(e["metadata"]["resourceVersion"])
        )
    ]


def event(note="why", regarding=JOB):
    return Event(regarding, "FailedScheduling", "Scheduling", note, EventType.WARNING)


async def test_an_event_says_what_happened_to_what(cluster):
    async with recording(cluster) as recorder:
        recorder.record(event())
    assert written(cluster) == [("Job", "train", "Warning", "FailedScheduling", "why")]
    (document,) = cluster.api.list(EVENTS)
    assert document["involvedObject"]["uid"] == "job-uid"
    assert document["reportingComponent"] == "kai-scheduler"
    assert document["metadata"]["namespace"] == JOB.namespace


async def test_a_list_of_other_queues_alone_repeats_no_event(cluster):
    problem = "no queue is named; set scheduling.kai.io/queue-name to an existing queue."
    lists = [["a"], ["a", "b.c"], [f"q{number}" for number in range(9)]]
    notes = [problem, *(f"{problem} {queue_list('ml', names)} Next." for names in lists)]
    async with recording(cluster) as recorder:
        for note in (notes[1], *notes[1:], "other", notes[0], f"{problem} {queue_list('x', 'y')}"):
            recorder.record(event(note))
    assert [told[4] for told in written(cluster)] == [notes[1], "other", problem]


async def test_the_same_note_is_told_once_until_another_came(cluster):
    async with recording(cluster) as recorder:
        for note in ("a", "a", "b", "b", "a"):
            recorder.record(event(note))
    assert [note for *_, note in written(cluster)] == ["a", "b", "a"]


async def test_long_notes_are_cut_to_what_the_api_allows(cluster):
    async with recording(cluster) as recorder:
        recorder.record(event("ü" * 2000))
    assert len(written(cluster)[0][-1].encode()) <= 1024


async def test_cluster_scoped_objects_have_their_events_in_default(cluster):
    cluster.api.create(cluster.api.registry.named("namespaces"), {"metadata": {"name": "default"}})
    queue = Owner("scheduling.kai.io/v1alpha1", "Queue", "", "queue-a", "q-uid")
    async with recording(cluster) as recorder:
        recorder.record(event(regarding=queue))
    (document,) = cluster.api.list(EVENTS)
    assert document["metadata"]["namespace"] == "default"
    assert document["involvedObject"]["name"] == "queue-a"


async def test_a_refused_event_is_counted_and_stops_nothing(cluster):
    cluster.fail_once("create", "Event", refuse(403, "Forbidden"))
    async with recording(cluster) as recorder:
        recorder.record(event("a"))
        recorder.record(event("b"))
    assert [note for *_, note in written(cluster)] == ["b"]
    assert cluster.dropped == 1


async def test_an_event_that_an_outage_has_lost_is_written_when_it_is_reported_again(cluster):
    cluster.fail_once("create", "Event", refuse(503, "ServiceUnavailable"))
    async with recording(cluster) as recorder:
        for _ in range(3):
            recorder.record(event("a"))
            await recorder.drain(5.0)
    assert [note for *_, note in written(cluster)] == ["a"]
    assert cluster.dropped == 1


async def test_events_that_did_not_fit_are_taken_once_there_is_capacity(cluster, monkeypatch):
    monkeypatch.setattr(events, "MAX_QUEUED", 2)
    notes = {f"note-{number}" for number in range(4)}
    async with recording(cluster) as recorder:
        for _ in range(2):
            for note in sorted(notes):
                recorder.record(event(note, replace(JOB, uid=note)))
            await recorder.drain(5.0)
    assert {note for *_, note in written(cluster)} == notes
    assert cluster.dropped == 2


async def test_a_long_name_is_cut_to_a_valid_one(cluster):
    async with recording(cluster) as recorder:
        recorder.record(event(regarding=replace(JOB, name="a" * 198 + "--" + "b" * 40)))
    assert len(written(cluster)) == 1


async def test_a_missing_role_is_warned_of_once_until_events_are_written_again(cluster, caplog):
    def lack():
        cluster.fail_once("create", "Event", refuse(403, "Forbidden", message=NO_ROLE))

    async with recording(cluster) as recorder:
        for number in range(2):
            lack()
            recorder.record(event(f"lost {number}"))
            await recorder.drain(5.0)
        recorder.record(event("written"))
        await recorder.drain(5.0)
        lack()
        recorder.record(event("lost again"))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 2
    assert "permission denied" in told[0]


def test_a_bucket_gives_its_burst_and_then_its_rate():
    bucket = TokenBucket(rate=10.0, burst=3)
    delays = [bucket.delay(100.0) for _ in range(6)]
    assert delays == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2, 0.3])
    assert bucket.delay(200.0) == 0.0


async def test_a_storm_of_events_does_not_delay_bindings(cluster):
    gang = gang_with_claims(cluster, 4)
    async with recording(cluster, TokenBucket(rate=1e-3, burst=1), drain=False) as recorder:
        for number in range(5000):
            recorder.record(event(str(number)))
        committer = cluster.committer(RecordingAssumeCache())
        committer.commit(Plan(placements=(gang,)), now=0.0)
        assert await committer.drain(5.0)
        assert len(cluster.nodes()) == 4


class Told(list):
    def record(self, event):
        self.append((event.regarding.kind, event.regarding.name, event.reason))


async def test_bindings_come_before_events(cluster, monkeypatch):
    monkeypatch.setattr(events, "DEFER_POLL_SECONDS", 0.001)
    binding = asyncio.Event()
    async with recording(cluster, busy=lambda: not binding.is_set()) as recorder:
        recorder.record(event())
        await asyncio.sleep(0.05)
        assert written(cluster) == []
        binding.set()
        await recorder.drain(5.0)
        assert len(written(cluster)) == 1


async def test_events_do_not_wait_for_ever_for_bindings(cluster, monkeypatch):
    monkeypatch.setattr(events, "DEFER_POLL_SECONDS", 0.001)
    monkeypatch.setattr(events, "DEFER_SECONDS", 0.02)
    async with recording(cluster, busy=lambda: True) as recorder:
        for number in range(5):
            recorder.record(event(str(number)))
        await recorder.drain(5.0)
        assert len(written(cluster)) == 5


def test_a_bound_gang_and_its_failures_are_told(cluster):
    gang = gang_with_claims(cluster, 2)
    told = Told()
    bindings = tuple(
        BindingResult(p.pod, p.node, outcome, "because")
        for p, outcome in zip(gang.pods, (BindingOutcome.BOUND, BindingOutcome.FAILED), strict=True)
    )
    EventWriter(told, lambda _q: None).report_outcome(GangOutcome(gang, bindings))
    assert told == [("Pod", "worker-0", "Scheduled"), ("Pod", "worker-1", "FailedBinding")]
    told.clear()
    EventWriter(told, lambda _q: None).report_outcome(GangOutcome(gang, reason="a claim was lost"))
    assert told == [("Job", "train", "FailedBinding")]
    told.clear()
    gone = (replaced(bindings[0], outcome=BindingOutcome.DELETED),)
    EventWriter(told, lambda _q: None).report_outcome(GangOutcome(gang, gone, "a claim was lost"))
    assert told == [], "its pods were deleted, and their claims with them"


def test_capacity_that_is_held_for_pods_to_come_is_reported_to_their_workload():
    told = Told()
    writer = EventWriter(told, lambda _q: None)
    writer.report_hold(CapacityHold("default/Job/train", JOB, "held"))
    writer.report_hold(CapacityHold("default/Job/train", JOB, "released", is_over=True))
    assert told == [("Job", "train", "CapacityHeld"), ("Job", "train", "CapacityReleased")]


def test_an_eviction_is_told_to_pod_owner_and_both_queues(cluster):
    eviction = Eviction(
        pod=cluster.add_pod("victim"),
        node="node-a",
        gang="team-a/Job/train",
        owner=JOB,
        queue="queue-a",
        action=Action.RECLAIM,
        preemptor="team-b/Job/big",
        preemptor_queue="queue-b",
        reason="queue-a uses more than its fair share.",
    )
    told = Told()
    narrator = EventWriter(
        told, lambda name: Owner("scheduling.kai.io/v1alpha1", "Queue", "", name, name)
    )
    narrator.report_eviction(EvictionResult(eviction, EvictionOutcome.EVICTED))
    assert told == [
        ("Pod", "victim", "Preempted"),
        ("Job", "train", "Preempted"),
        ("Queue", "queue-a", "Reclaimed"),
        ("Queue", "queue-b", "Reclaiming"),
    ]
    told.clear()
    same = replace(eviction, preemptor_queue="queue-a")
    narrator.report_eviction(EvictionResult(same, EvictionOutcome.EVICTED))
    assert [kind for kind, _, _ in told] == ["Pod", "Job"]
    told.clear()
    narrator.report_eviction(EvictionResult(eviction, EvictionOutcome.BLOCKED, "budget"))
    assert told == [("Pod", "victim", "EvictionBlocked")]
    told.clear()
    narrator.report_eviction(EvictionResult(eviction, EvictionOutcome.FAILED, "403"))
    suspended = replace(eviction, suspend=True)
    narrator.report_eviction(EvictionResult(suspended, EvictionOutcome.FAILED, "403"))
    assert told == [("Pod", "victim", "FailedEviction"), ("Job", "train", "FailedEviction")]


def test_events_name_no_workloads_of_other_namespaces():
    eviction = Eviction(
        pod=PodRef("team-a", "victim", "u"),
        node="node-a",
        gang="team-a/Job/train",
        owner=replaced(JOB, namespace="team-a"),
        queue="queue-a",
        action=Action.RECLAIM,
        preemptor="team-b/Job/secret",
        preemptor_queue="queue-b",
        reason="reclaimed by workload team-b/secret: queue-b is below its share",
    )
    events, known, texts = [], [], NamespaceTexts()
    for team, queue, name in (("team-a", "queue-a", "train"), ("team-b", "queue-b", "secret")):
        each = waiting(name, queue=queue)
        owner = replaced(each.owner, namespace=team)
        known.append(replaced(each, key=f"{team}/Job/{name}", owner=owner))
    texts.update(known, (), {})
    recorder = SimpleNamespace(record=events.append)
    writer = EventWriter(
        recorder,
        lambda name: Owner("scheduling.kai.io/v1alpha1", "Queue", "", name, name),
        readable=texts.readable,
    )
    writer.report_eviction(EvictionResult(eviction, EvictionOutcome.EVICTED))
    pod, owner, loser, winner = events
    assert pod.note == "reclaimed by workload of queue queue-b: queue-b is below its share"
    assert PREEMPTOR not in pod.details
    assert "secret" not in f"{owner} {loser} {winner}"
    assert loser.note.startswith(
        "Gang of queue queue-a was evicted for a workload of queue queue-b"
    )
    writer.report_eviction(
        EvictionResult(replace(eviction, preemptor="team-a/Job/other"), EvictionOutcome.EVICTED)
    )
    assert events[4].details[PREEMPTOR] == "team-a/Job/other"


def test_a_group_of_kai_hears_what_its_users_know():
    group = Owner("scheduling.run.ai/v2alpha2", "PodGroup", "team-a", "g", "uid")
    told = []
    recorder = SimpleNamespace(record=lambda event: told.append((event.reason, event.type.value)))
    narrator = EventWriter(recorder, lambda _name: None)
    waits = Unplaced("key", group, "q", Stage.BELOW_MIN_MEMBER, "Job is not ready", ())
    narrator.report_pending(waits)
    narrator.report_pending(replace(waits, stage=Stage.RESOURCES))
    eviction = Eviction(
        pod=PodRef("team-a", "p", "u"),
        node="n",
        gang="key",
        owner=group,
        queue="q",
        action=Action.PREEMPT,
        preemptor="team-a/Pod/w",
        preemptor_queue="q",
        reason="Pod team-a/p was preempted by higher priority workload team-a/w",
    )
    narrator.report_eviction(EvictionResult(eviction, EvictionOutcome.EVICTED))
    assert told == [
        ("NotReady", "Normal"),
        ("Unschedulable", "Normal"),
        ("Preempted", "Warning"),
        ("Evict", "Normal"),
    ]


def test_claims_without_devices_are_told_what_is_lacking():
    told = Told()
    claim = ClaimRef("team-a", "train-gpu", "uid")
    narrator = EventWriter(told, lambda _name: None, lambda _pod: (claim,))
    waits = PendingPodStatus(PodRef("team-a", "train-0", "u"), "Unschedulable", "no device matches")
    narrator.report_transition(waits)
    assert told == [("Pod", "train-0", "FailedScheduling")]
    told.clear()
    narrator.report_transition(replace(waits, lacks_devices=True))
    assert told == [
        ("Pod", "train-0", "FailedScheduling"),
        ("ResourceClaim", "train-gpu", "FailedAllocation"),
    ]
