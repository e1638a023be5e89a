"""Remedies for a lack of capacity: a smaller minMember, the end of another gang, more nodes."""

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
    """The largest smaller minMember with which it starts; fewer pods never need more capacity."""
    min_members = search.gang.tree.min_pods()
    if search.gang.tree.children or min_members < 2:
        return
    reduction = search.smallest_count(
        lambda less: _min_available_steps(search, min_members - less), limit=min_members - 1
    )
    if reduction:
        text = (
            f"let it start with {min_members - reduction} of its {min_members} pods (min-available)"
        )
        yield from search.verified(text, *_min_available_steps(search, min_members - reduction))


def _min_available_steps(search: RemedySearch, count: int) -> tuple[SuggestionStep, ...]:
    change = {"metadata": {"annotations": {MIN_AVAILABLE_KEY: str(count)}}}
    return tuple(patch(each, change) for each in search.owners(search.gang))


def end_one_gang(search: RemedySearch) -> Iterator[Suggestion]:
    """The end of the first running gang that is enough; the smallest and least important first."""
    running = sorted(
        (
            gang
            for gang in search.snapshot.gangs.values()
            if gang.bound and gang.key != search.gang.key
        ),
        key=lambda gang: (gang.allocated.get(GPU, 0.0), gang.priority, gang.key),
    )
    pending_gpus = search.pending_gpus
    fitting = [gang for gang in running if gang.allocated.get(GPU, 0.0) >= pending_gpus] or running[
        ::-1
    ]
    return first_verified(
        search.verified(f"end {gang.key}", *map(delete, search.owners(gang)))
        for gang in fitting[:MAX_GANGS]
    )


def add_nodes(search: RemedySearch) -> Iterator[Suggestion]:
    """The least number of nodes to add, of the most frequent of the existing kinds that helps.

    Then of the node groups of the configuration, in their order.
    """
    kinds = [kind.example for kind in node_kinds(search.snapshot)[:MAX_NODE_KINDS]]
    kinds += search.cluster.node_groups[:MAX_NODE_KINDS]
    return first_verified(_add_nodes_like(search, kind) for kind in kinds)


def _add_nodes_like(search: RemedySearch, like: str) -> Iterator[Suggestion]:
    def steps(count: int) -> tuple[SuggestionStep]:
        return (
            SuggestionStep(
                verb=Verb.ADD_NODES, api_version="v1", kind="Node", name=like, count=count
            ),
        )

    count_needed = search.smallest_count(steps, limit=MAX_NODES)
    if count_needed:
        plural = "s" if count_needed > 1 else ""
        yield from search.verified(
            f"add {count_needed} node{plural} like {like}", *steps(count_needed)
        )
