"""Schedules that once failed: what they found stays mended, and the harness still would find it."""

from pathlib import Path
from unittest import mock

import pytest

from kai_py import scheduler
from kai_py.commit import pod_state
from kai_py.commit.maintenance import UnseenBindings
from kai_py.process_settings import commit_settings
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.watch.client import Client
from kai_py.watch.freshness import Freshness
from tests.fault_simulation.schedule import read_schedule
from tests.fault_simulation.simulation import simulate
from tests.support.records import replace

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_a_schedule_found_stays_mended(path):
    schedule = read_schedule(path)
    outcome = simulate(schedule)
    assert outcome.findings == ()
    assert outcome.counts["fault"] == len(schedule.faults), "a fault has nothing to strike"


@pytest.mark.slow
def test_errors_taken_for_proof_are_found():
    """The harness finds pods stripped of their devices where an error counts as a deletion."""
    with mock.patch.object(pod_state, "is_absent", return_value=True):
        assert_found("lost-answers-then-403")


@pytest.mark.slow
def test_a_late_watch_taken_for_proof_is_found():
    """It finds them too where recovery neither asks the API nor knows how old its view is.

    Nor may it know what it has just bound, nor wait until a silent watch is read again.
    """
    unused = mock.PropertyMock(return_value=True)

    def impatient(configuration):
        return replace(commit_settings(configuration), claim_grace=30.0)

    with (
        mock.patch.object(pod_state.PodReading, "proves_unused", unused),
        mock.patch.object(SnapshotBuilder, "assumed_pods", return_value=frozenset()),
        mock.patch.object(scheduler, "commit_settings", impatient),
        mock.patch.object(Freshness, "catch_up", return_value=""),
        mock.patch.object(Freshness, "behind", return_value=[]),
    ):
        assert_found("late-pod-watch")


def test_a_late_binding_is_found():
    """It finds a pod without devices where bindings hold for any version of their pod."""
    bind = Client.bind

    async def bind_any(client, **asked):
        await bind(client, **asked | {"version": ""})

    with mock.patch.object(Client, "bind", bind_any):
        assert_found("late-binding")


@pytest.mark.slow
def test_a_page_taken_for_an_answer_is_found():
    """It finds pods that wait for ever where any answer to a binding says that it was made.

    Nor may it ask later for bindings that the watch never shows.
    """

    async def act(client, call):
        await client.transport.send(call)

    async def ask_for_none(*_):
        pass

    with (
        mock.patch.object(Client, "_act", act),
        mock.patch.object(UnseenBindings, "run_once", ask_for_none),
    ):
        assert_found("binding-answered-by-a-page", "is not finished: Pending on no node")


def assert_found(name, finding="its claim is not"):
    outcome = simulate(read_schedule(Path(__file__).parent / "kept" / f"{name}.json"))
    assert outcome.findings
    assert finding in outcome.findings[0]
