"""Remedies in manifests: scheduling gates, cordons, node constraints, topology.

The pod spec is immutable: the pods' owner is replaced by one with a constraint less.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kai_py.grouping.topology_annotations import PREFERRED_LEVEL_KEY, REQUIRED_LEVEL_KEY
from kai_py.observe.suggestion import Suggestion, SuggestionStep
from kai_py.simulate.objects import Document
from kai_py.simulate.remedy_search import RemedySearch, first_verified, patch, replace
from kai_py.snapshot.gangs import Gang

Spec = dict[str, Any]


def remove_gates(search: RemedySearch) -> Iterator[Suggestion]:
    """Remove the scheduling gates of its pods."""
    gated = [pod for pod in search.waiting_pods() if pod["spec"].get("schedulingGates")]
    names = dict.fromkeys(gate["name"] for pod in gated for gate in pod["spec"]["schedulingGates"])
    steps = (patch(pod, {"spec": {"schedulingGates": []}}) for pod in gated)
    text = f"remove the scheduling gate {', '.join(names)} from its pods"
    yield from search.verified(text, *steps)


def uncordon_node(search: RemedySearch) -> Iterator[Suggestion]:
    """Uncordon the first node that is enough."""
    return first_verified(
        search.verified(
            f"uncordon node {name}", patch(_node(name), {"spec": {"unschedulable": None}})
        )
        for name, record in zip(
            search.snapshot.nodes.names, search.snapshot.nodes.records, strict=True
        )
        if record.spec.unschedulable
    )


def _node(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def relax_node_conditions(search: RemedySearch) -> Iterator[Suggestion]:
    """Relax the node constraints: a label less, no affinity, or a taint tolerated."""
    owners = search.owners(search.gang)
    return first_verified(
        search.verified(text, *(replace(each, partial(_edit_pod_spec, change)) for each in owners))
        for text, change in _node_changes(pod_specs(owners), search)
    )


def _node_changes(
    specs: list[Spec], search: RemedySearch
) -> Iterator[tuple[str, Callable[[Spec], object]]]:
    if not specs:
        return
    selectors = [spec.get("nodeSelector") or {} for spec in specs]
    for key, value in dict.fromkeys(item for each in selectors for item in each.items()):
        yield f"remove the requirement of node label {key}={value}", partial(_without_label, key)
    if any((spec.get("affinity") or {}).get("nodeAffinity") for spec in specs):
        yield "remove its node affinity", _without_affinity
    if sum(map(len, selectors)) > 1:
        yield "remove its node selector", lambda spec: spec.pop("nodeSelector")
    taints = dict.fromkeys(
        (taint.key, taint.effect)
        for node in search.snapshot.nodes.records
        for taint in node.spec.taints
    )
    for key, effect in taints:
        yield f"tolerate the taint {key}:{effect}", partial(_tolerate, key, effect)


def _without_label(key: str, spec: Spec) -> None:
    spec.get("nodeSelector", {}).pop(key, None)


def _without_affinity(spec: Spec) -> None:
    spec.get("affinity", {}).pop("nodeAffinity", None)


def _tolerate(key: str, effect: str, spec: Spec) -> None:
    tolerated = {"key": key, "operator": "Exists", "effect": effect}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), tolerated]


def relax_topology(search: RemedySearch) -> Iterator[Suggestion]:
    """Allow the next coarser level that is enough, or only prefer the level."""
    constraint = search.gang.tree.topology
    if constraint is None or not constraint.required_level:
        return iter(())
    level = constraint.required_level
    keys = search.snapshot.topologies.get(constraint.topology, ())
    coarser = keys[: keys.index(level)][::-1] if level in keys else ()
    candidates: list[tuple[str, dict[str, str | None]]] = [
        (f"let it span one {key} instead of one {level}", {REQUIRED_LEVEL_KEY: key})
        for key in coarser
    ]
    only_preferred = {REQUIRED_LEVEL_KEY: None, PREFERRED_LEVEL_KEY: level}
    candidates.append((f"only prefer one {level}, not require it", only_preferred))
    return first_verified(
        search.verified(text, *_annotate_owners(search, search.gang, annotations))
        for text, annotations in candidates
    )


def _annotate_owners(
    search: RemedySearch, gang: Gang, annotations: dict[str, str | None]
) -> tuple[SuggestionStep, ...]:
    change = {"metadata": {"annotations": annotations}}
    return tuple(patch(each, change) for each in search.owners(gang))


def pod_specs(owners: Sequence[Document]) -> list[Spec]:
    """The pod specs of all ``owners``; none if the form of one is unknown."""
    specs = list(filter(None, map(_pod_spec, owners)))
    return specs if len(specs) == len(owners) else []


def _pod_spec(document: Document) -> Spec | None:
    """The spec of an object's pods; None if its form is unknown."""
    if document["kind"] == "Pod":
        spec = document["spec"]
    else:
        spec = (document.get("spec") or {}).get("template", {}).get("spec")
    return spec if isinstance(spec, dict) else None


def _edit_pod_spec(change: Callable[[Spec], object], manifest: Document) -> None:
    spec = _pod_spec(manifest)
    if spec is not None:
        change(spec)
