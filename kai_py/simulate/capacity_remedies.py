"""Which gang that asks for less, which end of another one, or how many more nodes make room?"""

from collections.abc import Iterator

from kai_py.grouping.explicit import MIN_AVAILABLE_KEY
from kai_py.observe.suggestion import Step, Suggestion, Verb
from kai_py.simulate.remedy_search import Question, delete, first, patch
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.node_kinds import node_kinds

MOST_NODES = 64
NODE_KINDS_TRIED = 3
GANGS_TRIED = 8


def fewer_pods(question: Question) -> Iterator[Suggestion]:
    """The largest smaller floor with which it starts; fewer pods never need more room."""
    floor = question.gang.tree.floor()
    if question.gang.tree.children or floor < 2:
        return
    given_up = question.least(lambda less: _floor(question, floor - less), most=floor - 1)
    if given_up:
        text = f"let it start with {floor - given_up} of its {floor} pods (min-available)"
        yield from question.proven(text, *_floor(question, floor - given_up))


def _floor(question: Question, count: int) -> tuple[Step, ...]:
    mark = {"metadata": {"annotations": {MIN_AVAILABLE_KEY: str(count)}}}
    return tuple(patch(each, mark) for each in question.owners(question.gang))


def one_gang_less(question: Question) -> Iterator[Suggestion]:
    """The first running gang, the smallest and least important ones first, whose end is enough."""
    running = sorted(
        (
            gang
            for gang in question.snapshot.gangs.values()
            if gang.bound and gang.key != question.gang.key
        ),
        key=lambda gang: (gang.allocated.get(GPU, 0.0), gang.priority, gang.key),
    )
    asked = question.asked
    fitting = [gang for gang in running if gang.allocated.get(GPU, 0.0) >= asked] or running[::-1]
    return first(
        question.proven(f"let {gang.key} end", *map(delete, question.owners(gang)))
        for gang in fitting[:GANGS_TRIED]
    )


def more_nodes(question: Question) -> Iterator[Suggestion]:
    """For the node kinds there are, the most frequent first: the least number of more of them."""
    kinds = node_kinds(question.snapshot)[:NODE_KINDS_TRIED]
    return first(_added(question, kind.like) for kind in kinds)


def _added(question: Question, like: str) -> Iterator[Suggestion]:
    def steps(count: int) -> tuple[Step]:
        return (Step(verb=Verb.ADD_NODES, api_version="v1", kind="Node", name=like, count=count),)

    enough = question.least(steps, most=MOST_NODES)
    if enough:
        plural = "s" if enough > 1 else ""
        yield from question.proven(f"add {enough} node{plural} like {like}", *steps(enough))
