"""Check of whether the nodes of a gang have changed since it was planned.

The nodes are checked just before the first binding: making devices ready may take minutes, and a
pod that is bound to a node that has been removed is lost, with the rest of its gang. Conditions
that already existed when the plan was made are not judged again, as a pod may tolerate them.
"""

from collections.abc import Callable

from kai_py.api.records.node import Node
from kai_py.snapshot.nodes import is_ready

FindNode = Callable[[str], Node | None]
"""A node as the mirror shows it now, None if it does not exist."""
REPELLING = ("NoSchedule", "NoExecute")


def node_problem(name: str, planned: Node | None, current: Node | None) -> str:
    """Why no pod should be bound to the node any more, "" if nothing has changed for the worse."""
    if planned is None or current is None:
        return f"node {name} does not exist any more"
    if current.metadata.uid != planned.metadata.uid:
        return f"node {name} was deleted and recreated"
    if current.metadata.deletion_timestamp is not None:
        return f"node {name} is being deleted"
    if is_ready(planned) and not is_ready(current):
        return f"node {name} is not ready any more"
    if current.spec.unschedulable and not planned.spec.unschedulable:
        return f"node {name} was cordoned"
    added = [
        taint
        for taint in current.spec.taints
        if taint.effect in REPELLING and taint not in planned.spec.taints
    ]
    return f"node {name} got the taint {added[0].key}:{added[0].effect}" if added else ""
