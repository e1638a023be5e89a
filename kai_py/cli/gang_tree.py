"""A gang as a tree: its subgroups with minMember and topology, and the rule that formed it."""

import sys
from collections.abc import Iterator, Sequence

from kai_py.cli.output import say
from kai_py.cli.sentences import folded, terminal_width
from kai_py.grouping.gang import TopologyConstraint
from kai_py.observe.gang_rows import TreeRow

LAST, NEXT = "└─ ", "├─ "
BELOW_LAST, BELOW_NEXT = "   ", "│  "
INDENT = "  "
WHOLE_GANG = "(whole)"


def print_tree(title: str, facts: Sequence[str], tree: TreeRow) -> None:
    """Print a gang: its title, sentences about it, and its subgroups; folded on a terminal."""
    for line in tree_lines(title, facts, tree, width=terminal_width(sys.stdout)):
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
    return [first + text] if width is None else folded(text, width, first=first, rest=rest)


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
