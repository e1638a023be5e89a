"""Finishing gangs: some of their pods have succeeded while others have not.

Frameworks that count succeeded pods lower minMember themselves. For others, a pod that is created
again would wait forever: succeeded pods are not created again, so minMember pods never exist. That
holds beside running pods, and also where all of the others were evicted. In the latter case exactly
minMember pods must be known, as pods that succeeded may also be those of an earlier gang with the
same name, whose successor is still being created.
"""

from msgspec.structs import replace

from kai_py.grouping.admitted import with_minimums
from kai_py.snapshot.gangs import Gang, PodState


def as_finishing(gang: Gang) -> Gang:
    """``gang``, which needs no more than all pods that exist, if the others have succeeded."""
    if not (gang.succeeded and gang.pending) or gang.can_be_satisfied:
        return gang
    exist = gang.counts(PodState.GATED, PodState.PENDING, PodState.BOUND)
    known, needed = sum(exist.values()) + gang.succeeded, gang.tree.min_pods()
    if known < needed or (known > needed and not gang.bound):
        return gang
    minimums = {leaf: exist.get(leaf, 0) for leaf in gang.tree.leaf_names()}
    return replace(gang, tree=with_minimums(gang.tree, minimums))
