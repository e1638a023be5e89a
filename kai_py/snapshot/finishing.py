"""Finishing gangs: some of their pods have succeeded while others are still running.

Frameworks that count succeeded pods lower minMember themselves. For others, a pod that is created
again beside running pods would wait forever: succeeded pods are not created again, so minMember
pods never exist.
"""

from msgspec.structs import replace

from kai_py.grouping.admitted import with_minimums
from kai_py.snapshot.gangs import Gang, PodState


def as_finishing(gang: Gang) -> Gang:
    """``gang``, which needs no more than all pods that exist, if the others have succeeded."""
    if not (gang.succeeded and gang.bound and gang.pending) or gang.can_be_satisfied:
        return gang
    exist = gang.counts(PodState.GATED, PodState.PENDING, PodState.BOUND)
    if sum(exist.values()) + gang.succeeded < gang.tree.min_pods():
        return gang
    minimums = {leaf.name: exist.get(leaf.name, 0) for leaf in gang.tree.leaves()}
    return replace(gang, tree=with_minimums(gang.tree, minimums))
