"""The reasons are told before the search for suggestions, and each suggestion as it is found."""

import pytest

from kai_py.api.choices import Subject
from kai_py.config import Configuration
from kai_py.simulate.explained_cluster import SearchReport, explain_cluster
from tests.simulate.clusters import job, queue, simulated


def told(may_try):
    """What a search tells in which order, and its answer; ``may_try``: before each simulation."""
    cluster = simulated(queue("team", 8), job("six", 9, "team"))
    cluster.settle(60)
    events = []

    def has_time():
        events.append("simulates")
        return may_try()

    report = SearchReport(
        lambda found: events.append([each.message for each in found]),
        lambda _gang, suggestion: events.append(suggestion.text),
    )
    [found] = explain_cluster(
        cluster.documents(),
        Configuration(),
        now=cluster.clock.now(),
        subject=Subject.JOB,
        name="default/six",
        has_time=has_time,
        report=report,
    )
    return events, found


@pytest.mark.slow
def test_the_reason_comes_first_and_each_suggestion_before_the_next_is_simulated():
    events, found = told(lambda: True)
    assert events[0] == [found.message]
    texts = [each for each in events if isinstance(each, str) and each != "simulates"]
    assert texts == [each.text for each in found.suggestions]
    assert len(texts) > 1
    between = events[events.index(texts[0]) : events.index(texts[1])]
    assert "simulates" in between


@pytest.mark.slow
def test_what_was_found_before_the_deadline_is_kept():
    every, whole = told(lambda: True)
    left = [True] * every[: every.index(whole.suggestions[0].text)].count("simulates")
    events, found = told(lambda: bool(left) and left.pop())
    assert found.is_search_unfinished
    assert 0 < len(found.suggestions) < len(whole.suggestions)
    assert events[0] == [found.message]
