"""Gangs whose pods or claims are just being created are reported only if that lasts."""

import pytest

from kai_py.commit.reports import CREATED_WITHIN_SECONDS, PendingReports
from kai_py.plan.plan import Plan, Stage, Unplaced
from tests.commit.cluster import JOB

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


def says(reports, now, message, stage=Stage.QUEUE_MAX):
    unplaced = Unplaced("train", JOB, "q", stage, message, ())
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
