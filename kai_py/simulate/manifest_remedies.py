"""Which condition that a manifest sets would a gang have to give up to start?

Pods can't be changed where they exist: their owner is made as new with one condition less.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kai_py.grouping.identify import PREFERRED_LEVEL_KEY, REQUIRED_LEVEL_KEY
from kai_py.observe.suggestion import Step, Suggestion
from kai_py.simulate.objects import Document
from kai_py.simulate.remedy_search import Question, first, patch, replace
from kai_py.snapshot.gangs import Gang

Spec = dict[str, Any]


def no_gates(question: Question) -> Iterator[Suggestion]:
    """Take the scheduling gates off its pods, whoever set them."""
    gated = [pod for pod in question.waiting_pods() if pod["spec"].get("schedulingGates")]
    names = dict.fromkeys(gate["name"] for pod in gated for gate in pod["spec"]["schedulingGates"])
    steps = (patch(pod, {"spec": {"schedulingGates": []}}) for pod in gated)
    text = f"take the scheduling gate {', '.join(names)} off its pods"
    yield from question.proven(text, *steps)


def open_nodes(question: Question) -> Iterator[Suggestion]:
    """Uncordon a node."""
    return first(
        question.proven(
            f"uncordon node {name}", patch(_node(name), {"spec": {"unschedulable": None}})
        )
        for name, record in zip(
            question.snapshot.nodes.names, question.snapshot.nodes.records, strict=True
        )
        if record.spec.unschedulable
    )


def _node(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def fewer_node_conditions(question: Question) -> Iterator[Suggestion]:
    """Ask less of nodes: a label less, no affinity, a taint tolerated; the first that is enough."""
    owners = question.owners(question.gang)
    return first(
        question.proven(text, *(replace(each, partial(_in_pods, change)) for each in owners))
        for text, change in _node_changes(pod_specs(owners), question)
    )


def _node_changes(
    specs: list[Spec], question: Question
) -> Iterator[tuple[str, Callable[[Spec], object]]]:
    if not specs:
        return
    selectors = [spec.get("nodeSelector") or {} for spec in specs]
    for key, value in dict.fromkeys(item for each in selectors for item in each.items()):
        yield f"ask for no node with label {key}={value}", partial(_without_label, key)
    if any((spec.get("affinity") or {}).get("nodeAffinity") for spec in specs):
        yield "ask for nodes without node affinity", _without_affinity
    if sum(map(len, selectors)) > 1:
        yield "ask for nodes without a node selector", lambda spec: spec.pop("nodeSelector")
    taints = dict.fromkeys(
        (taint.key, taint.effect)
        for node in question.snapshot.nodes.records
        for taint in node.spec.taints
    )
    for key, effect in taints:
        yield f"tolerate the taint {key}:{effect}", partial(_tolerating, key, effect)


def _without_label(key: str, spec: Spec) -> None:
    spec.get("nodeSelector", {}).pop(key, None)


def _without_affinity(spec: Spec) -> None:
    spec.get("affinity", {}).pop("nodeAffinity", None)


def _tolerating(key: str, effect: str, spec: Spec) -> None:
    tolerated = {"key": key, "operator": "Exists", "effect": effect}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), tolerated]


def wider_topology(question: Question) -> Iterator[Suggestion]:
    """Span the next coarser level that is enough, or only prefer the level."""
    constraint = question.gang.tree.topology
    if constraint is None or not constraint.required_level:
        return iter(())
    level = constraint.required_level
    keys = question.snapshot.topologies.get(constraint.topology, ())
    coarser = keys[: keys.index(level)][::-1] if level in keys else ()
    tried: list[tuple[str, dict[str, str | None]]] = [
        (f"let it span one {key} instead of one {level}", {REQUIRED_LEVEL_KEY: key})
        for key in coarser
    ]
    only_preferred = {REQUIRED_LEVEL_KEY: None, PREFERRED_LEVEL_KEY: level}
    tried.append((f"only prefer one {level}, not require it", only_preferred))
    return first(
        question.proven(text, *_marked(question, question.gang, marks)) for text, marks in tried
    )


def _marked(question: Question, gang: Gang, marks: dict[str, str | None]) -> tuple[Step, ...]:
    change = {"metadata": {"annotations": marks}}
    return tuple(patch(each, change) for each in question.owners(gang))


def pod_specs(owners: Sequence[Document]) -> list[Spec]:
    """The specs of the pods of all ``owners``; none where we do not know the form of one."""
    specs = list(filter(None, map(_pod_spec, owners)))
    return specs if len(specs) == len(owners) else []


def _pod_spec(document: Document) -> Spec | None:
    """The spec of the pods that an object stands for; None where we do not know its form."""
    if document["kind"] == "Pod":
        found = document["spec"]
    else:
        found = (document.get("spec") or {}).get("template", {}).get("spec")
    return found if isinstance(found, dict) else None


def _in_pods(change: Callable[[Spec], object], manifest: Document) -> None:
    spec = _pod_spec(manifest)
    if spec is not None:
        change(spec)
