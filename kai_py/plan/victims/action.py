"""One turn for every gang that waits and may make others leave, in the order of ``gang_order``.

    while a gang is left in the line:
        it asks for its next pods; the action says who could leave for them, and judges
        search for victims (``victims``), within the probes that are left, unless the answer is
        known since the same was asked last (``vain_searches``), or an empty cluster gives no hope
        a gang that found no room spares gangs of the same queue and shape, of at least the same
        size and at most the same priority, the search, until somebody left

A gang has one turn per action. It has none before its preemption delay has passed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kai_py.grouping.terms import Near
from kai_py.plan.explain.reasons import Obstacle
from kai_py.plan.gang_queue import GangLine
from kai_py.plan.placement.fit import by_shape, is_no_easier
from kai_py.plan.placement.next_pods import Ask, next_ask
from kai_py.plan.plan import Action, Stage
from kai_py.plan.quota_check import kept_from
from kai_py.plan.search_cache import Answer, Book, Question
from kai_py.plan.session import CycleState, deciding_shape
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import Outcome, VictimSearch
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.gang_order import in_turns
from kai_py.policy.limits import check_deserved
from kai_py.policy.min_runtime import preemption_delay
from kai_py.policy.pod_rules import Neighbourhood
from kai_py.snapshot.gangs import Gang

Plea = Callable[[Gang, Ask], tuple[VictimSearch, Iterable[VictimUnit]] | None]
"""The search for an ask and the units to offer it; None where the action can't help."""

Follow = Callable[[GangLine, Gang], None]
"""Serves gangs that come after one that was placed, as far as they need no search."""

Who = tuple[str, bool, bool, tuple[Near, ...]]
"""Queue, whether the pods and whether all of it can be taken back, where it would rather be."""

Hopeless = dict[tuple[Who, int], list[tuple[int, int]]]
"""Who asks, and for which shape: sizes and priorities of asks that found no room."""


@dataclass(frozen=True, slots=True)
class Seeking:
    """What an action brings to its search; ``rests``: one that ran out waits for a leaver."""

    action: Action
    pool: VictimPool
    plea: Plea
    follow: Follow | None = None
    rests: bool = False


def seek_room(state: CycleState, gangs: Iterable[Gang], seeking: Seeking) -> None:
    """Give every pending gang its turn."""
    able = [gang for gang in gangs if _has_a_turn(state, gang)]
    if not able:
        return
    hopeless: Hopeless = {}
    book = state.open_book(seeking.action)
    for group in in_turns(able, state.exhausted):
        _seek(state, GangLine(state, group), seeking, book, hopeless)


def _seek(
    state: CycleState, line: GangLine, seeking: Seeking, book: Book, hopeless: Hopeless
) -> None:
    while (gang := line.pop()) is not None:
        ask = next_ask(gang, state.statement)
        if ask is None or _may_never_hold(state, gang, ask):
            continue
        if kept_from(state, gang, state.ask_cost(gang)) is not None:
            continue
        asked = _asked(state, gang, ask)
        if asked is not None and _is_hopeless(asked, hopeless):
            continue
        question = _question(gang, ask, asked)
        answer = _recalled(state, book, question, gang)
        if answer is None:
            answer = _resting_for_less(state, book, question)
        if answer is None:
            found = _search(state, seeking, gang, ask)
            if isinstance(found, VictimSearch):
                hopeless.clear()
                _follow_up(state, line, seeking.pool, gang, found.taken)
                if seeking.follow is not None and len(found.taken) == len(gang.members) == 1:
                    seeking.follow(line, gang)
                continue
            answer = found
            book.note(question, answer)
        if answer.ran_out:
            _ran_out(state, gang, answer)
        elif asked is not None:
            known = hopeless.setdefault((asked.who, asked.shape), [])
            known.append((asked.size, asked.priority))


def _is_hopeless(asked: "_Asked", hopeless: Hopeless) -> bool:
    """Whether no more, of no lower priority, was asked in vain."""
    known = hopeless.get((asked.who, asked.shape), ())
    return any(asked.size >= size and asked.priority <= most for size, most in known)


def _has_a_turn(state: CycleState, gang: Gang) -> bool:
    delay = preemption_delay(
        gang.created, gang.last_evicted, gang.preemption_delay, state.snapshot.now
    )
    return (
        gang.key not in state.had_their_turn
        and gang.may_preempt
        and delay is None
        and state.precondition(gang) is None
    )


