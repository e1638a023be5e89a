"""Gangs whose pods or claims are just being created are reported only if that lasts."""

import pytest

from kai_py.commit.reports import CREATED_WITHIN_SECONDS, PendingReports
from kai_py.plan.plan import Plan, Stage, Unplaced
from tests.commit.cluster import JOB

CREATED = [Stage.BELOW_MIN_MEMBER, Stage.CLAIMS_NOT_READY]


@pytest.fixture
def wakes():
    return []


@pytest.fixture
def reports(wakes):
    return PendingReports(wakes.append)


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
