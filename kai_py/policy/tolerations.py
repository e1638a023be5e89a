"""Taints and tolerations (API text of v1.Toleration; kube-scheduler's TaintToleration plugin)."""

from collections.abc import Iterator, Sequence

import numpy as np

from kai_py.api.records.core import Toleration
from kai_py.api.records.node import Taint
from kai_py.api.taints import covers
from kai_py.snapshot.nodes import NodeColumns, at_codes
from kai_py.snapshot.resources import Bools, Ints

HARD_EFFECTS = ("NoSchedule", "NoExecute")
PASSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/",
)
"""Prefixes of keys of taints that tell the state of a node, not its purpose."""


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether any toleration covers the taint."""
    return any(covers(toleration, taint) for toleration in tolerations)


def tolerated_nodes(tolerations: Sequence[Toleration], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: every NoSchedule and NoExecute taint of the node is tolerated."""
    tolerated = [_first_untolerated(tolerations, taints) is None for taints in nodes.taint_lists]
    return at_codes(np.array(tolerated, dtype=np.bool_), nodes.taint_codes)


def eventually_tolerated(tolerations: Sequence[Toleration], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the same once ``PASSING_TAINTS`` have gone."""
    lasting = [
        [taint for taint in taints if not taint.key.startswith(PASSING_TAINTS)]
        for taints in nodes.taint_lists
    ]
    tolerated = [_first_untolerated(tolerations, taints) is None for taints in lasting]
    return at_codes(np.array(tolerated, dtype=np.bool_), nodes.taint_codes)


def untolerated_nodes(
    tolerations: Sequence[Toleration], nodes: NodeColumns
) -> Iterator[tuple[str, Bools]]:
    """Each taint that is not tolerated, as ``{key: value}``, and (nodes,) bool: where it is first.

    Every node is in at most one of the masks. Text: kube-scheduler's TaintToleration.
    """
    codes_by_taint: dict[tuple[str, str], list[int]] = {}
    for code, taints in enumerate(nodes.taint_lists):
        taint = _first_untolerated(tolerations, taints)
        if taint is not None:
            codes_by_taint.setdefault((taint.key, taint.value), []).append(code)
    for (key, value), codes in sorted(codes_by_taint.items()):
        yield f"{{{key}: {value}}}", np.isin(nodes.taint_codes, codes)


def _first_untolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> Taint | None:
    hard = (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not tolerates(tolerations, taint)), None)


def unwanted_taints(tolerations: Sequence[Toleration], nodes: NodeColumns) -> Ints:
    """(nodes,) int64: how many PreferNoSchedule taints are not tolerated."""
    counts = [
        sum(
            taint.effect == "PreferNoSchedule" and not tolerates(tolerations, taint)
            for taint in taints
        )
        for taints in nodes.taint_lists
    ]
    return at_codes(np.array(counts, dtype=np.int64), nodes.taint_codes)