def _may_never_hold(state: CycleState, gang: Gang, ask: Ask) -> bool:
    """Non-preemptible pods above what the queue deserves: nobody's leaving changes that."""
    if gang.can_give_back(ask.members):
        return False
    quota = state.quota
    cost = quota.cost_of(ask.members)
    queue = quota.queues.positions[gang.queue]
    return check_deserved(quota.standing, queue, cost) is not None


def _may_never_fit(state: CycleState, ask: Ask) -> bool:
    """No node has the devices of a claim, or its pods need more domains than there are."""
    devices, snapshot = state.statement.devices, state.snapshot
    for group in by_shape(ask.members):
        shape = group[0].shape
        if shape.needs_devices and not devices.ever_fits(shape):
            return True
        if shape.pod_anti_affinity:
            mask = state.placer.shapes.fits.statics.of(shape, snapshot.nodes).mask
            empty = Neighbourhood(snapshot.nodes, (), snapshot.namespaces)
            if len(group) > empty.most_apart(shape, mask):
                return True
    return False


class _Asked(NamedTuple):
    """What decides how a search for pods of one shape ends."""

    who: Who
    shape: int
    priority: int
    size: int


def _asked(state: CycleState, gang: Gang, ask: Ask) -> _Asked | None:
    """What decides how the search for ``gang`` ends; None where more does than can be compared."""
    shape = deciding_shape(state, gang, ask)
    if shape is None:
        return None
    who = gang.queue, gang.can_give_back(ask.members), gang.preemptible, gang.near
    return _Asked(who, shape, gang.priority, len(ask.members))


def _question(gang: Gang, ask: Ask, asked: _Asked | None) -> Question:
    return Question(gang.key, gang) if asked is None else Question(asked, pod=ask.members[0])


def _resting_for_less(state: CycleState, book: Book, question: Question) -> Answer | None:
    """A search that rests though as many pods, or fewer, ask for no more."""
    asked, pod = question.asked, question.pod
    if not isinstance(asked, _Asked) or pod is None:
        return None
    for known, answer in book.resting().items():
        less = known.asked
        if not isinstance(less, _Asked) or known.pod is None:
            continue
        if less.who != asked.who or less.size > asked.size:
            continue
        fits = state.placer.shapes.fits
        if is_no_easier(state.statement, fits, pod.shape, known.pod.shape):
            book.note(question, answer)
            return answer
    return None


def _recalled(state: CycleState, book: Book, question: Question, gang: Gang) -> Answer | None:
    """The answer that is known, its price paid."""
    answer = book.recall(question, _budget(state))
    if answer is not None:
        state.probes -= book.price(question, answer)
        state.spared.withheld.update(answer.withheld)
        if not answer.rests:
            _note_search(state, gang, answer)
    return answer


def _search(state: CycleState, seeking: Seeking, gang: Gang, ask: Ask) -> VictimSearch | Answer:
    """The search that placed the gang, or how it ended."""
    made = None if _may_never_fit(state, ask) else seeking.plea(gang, ask)
    if made is None:
        return Answer()
    (search, offered), budget = made, _budget(state)
    search.probes = budget
    with state.spared.noting() as withheld:
        outcome = search.run(offered)
    used = budget - search.probes
    state.probes -= used
    ran_out = outcome is Outcome.OUT_OF_BUDGET
    rests = ran_out and seeking.rests and budget == state.probes_per_gang
    left = state.statement.later.copy() if rests else None
    answer = Answer(budget, used, ran_out, withheld, left=left)
    _note_search(state, gang, answer)
    return search if outcome is Outcome.PLACED else answer


def _note_search(state: CycleState, gang: Gang, answer: Answer) -> None:
    """Who ran out comes after all others in the next cycle."""
    if answer.budget:
        state.searched[gang.key] = answer.ran_out or state.searched.get(gang.key, False)


def _budget(state: CycleState) -> int:
    return min(state.probes, state.probes_per_gang)


def _ran_out(state: CycleState, gang: Gang, answer: Answer) -> None:
    """Nothing is proven, and the gang is told so."""
    tried = f"no victims were found within {answer.budget} trial placements"
    again = "once somebody has left or a node has come" if answer.rests else "in the next cycle"
    state.stop(gang, Obstacle(Stage.BUDGET, f"{tried}; the search starts again {again}."))


def _follow_up(
    state: CycleState, line: GangLine, pool: VictimPool, gang: Gang, taken: Sequence[VictimUnit]
) -> None:
    """What the queues hold has changed, and which units there are."""
    state.clear(gang)
    for queue in dict.fromkeys(state.quota.queues.positions[unit.gang.queue] for unit in taken):
        line.update(queue)
    if gang.bound:
        pool.forget(state.quota.queues.positions[gang.queue])
