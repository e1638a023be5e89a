"""Where would a gang rather be, because another gang is there?

The nodes on which pods of the other gang run or were placed, or all nodes that share their value of
a label. Of several wishes the first that somebody runs for counts. It is a wish: a gang goes there
if all that it asks for fits, else it prefers those nodes and takes others too.
"""

import numpy as np

from kai_py.grouping.terms import Near
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools, Floats

PREFERENCE = 0.25
"""What nearness is worth among other preferences of a gang, which are below 1."""


def near_nodes(statement: Statement, gang: Gang) -> Bools | None:
    """(nodes,) bool: where the gang would rather be; None if it does not care."""
    for wish in gang.near:
        nodes = _nodes(statement, wish)
        if nodes.any():
            return nodes
    return None


def both(one: Floats | None, other: Floats | None) -> Floats | None:
    """Two preferences, (nodes,) each, as one."""
    if one is None or other is None:
        return one if other is None else other
    return one + other


def _nodes(statement: Statement, wish: Near) -> Bools:
    columns = statement.snapshot.nodes
    inside = np.zeros(len(columns), dtype=np.bool_)
    other = statement.snapshot.gangs.get(wish.gang)
    if other is None:
        return inside
    for member in other.members:
        planned = statement.placed.get(member.pod.uid)
        row = columns.positions.get(member.node) if planned is None else planned.row
        if row is not None:
            inside[row] = True
    if not wish.level:
        return inside
    codes = columns.label(wish.level).codes
    held = np.unique(codes[inside & (codes != 0)])
    near: Bools = np.isin(codes, held)
    return near
