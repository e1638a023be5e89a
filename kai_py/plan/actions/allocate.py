"""Allocate: place pending gangs into free room, queue by queue, without disturbing anybody.

    while a queue has a gang left:
        take the queue that comes next, and its next gang
        check the queue's bounds for the pods the gang asks for, an amount of GPU memory at its
            price on the smallest GPUs; where that is too much, on the larger ones
        place them into room that is free now, or else into room that is being freed
        a gang with pods left to place goes back into its queue's line

A gang that finds no room spares every later gang of the same shape and at least the same size the
search, for room only shrinks, until one that was refused got room from others. Until
somebody does, what was tried in the last cycle is not tried again where nothing has changed since
(``vain_searches``).
"""

from collections.abc import Callable, Iterable

from kai_py.plan.actions.allocate_batch import AlikeGangs
from kai_py.plan.explain.reasons import Obstacle, of_gang
from kai_py.plan.gang_queue import GangLine
from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.plan import Action
from kai_py.plan.quota_check import kept_from, nodes_within_bounds, over_bounds
from kai_py.plan.search_cache import Answer, Book, Question
from kai_py.plan.session import CycleState, deciding_shape, place_soonest
from kai_py.snapshot.gangs import Gang

Hopeless = dict[int, tuple[int, Obstacle]]
"""Shape to the smallest ask that found no room, and why."""

Refused = Callable[[Gang], bool]
"""Told of a gang that gets nothing; whether it got room from others."""


def allocate(state: CycleState, gangs: Iterable[Gang], refused: Refused | None = None) -> None:
    """Run the action for ``gangs``; whatever stays pending gets its obstacle in ``state``."""
    line = GangLine(state, [gang for gang in gangs if _is_ready(state, gang)])
    alike = AlikeGangs(state, line)
    hopeless, book = Hopeless(), state.open_book(Action.ALLOCATE)
    while (gang := _one_by_one(line, alike)) is not None:
        if _try(state, gang, hopeless, book):
            line.push(gang)
        elif refused is not None and gang.key in state.obstacles and refused(gang):
            hopeless.clear()
            line.update_all()
            if state.ask(gang) is not None:
                line.push(gang)


def _one_by_one(line: GangLine, alike: AlikeGangs) -> Gang | None:
    """The next gang to be tried by itself; those that are placed many at a time come first."""
    while alike.place():
        pass
    return line.pop()


def _is_ready(state: CycleState, gang: Gang) -> bool:
    obstacle = state.precondition(gang)
    if obstacle is not None:
        state.stop(gang, obstacle)
    return obstacle is None


def _try(state: CycleState, gang: Gang, hopeless: Hopeless, book: Book) -> bool:
    """Place what the gang asks for next; whether it should be asked again in this cycle."""
    ask = state.ask(gang)
    if ask is None:
        return False
    over = over_bounds(state.quota, gang, ask.members, state.ask_cost(gang))
    if over is not None:
        obstacle = None if _on_larger_gpus(state, gang, ask) else over
    else:
        kept = kept_from(state, gang, state.ask_cost(gang))
        obstacle = kept or _no_room(state, gang, ask, hopeless, book)
    if obstacle is None:
        state.clear(gang)
        return ask.more
    state.stop(gang, obstacle)
    return False


def _on_larger_gpus(state: CycleState, gang: Gang, ask: Ask) -> bool:
    """Place the pods where an amount of GPU memory costs little enough, if anywhere."""
    allowed = nodes_within_bounds(state, gang, ask)
    if allowed is None or kept_from(state, gang, state.ask_cost(gang)) is not None:
        return False
    return place_soonest(state, gang, ask.members, allowed=allowed, told=False) is None


def _no_room(
    state: CycleState, gang: Gang, ask: Ask, hopeless: Hopeless, book: Book
) -> Obstacle | None:
    """Place the pods, or say why not."""
    shape, size, placed = deciding_shape(state, gang, ask), len(ask.members), state.statement.placed
    known = None if shape is None else hopeless.get(shape)
    if known is not None and size >= known[0]:
        return of_gang(known[1], gang, ask.members, placed)
    question = _question(gang, ask, shape)
    answer = book.recall(question)
    obstacle = place_soonest(state, gang, ask.members) if answer is None else answer.obstacle
    if obstacle is None:
        return None
    if answer is None:
        book.note(question, Answer(obstacle=obstacle))
    if shape is None:
        return obstacle
    hopeless[shape] = (size, obstacle)
    return of_gang(obstacle, gang, ask.members, placed)


def _question(gang: Gang, ask: Ask, shape: int | None) -> Question:
    """What decides over room, and how its lack is told."""
    if shape is None:
        return Question(gang.key, gang)
    leaves = tuple(dict.fromkeys(member.leaf for member in ask.members))
    return Question((shape, len(ask.members), leaves, gang.near))
