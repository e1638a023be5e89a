"""Why does it wait, and what would help? The whole explanation of a cluster that was read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from kai_py.config import Configuration
from kai_py.observe.event_history import Told, ToldEvent, told_decisions
from kai_py.observe.explanation import Explanation, explained
from kai_py.observe.subject import Subject
from kai_py.simulate.objects import Document
from kai_py.simulate.suggestions import suggest
from kai_py.simulate.what_if import Present

MOST_ADVISED = 3
"""Gangs of one answer for which suggestions are looked for, those that come first."""


def advise(
    documents: Sequence[Document],
    configuration: Configuration,
    *,
    now: float,
    subject: Subject,
    name: str,
    wants_suggestions: bool = True,
    may_try: Callable[[], bool] = lambda: True,
    events: Iterable[ToldEvent] = (),
    since: float = 0.0,
) -> list[Explanation]:
    """Explain the gangs that ``name`` stands for, with suggestions for those that wait.

    ``events`` tell what was decided before, of which what was after ``since`` is told again.
    ``may_try`` is asked before every trial; once it says no, what was found so far is all.
    """
    present = Present(documents, configuration, now)
    snapshot, plan = present.snapshot, present.plan()
    told = Told(told_decisions(events), snapshot, plan)
    found = explained(
        snapshot,
        plan,
        subject,
        name,
        decisions=told.decisions,
        history=partial(told.about, since=since),
    )
    waits = {unplaced.gang for unplaced in plan.unplaced}
    waiting = [each.gang for each in found if each.gang in waits]
    advised = waiting[:MOST_ADVISED] if wants_suggestions else []
    if not advised:
        return found
    without = present.settled()
    answers = {key: suggest(documents, present, without, key, may_try) for key in advised}
    return [replace(each, suggestions=answers.get(each.gang, ())) for each in found]
