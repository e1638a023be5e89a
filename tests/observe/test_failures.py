"""What is done for one object ends neither what is done for others nor the process."""

import asyncio
import logging

import pytest

from kai_py.grouping.gang import Owner
from kai_py.observe.failures import MAX_REMEMBERED, REPEAT_SECONDS, Failures
from kai_py.snapshot.quarantine import InvalidObject


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def counted():
    return []


@pytest.fixture
def failures(now, counted):
    return Failures(counted.append, lambda: now[0])


def fail(failures, part="events", subject="gang"):
    with failures.contained(part, subject):
        raise KeyError("status")


def test_a_failure_is_counted_each_time_and_logged_once_with_its_trace(failures, counted, caplog):
    for _ in range(5):
        fail(failures)
    assert counted == ["events"] * 5
    (record,) = caplog.records
    assert record.getMessage() == "events failed for gang; the rest goes on"
    assert "KeyError: 'status'" in caplog.text


def test_another_subject_and_a_later_failure_are_logged_again(failures, caplog, now):
    fail(failures)
    fail(failures, subject="other")
    now[0] += REPEAT_SECONDS
    fail(failures)
    assert len(caplog.records) == 3


def test_what_is_remembered_is_bounded(failures, caplog):
    caplog.set_level(logging.CRITICAL)
    for number in range(MAX_REMEMBERED + 10):
        fail(failures, subject=str(number))
    assert len(failures._logged) <= MAX_REMEMBERED


def test_an_invalid_object_is_named(failures, caplog):
    pod = InvalidObject(Owner("v1", "Pod", "tenant", "bad", "u"), "cannot be processed")
    failures.report_invalid(pod, ValueError("x"))
    assert "snapshot failed for Pod tenant/bad" in caplog.text


async def test_a_lasting_task_starts_again(failures, counted, monkeypatch):
    monkeypatch.setattr("kai_py.observe.failures.RESTART_SECONDS", 0.0)
    runs = []

    async def run():
        runs.append(None)
        if len(runs) < 3:
            raise ValueError("one object too many")

    await failures.supervise("events", run)
    assert len(runs) == 3
    assert counted == ["events", "events"]


async def test_a_cancelled_task_ends(failures):
    task = asyncio.create_task(failures.supervise("events", lambda: asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
