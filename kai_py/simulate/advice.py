"""Explanations with suggestions, for a cluster that was read as a whole."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from kai_py.config import Configuration
from kai_py.observe.event_history import DecisionHistory, SchedulerEvent, decisions_of_events
from kai_py.observe.explanation import Explanation, explain_subject
from kai_py.observe.subject import Subject
from kai_py.simulate.objects import Document
from kai_py.simulate.suggestions import suggest
from kai_py.simulate.what_if import LoadedCluster

MAX_ADVISED = 3
"""Most gangs of one answer for which suggestions are searched, the first ones."""


def explain_cluster(
    documents: Sequence[Document],
    configuration: Configuration,
    *,
    now: float,
    subject: Subject,
    name: str,
    with_suggestions: bool = True,
    has_time: Callable[[], bool] = lambda: True,
    events: Iterable[SchedulerEvent] = (),
    since: float = 0.0,
) -> list[Explanation]:
    """Explain the gangs that ``name`` stands for, with suggestions for pending ones.

    ``events`` report earlier decisions; those after ``since`` are included. ``has_time`` is called
    before every simulation; once it returns False the search ends with the suggestions found so
    far.
    """
    cluster = LoadedCluster(documents, configuration, now)
    snapshot, plan = cluster.snapshot, cluster.plan()
    history = DecisionHistory(decisions_of_events(events), snapshot, plan)
    found = explain_subject(
        snapshot,
        plan,
        subject,
        name,
        decisions=history.decisions,
        history=partial(history.about, since=since),
    )
    pending = {unplaced.gang for unplaced in plan.unplaced}
    pending_keys = [each.gang for each in found if each.gang in pending]
    advised = pending_keys[:MAX_ADVISED] if with_suggestions else []
    if not advised:
        return found
    baseline = cluster.settled()
    suggestions = {key: suggest(documents, cluster, baseline, key, has_time) for key in advised}
    return [replace(each, suggestions=suggestions.get(each.gang, ())) for each in found]
