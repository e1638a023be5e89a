"""Why does it wait, and what would help? The whole explanation of a cluster that was read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kai_py.config import Configuration
from kai_py.observe.explanation import (
    Explainer,
    Explanation,
    Subject,
    asked_claim,
    gang_keys,
    gone,
    key_of_gone,
)
from kai_py.observe.told_events import Told, ToldEvent, told_decisions
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
    keys = list(gang_keys(snapshot, plan, subject, name))
    claim, explainer = asked_claim(snapshot, subject, name), Explainer(snapshot, plan)
    told = Told(told_decisions(events), snapshot, plan)
    found = [
        replace(each, claim=claim, history=told.about(key, since))
        for key in keys
        if (each := explainer.explain(key)) is not None
    ]
    if not found and (key := key_of_gone(subject, name, told.decisions)):
        return [gone(key, told.about(key, since))]
    waits = {unplaced.gang for unplaced in plan.unplaced}
    advised = [key for key in keys if key in waits][:MOST_ADVISED] if wants_suggestions else []
    if not advised:
        return found
    without = present.settled()
    answers = {key: suggest(documents, present, without, key, may_try) for key in advised}
    return [replace(each, suggestions=answers.get(each.gang, ())) for each in found]
