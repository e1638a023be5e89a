"""Why does it wait, and what would help? The whole explanation of a cluster that was read."""

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
"""Gangs of one answer for which suggestions are looked for, those that come first."""


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
    """Explain the gangs that ``name`` stands for, with suggestions for those that wait.

    ``events`` tell what was decided before, of which what was after ``since`` is told again.
    ``may_try`` is asked before every trial; once it says no, what was found so far is all.
    """
    present = LoadedCluster(documents, configuration, now)
    snapshot, plan = present.snapshot, present.plan()
    told = DecisionHistory(decisions_of_events(events), snapshot, plan)
    found = explain_subject(
        snapshot,
        plan,
        subject,
        name,
        decisions=told.decisions,
        history=partial(told.about, since=since),
    )
    waits = {unplaced.gang for unplaced in plan.unplaced}
    waiting = [each.gang for each in found if each.gang in waits]
    advised = waiting[:MAX_ADVISED] if with_suggestions else []
    if not advised:
        return found
    without = present.settled()
    answers = {key: suggest(documents, present, without, key, has_time) for key in advised}
    return [replace(each, suggestions=answers.get(each.gang, ())) for each in found]
