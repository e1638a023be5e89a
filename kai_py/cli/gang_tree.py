"""A gang as a tree: its subgroups with minMember and topology, and what made it a gang."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kai_py.cli.output import say
from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.grouping.gang_settings import Preemptibility
from kai_py.snapshot.gangs import Gang, PodState

LAST, NEXT = "└─ ", "├─ "
BELOW_LAST, BELOW_NEXT = "   ", "│  "
INDENT = "  "
WHOLE_GANG = "(whole)"


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A subgroup; the gang itself has no name.

    A leaf needs ``min_members`` pods; ``min_subgroups`` of the ``children`` must reach theirs, None
    for all of them. ``bound`` of the ``pods`` below it are bound.
    """

    name: str
    min_members: int
    min_subgroups: int | None
    bound: int
    pods: int
    topology: TopologyConstraint | None
    children: tuple["TreeRow", ...]


def preemptibility_of(gang: Gang) -> Preemptibility:
    """Whether the gang may be evicted for others."""
    if not gang.preemptible:
        return Preemptibility.NON_PREEMPTIBLE
    return Preemptibility.SEMI_PREEMPTIBLE if gang.semi_preemptible else Preemptibility.PREEMPTIBLE


def tree_of(gang: Gang) -> TreeRow:
    """The subgroups of a gang with their pods; O(pods + subgroups)."""
    return _row(gang.tree, gang.counts(PodState.BOUND), gang.counts(*PodState))


def _row(tree: Subgroup, bound: Mapping[str, int], pods: Mapping[str, int]) -> TreeRow:
    children = tuple(_row(child, bound, pods) for child in tree.children)
    return TreeRow(
        name=tree.name,
        min_members=tree.min_pods(),
        min_subgroups=tree.min_subgroups,
        bound=sum(each.bound for each in children) if children else bound.get(tree.name, 0),
        pods=sum(each.pods for each in children) if children else pods.get(tree.name, 0),
        topology=tree.topology,
        children=children,
    )


def print_tree(title: str, facts: Sequence[str], tree: TreeRow) -> None:
    """Print a gang: its title, sentences about it, and its subgroups; folded on a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in tree_lines(title, facts, tree, width=width):
        say(line)


def tree_lines(
    title: str, facts: Sequence[str], tree: TreeRow, *, width: int | None
) -> Iterator[str]:
    """The lines of a gang; ``width`` is None where they are not folded."""
    yield title
    for fact in facts:
        yield from _folded(fact, INDENT, INDENT * 2, width)
    yield from _lines(tree, INDENT, INDENT, width)


def _lines(row: TreeRow, first: str, rest: str, width: int | None) -> Iterator[str]:
    below = rest + (BELOW_NEXT if row.children else BELOW_LAST)
    yield from _folded(_description(row), first, below, width)
    for number, child in enumerate(row.children, 1):
        is_last = number == len(row.children)
        branch, further = (LAST, BELOW_LAST) if is_last else (NEXT, BELOW_NEXT)
        yield from _lines(child, rest + branch, rest + further, width)


def _folded(text: str, first: str, rest: str, width: int | None) -> list[str]:
    if width is None:
        return [first + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _description(row: TreeRow) -> str:
    name = row.name or WHOLE_GANG
    parts = [f"{name}: minMember {row.min_members}, {row.bound} of {row.pods} pods bound"]
    if row.children and row.min_subgroups is not None:
        parts.append(f"{row.min_subgroups} of {len(row.children)} subgroups")
    return "; ".join((*parts, *_constraint(row.topology)))


def _constraint(topology: TopologyConstraint | None) -> Iterator[str]:
    if topology is None:
        return
    of = f" of topology {topology.topology}" if topology.topology else ""
    if topology.required_level:
        yield f"within one {topology.required_level}{of}"
    if topology.preferred_level:
        yield f"within one {topology.preferred_level}{of} if possible"
    if topology.fitting_level:
        yield f"within one {topology.fitting_level}{of} if an empty one is large enough"
