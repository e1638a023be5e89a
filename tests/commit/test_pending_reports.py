"""Gangs whose pods or claims are just being created are reported only if that lasts."""

import pytest

from kai_py.api.references import PodRef
from kai_py.commit.reports import (
    CREATED_WITHIN_SECONDS,
    MAX_REPORT_INTERVAL,
    PODS_PER_SECOND,
    PendingReports,
)
from kai_py.plan.plan import Plan, Shortage, Stage, Unplaced
from tests.commit.cluster import JOB
from tests.support.records import replace

INTERVAL = 10.0
CREATED = [Stage.BELOW_MIN_MEMBER, Stage.CLAIMS_NOT_READY]


@pytest.fixture
def wakes():
    return []


@pytest.fixture
def reports(wakes):
    return PendingReports(wakes.append, INTERVAL)


def plan(**stages):
    return Plan(unplaced=tuple(Unplaced(k, JOB, "q", s, "why", ()) for k, s in stages.items()))


def due(reports, now, **stages):
    return [each.gang for each in reports.due(plan(**stages), now).unplaced]


@pytest.mark.parametrize("stage", CREATED)
def test_a_gang_that_is_being_created_is_reported_once_that_has_lasted(reports, wakes, stage):
    assert due(reports, 10.0, train=stage, full=Stage.RESOURCES) == ["full"]
    assert wakes == [CREATED_WITHIN_SECONDS]
    assert due(reports, 10.0 + CREATED_WITHIN_SECONDS, train=stage) == ["train"]
    assert wakes == [CREATED_WITHIN_SECONDS]


def test_missing_pods_and_then_missing_claims_are_one_wait(reports):
    assert due(reports, 0.0, train=Stage.BELOW_MIN_MEMBER) == []
    assert due(reports, 3.0, train=Stage.CLAIMS_NOT_READY) == []
    assert due(reports, 5.0, train=Stage.CLAIMS_NOT_READY) == ["train"]


def test_a_gang_that_has_called_for_nodes_takes_it_back_at_once(reports):
    assert due(reports, 0.0, train=Stage.RESOURCES) == ["train"]
    assert due(reports, 1.0, train=Stage.BELOW_MIN_MEMBER) == ["train"]


def test_a_gang_that_loses_a_pod_later_waits_again(reports):
    assert due(reports, 0.0, train=Stage.BELOW_MIN_MEMBER) == []
    assert due(reports, 9.0) == []
    assert due(reports, 10.0, train=Stage.BELOW_MIN_MEMBER) == []


def says(reports, now, message, stage=Stage.QUEUE_MAX, *, owner=JOB, pods=()):
    unplaced = Unplaced("train", owner, "q", stage, message, pods)
    return [each.message for each in reports.due(Plan(unplaced=(unplaced,)), now).unplaced]


def test_a_message_that_changes_with_every_cycle_is_reported_once_an_interval(reports, wakes):
    told = [says(reports, float(now), f"{40 - now} pods exist.") for now in range(12)]
    assert told == [["40 pods exist."]] * 10 + [["30 pods exist."]] * 2
    assert wakes == [INTERVAL - now for now in range(1, 10)] + [INTERVAL - 1]


def test_a_message_of_another_stage_is_reported_at_once(reports):
    assert says(reports, 0.0, "the queue is full.") == ["the queue is full."]
    assert says(reports, 1.0, "39 pods exist.", Stage.BELOW_MIN_MEMBER) == ["39 pods exist."]


def test_a_message_that_changes_after_long_is_reported_at_once(reports, wakes):
    for now in (0.0, 60.0):
        assert says(reports, now, "20 nodes are full.") == ["20 nodes are full."]
    assert says(reports, 61.0, "21 nodes are full.") == ["21 nodes are full."]
    assert wakes == []


SHORT, FULL = "2 of 8 nodes fit.", "the queue is full."
STAGE_OF = {SHORT: Stage.RESOURCES, FULL: Stage.QUEUE_MAX}


def flap(reports, seconds, start=0, **gang):
    """When something else was reported, where the reason alternates every second."""
    changes, last = [], None
    for now in range(start, start + seconds):
        message = (SHORT, FULL)[now % 2]
        (told,) = says(reports, float(now), message, STAGE_OF[message], **gang)
        if told != last:
            changes.append(now)
        last = told
    return changes


def test_stages_that_alternate_are_reported_ever_less_often(reports):
    changes = flap(reports, 3600)
    assert changes[:4] == [0, 1, 12, 33]
    assert len(changes) <= 4 + 3600 / MAX_REPORT_INTERVAL
    assert changes[-1] > 3600 - 2 * MAX_REPORT_INTERVAL, "it goes on"


def test_pods_of_a_large_gang_are_written_at_the_same_pace_as_those_of_a_small_one(reports):
    worker = PodRef("default", "worker", "uid")
    writes = len(flap(reports, 3600, pods=(worker,) * 3000)) * 3000
    assert writes / 3600 <= PODS_PER_SECOND + 1


def test_what_alternated_is_reported_as_it_is_when_it_stays(reports, wakes):
    flap(reports, 100)
    assert says(reports, 100.0, FULL) == [SHORT]
    at = 100.0 + wakes[-1]
    assert says(reports, at, FULL) == [FULL]
    later = at + 2 * MAX_REPORT_INTERVAL
    assert says(reports, later, SHORT, Stage.RESOURCES) == [SHORT]
    assert says(reports, later + INTERVAL, FULL) == [FULL], "as at first"


def test_a_gang_that_waits_every_other_second_is_no_new_one_each_time(reports):
    told = []
    for now in range(60):
        message = f"{now} nodes fit."
        told += says(reports, float(now), message) if now % 2 else due(reports, float(now))
    assert len(set(told)) <= 1 + 60 / INTERVAL


def test_a_gang_created_again_under_its_name_is_reported_at_once(reports):
    flap(reports, 60)
    assert says(reports, 60.0, "1 pod exists.", owner=replace(JOB, uid="new")) == ["1 pod exists."]


def test_gangs_that_are_gone_are_forgotten(reports):
    for number in range(100):
        due(reports, 10.0 * number, **{f"gang-{number}": Stage.RESOURCES})
    assert len(reports._reported) < 5


def test_what_is_lacking_is_that_of_the_message(reports):
    def shortage_of(count, now):
        causes = (f"{count} Insufficient cpu",)
        shortage = Shortage(found=0, needed=1, causes=causes)
        lacks = Unplaced("a", JOB, "q", Stage.RESOURCES, causes[0], (), shortage=shortage)
        [reported] = reports.due(Plan(unplaced=(lacks,)), now).unplaced
        assert reported.shortage.causes == (reported.message,)
        return reported.message

    told = [shortage_of(count, now) for now, count in enumerate((3, 4, 5))]
    assert told == ["3 Insufficient cpu"] * 3
    assert shortage_of(6, INTERVAL) == "6 Insufficient cpu"
