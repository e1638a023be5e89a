"""The taint without which a node would admit a gang's pods, and the toleration that is missing."""

from collections import Counter

import numpy as np

from kai_py.api.records.node import Taint
from kai_py.api.taints import taint_text
from kai_py.policy.fit import matches_own_selectors
from kai_py.policy.node_selector import matches_selector
from kai_py.policy.tolerations import HARD_EFFECTS, PASSING_TAINTS, tolerates
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot


def taint_hint(snapshot: Snapshot, gang: Gang) -> str:
    """The one toleration with which most nodes would admit the first pending pod; "" if none."""
    if not gang.pending:
        return ""
    shape, nodes = gang.pending[0].shape, snapshot.nodes
    admitted = matches_own_selectors(shape, nodes)
    for selector in shape.volume_selectors:
        admitted = admitted & matches_selector(selector, nodes)
    counts = Counter[Taint]()
    for code, taints in enumerate(nodes.taint_lists):
        refused = [
            taint
            for taint in taints
            if taint.effect in HARD_EFFECTS and not tolerates(shape.tolerations, taint)
        ]
        count = int(np.count_nonzero(admitted & (nodes.taint_codes == code)))
        if len(refused) == 1 and count and not refused[0].key.startswith(PASSING_TAINTS):
            counts[refused[0]] += count
    if not counts:
        return ""
    taint, count = max(counts.items(), key=lambda item: (item[1], taint_text(item[0])))
    nodes_text = "1 node" if count == 1 else f"{count} nodes"
    return f"A toleration of taint {taint_text(taint)} would admit {nodes_text}."
