"""Remedies in manifests: scheduling gates, cordons, node constraints, topology.

The pod spec is immutable: the pods' owner is replaced by one with a constraint less.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kai_py.api.records.node import HARD_EFFECTS, Taint, taint_text
from kai_py.api.records.unstructured import value_at
from kai_py.grouping.topology_annotations import PREFERRED_LEVEL_KEY, REQUIRED_LEVEL_KEY
from kai_py.observe.suggestion import Suggestion, SuggestionStep
from kai_py.policy.node_filters import PASSING_TAINTS
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.search import RemedySearch, first_verified, patch, replace

Spec = dict[str, Any]
Edits = Iterable[tuple[str, Callable[[Spec], object]]]
"""Changes of a pod spec in place, each with what it is about."""
CONTROL_PLANE = "node-role.kubernetes.io/"
_EXISTS = {"operator": "Exists"}


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


def tolerate_taints(search: RemedySearch) -> Iterator[Suggestion]:
    """Tolerate one taint of nodes, the first that is enough; those of control planes come last."""
    taints = dict.fromkeys(
        taint
        for node in search.snapshot.nodes.records
        for taint in node.spec.taints
        if taint.effect in HARD_EFFECTS and not taint.key.startswith(PASSING_TAINTS)
    )
    ordered = sorted(taints, key=lambda taint: taint.key.startswith(CONTROL_PLANE))
    edits = [
        (f"tolerate the taint {taint_text(taint)}", partial(_tolerate, taint)) for taint in ordered
    ]
    return _first_edit(search, lambda specs: edits if specs else ())


def relax_node_conditions(search: RemedySearch) -> Iterator[Suggestion]:
    """Relax the node constraints: a label less, or no affinity."""
    return _first_edit(search, _node_edits)


def _node_edits(specs: list[Spec]) -> Edits:
    selectors = [spec.get("nodeSelector") or {} for spec in specs]
    for key, value in dict.fromkeys(item for each in selectors for item in each.items()):
        yield f"remove the requirement of node label {key}={value}", partial(_without_label, key)
    if any((spec.get("affinity") or {}).get("nodeAffinity") for spec in specs):
        yield "remove its node affinity", partial(_without_rule, "nodeAffinity")
    if sum(map(len, selectors)) > 1:
        yield "remove its node selector", _without_selector


def relax_pod_rules(search: RemedySearch) -> Iterator[Suggestion]:
    """Relax the rules about other pods: spreading, affinity."""
    return _first_edit(search, _pod_rule_edits)


def _pod_rule_edits(specs: list[Spec]) -> Edits:
    spread = [each for spec in specs for each in spec.get("topologySpreadConstraints") or ()]
    for key in dict.fromkeys(
        each["topologyKey"] for each in spread if each["whenUnsatisfiable"] == "DoNotSchedule"
    ):
        yield f"only prefer to spread it over {key} (ScheduleAnyway)", partial(_spread_freely, key)
    for field, text in (("podAffinity", "affinity"), ("podAntiAffinity", "anti-affinity")):
        if any((spec.get("affinity") or {}).get(field) for spec in specs):
            yield f"remove its pod {text}", partial(_without_rule, field)


def _first_edit(
    search: RemedySearch, edits_of: Callable[[list[Spec]], Edits]
) -> Iterator[Suggestion]:
    """The first edit of the pod specs that is enough."""
    owners = search.owners(search.gang)
    return first_verified(
        search.verified(text, *(replace(each, partial(edit_pod_spec, edit)) for each in owners))
        for text, edit in edits_of(pod_specs(owners))
    )


def _spread_freely(key: str, spec: Spec) -> None:
    for each in spec.get("topologySpreadConstraints") or ():
        if each["topologyKey"] == key:
            each["whenUnsatisfiable"] = "ScheduleAnyway"


def _without_rule(field: str, spec: Spec) -> None:
    (spec.get("affinity") or {}).pop(field, None)


def _without_label(key: str, spec: Spec) -> None:
    (spec.get("nodeSelector") or {}).pop(key, None)


def _without_selector(spec: Spec) -> None:
    spec.pop("nodeSelector", None)


def _tolerate(taint: Taint, spec: Spec) -> None:
    condition = {"operator": "Equal", "value": taint.value} if taint.value else _EXISTS
    tolerated = {"key": taint.key, **condition, "effect": taint.effect}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), tolerated]


def relax_topology(search: RemedySearch) -> Iterator[Suggestion]:
    """Allow the next coarser level that is enough, or only prefer the level."""
    constraint = search.gang.tree.topology
    if constraint is None or not constraint.required_level:
        return iter(())
    level = constraint.required_level
    keys = search.snapshot.topologies.get(constraint.topology, ())
    coarser = keys[: keys.index(level)][::-1] if level in keys else ()
    candidates: dict[str, dict[str, str | None]] = {
        f"let it span one {key} instead of one {level}": {REQUIRED_LEVEL_KEY: key}
        for key in coarser
    }
    only_preferred = {REQUIRED_LEVEL_KEY: None, PREFERRED_LEVEL_KEY: level}
    candidates[f"only prefer one {level}, not require it"] = only_preferred
    return first_verified(
        search.verified(text, *annotate_owners(search, annotations))
        for text, annotations in candidates.items()
    )


def annotate_owners(
    search: RemedySearch, annotations: Mapping[str, str | None]
) -> tuple[SuggestionStep, ...]:
    """Set annotations of the gang's owners; None removes one."""
    change = {"metadata": {"annotations": annotations}}
    return tuple(patch(each, change) for each in search.owners(search.gang))


def pod_specs(owners: Sequence[Document]) -> list[Spec]:
    """The pod specs of all ``owners``; none if the form of one is unknown."""
    specs = list(filter(None, map(_pod_spec, owners)))
    return specs if len(specs) == len(owners) else []


def _pod_spec(document: Document) -> Spec | None:
    """The spec of an object's pods; None if its form is unknown."""
    spec = value_at(document, "spec" if document["kind"] == "Pod" else "spec.template.spec")
    return spec if isinstance(spec, dict) else None


def edit_pod_spec(change: Callable[[Spec], object], manifest: Document) -> None:
    """Change the pod spec of a manifest, if its form is known."""
    spec = _pod_spec(manifest)
    if spec is not None:
        change(spec)
