"""Which gang that asks for less, which end of another one, or how many more nodes make room?"""

from collections.abc import Iterator

from kai_py.grouping.pod_group_annotation import MIN_AVAILABLE_KEY
from kai_py.observe.suggestion import Suggestion, SuggestionStep, Verb
from kai_py.simulate.remedy_search import RemedySearch, delete, first_verified, patch
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.node_kinds import node_kinds

MAX_NODES = 64
MAX_NODE_KINDS = 3
MAX_GANGS = 8


def lower_min_available(search: RemedySearch) -> Iterator[Suggestion]:
    """The largest smaller floor with which it starts; fewer pods never need more room."""
    floor = search.gang.tree.min_pods()
    if search.gang.tree.children or floor < 2:
        return
    given_up = search.smallest_count(
        lambda less: _min_available_steps(search, floor - less), limit=floor - 1
    )
    if given_up:
        text = f"let it start with {floor - given_up} of its {floor} pods (min-available)"
        yield from search.verified(text, *_min_available_steps(search, floor - given_up))


def _min_available_steps(search: RemedySearch, count: int) -> tuple[SuggestionStep, ...]:
    mark = {"metadata": {"annotations": {MIN_AVAILABLE_KEY: str(count)}}}
    return tuple(patch(each, mark) for each in search.owners(search.gang))


def end_one_gang(search: RemedySearch) -> Iterator[Suggestion]:
    """The first running gang, the smallest and least important ones first, whose end is enough."""
    running = sorted(
        (
            gang
            for gang in search.snapshot.gangs.values()
            if gang.bound and gang.key != search.gang.key
        ),
        key=lambda gang: (gang.allocated.get(GPU, 0.0), gang.priority, gang.key),
    )
    asked = search.pending_gpus
    fitting = [gang for gang in running if gang.allocated.get(GPU, 0.0) >= asked] or running[::-1]
    return first_verified(
        search.verified(f"let {gang.key} end", *map(delete, search.owners(gang)))
        for gang in fitting[:MAX_GANGS]
    )


def add_nodes(search: RemedySearch) -> Iterator[Suggestion]:
    """For the node kinds there are, the most frequent first: the least number of more of them."""
    kinds = node_kinds(search.snapshot)[:MAX_NODE_KINDS]
    return first_verified(_add_nodes_like(search, kind.example) for kind in kinds)


def _add_nodes_like(search: RemedySearch, like: str) -> Iterator[Suggestion]:
    def steps(count: int) -> tuple[SuggestionStep]:
        return (
            SuggestionStep(
                verb=Verb.ADD_NODES, api_version="v1", kind="Node", name=like, count=count
            ),
        )

    enough = search.smallest_count(steps, limit=MAX_NODES)
    if enough:
        plural = "s" if enough > 1 else ""
        yield from search.verified(f"add {enough} node{plural} like {like}", *steps(enough))
