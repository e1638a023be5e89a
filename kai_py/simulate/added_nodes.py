"""A node that is added like an existing one: with its kind, and without its present state.

A cordon, the taints and conditions that tell the state of a node, and the signals of one that is
about to go are about one machine; the next one of its kind has none of them.
"""

from collections.abc import Iterable

from kai_py.api.node_departures import NodeSignal
from kai_py.policy.node_filters import PASSING_TAINTS
from kai_py.simulate.objects import Document

STATE_METADATA = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"})


def as_added(node: Document, signals: Iterable[NodeSignal]) -> Document:
    """``node`` as a new one: ready, not cordoned, and without those of ``signals`` that it has."""
    signals = tuple(signals)
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = [each for each in spec.get("taints") or () if not _is_state(each, signals)]
    return {
        **node,
        "metadata": _metadata(node["metadata"], signals),
        "spec": {**spec, "unschedulable": False, "taints": taints},
        "status": {**status, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _metadata(meta: Document, signals: Iterable[NodeSignal]) -> Document:
    kept = {key: value for key, value in meta.items() if key not in STATE_METADATA}
    labels = dict(meta.get("labels") or {})
    for each in signals:
        if each.label in labels and labels[each.label] in (each.values or (labels[each.label],)):
            del labels[each.label]
    return {**kept, "labels": labels}


def _is_state(taint: Document, signals: Iterable[NodeSignal]) -> bool:
    key, value = str(taint.get("key")), str(taint.get("value", ""))
    return key.startswith(PASSING_TAINTS) or any(
        each.taint == key
        and each.effect in ("", taint.get("effect"))
        and value in (each.values or (value,))
        for each in signals
    )
