"""Filters of nodes for a shape: node selectors, taints, and the parts of a shape that they read.

A selector is one boolean array over all nodes, from label columns. Semantics are those of
k8s.io/component-helpers nodeaffinity: terms are OR-ed, the requirements of a term AND-ed, an empty
term and one that can't be parsed match nothing, ``Gt`` and ``Lt`` compare integers, ``NotIn`` and
``DoesNotExist`` hold where the label is absent. Taints and tolerations follow the API text of
v1.Toleration and kube-scheduler's TaintToleration plugin.

Shapes that differ only in amounts mostly have equal constraints, so static fits are found once for
all of them. Filters read nothing else of a shape, so no field can be missing from ``key``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE, MIG_PREFIX
from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import (
    Affinity,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
    Toleration,
)
from kai_py.api.records.node import tolerates, untolerated
from kai_py.api.selectors import can_be_parsed
from kai_py.snapshot.nodes import NodeColumns, SpotChoice, at_codes
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.topology import LabelColumn


def matches_selector(selector: NodeSelector, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: any term matches."""
    matched = np.zeros(len(nodes), dtype=np.bool_)
    for term in selector.node_selector_terms:
        matched |= matches_term(term, nodes)
    return matched


def matches_term(term: NodeSelectorTerm, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: every requirement of the term holds."""
    is_empty = not term.match_expressions and not term.match_fields
    if is_empty or not can_be_parsed(term):
        return np.zeros(len(nodes), dtype=np.bool_)
    matched = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.match_expressions:
        matched &= _matches(requirement, nodes.label(requirement.key))
    for requirement in term.match_fields:
        matched &= _matches(requirement, nodes.name_column())
    return matched


def matches_labels(wanted: Mapping[str, str], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: every label has the given value (pod.spec.nodeSelector)."""
    matched = np.ones(len(nodes), dtype=np.bool_)
    for key, value in wanted.items():
        matched &= nodes.label(key).matches((value,))
    return matched


def _matches(requirement: SelectorRequirement, column: LabelColumn) -> Bools:
    present: Bools = np.not_equal(column.codes, 0)
    matched = np.zeros_like(present)
    match requirement.operator:
        case "In":
            matched = column.matches(requirement.values)
        case "NotIn":
            matched = np.logical_not(column.matches(requirement.values))
        case "Exists":
            matched = present
        case "DoesNotExist":
            matched = np.logical_not(present)
        case "Gt":
            matched = _compares(requirement, column, int.__gt__)
        case "Lt":
            matched = _compares(requirement, column, int.__lt__)
    return matched


def _compares(
    requirement: SelectorRequirement, column: LabelColumn, holds: Callable[[int, int], bool]
) -> Bools:
    bound = parse_int64(requirement.values[0]) if len(requirement.values) == 1 else None
    chosen = np.zeros(len(column.values), dtype=np.bool_)
    if bound is not None:
        for code, text in enumerate(column.values):
            value = parse_int64(text) if code else None
            chosen[code] = value is not None and holds(value, bound)
    return chosen[column.codes]


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


def tolerated_nodes(tolerations: Sequence[Toleration], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: every NoSchedule and NoExecute taint of the node is tolerated."""
    tolerated = [untolerated(taints, tolerations) is None for taints in nodes.taint_lists]
    return at_codes(np.array(tolerated, dtype=np.bool_), nodes.taint_codes)


def eventually_tolerated(tolerations: Sequence[Toleration], nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the same once ``PASSING_TAINTS`` have gone."""
    lasting = [
        [taint for taint in taints if not taint.key.startswith(PASSING_TAINTS)]
        for taints in nodes.taint_lists
    ]
    tolerated = [untolerated(taints, tolerations) is None for taints in lasting]
    return at_codes(np.array(tolerated, dtype=np.bool_), nodes.taint_codes)


def untolerated_nodes(
    tolerations: Sequence[Toleration], nodes: NodeColumns
) -> Iterator[tuple[str, Bools]]:
    """Each taint that is not tolerated, as ``{key: value}``, and (nodes,) bool: where it is first.

    Every node is in at most one of the masks. Text: kube-scheduler's TaintToleration.
    """
    codes_by_taint: dict[tuple[str, str], list[int]] = {}
    for code, taints in enumerate(nodes.taint_lists):
        taint = untolerated(taints, tolerations)
        if taint is not None:
            codes_by_taint.setdefault((taint.key, taint.value), []).append(code)
    for (key, value), codes in sorted(codes_by_taint.items()):
        yield f"{{{key}: {value}}}", np.isin(nodes.taint_codes, codes)


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


class NodeConstraints(msgspec.Struct, frozen=True):
    """``claim_selectors``: the names of allocated claims, and where they can be used.

    ``shares_gpus``: part of a GPU is requested; ``uses_gpus``, ``uses_mig``: whole GPUs, and MIG
    devices, of a device plugin. ``extended_resources``: those that a claim could serve.
    """

    node_selector: Mapping[str, str]
    affinity: Affinity | None
    tolerations: tuple[Toleration, ...]
    volume_selectors: tuple[NodeSelector, ...]
    claim_selectors: tuple[tuple[str, NodeSelector], ...]
    spot: SpotChoice | None
    shares_gpus: bool
    uses_gpus: bool
    uses_mig: bool
    extended_resources: tuple[str, ...]
    node_features: tuple[str, ...]

    @property
    def key(self) -> bytes:
        """Equal for equal constraints only."""
        return _ENCODER.encode(self)


def constraints_of(shape: Shape) -> NodeConstraints:
    """The constraints of a shape."""
    return NodeConstraints(
        node_selector=shape.node_selector,
        affinity=shape.affinity,
        tolerations=shape.tolerations,
        volume_selectors=shape.volume_selectors,
        claim_selectors=tuple(
            (use.name, use.node_selector) for use in shape.claims if use.node_selector is not None
        ),
        spot=shape.spot,
        shares_gpus=shape.gpu_share is not None,
        uses_gpus=GPU_RESOURCE in shape.requests,
        uses_mig=any(name.startswith(MIG_PREFIX) for name in shape.requests),
        extended_resources=tuple(shape.extended.resources),
        node_features=shape.node_features,
    )


_ENCODER = msgspec.json.Encoder(order="deterministic")
