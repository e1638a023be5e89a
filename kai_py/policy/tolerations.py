"""Taints and tolerations (API text of v1.Toleration; kube-scheduler's TaintToleration plugin)."""

from collections.abc import Sequence

import numpy as np

from kai_py.api.records.core import Taint, Toleration
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints

HARD_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether any toleration covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def tolerated_nodes(tolerations: Sequence[Toleration], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: every NoSchedule and NoExecute taint of the node is tolerated."""
    tolerated = [
        all(taint.effect not in HARD_EFFECTS or tolerates(tolerations, taint) for taint in taints)
        for taints in nodes.taint_lists
    ]
    return np.array(tolerated, dtype=np.bool_)[nodes.taint_codes]


def unwanted_taints(tolerations: Sequence[Toleration], nodes: NodeColumns) -> Ints:
    """(nodes,) int64: how many PreferNoSchedule taints are not tolerated."""
    counts = [
        sum(
            taint.effect == "PreferNoSchedule" and not tolerates(tolerations, taint)
            for taint in taints
        )
        for taints in nodes.taint_lists
    ]
    return np.array(counts, dtype=np.int64)[nodes.taint_codes]


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return (toleration.operator or "Equal") == "Equal" and toleration.value == taint.value
