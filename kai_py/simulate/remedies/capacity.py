"""Remedies for a lack of capacity or devices: smaller requests, another gang's end, nodes, claims.

A pod that no node could ever hold requests the most that a node has. That may not be what the
workload needs: more or larger nodes are suggested beside it.

For a lack of devices, a condition on devices is dropped, or a taint tolerated. Claims are
immutable: their template is replaced, and the owner of the pods, so that these get new claims.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from kai_py.api.texts import count_of
from kai_py.cel.expression import CompileError
from kai_py.dra.selectors.masks import conjuncts
from kai_py.dra.selectors.selector import compile_selector
from kai_py.grouping.annotations import MIN_AVAILABLE_KEY
from kai_py.observe.suggestion import Suggestion, SuggestionStep, Verb
from kai_py.plan.placement.reasons import amount_text
from kai_py.plan.state.empty_nodes import eventually_admitted
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.manifests import Spec, annotate_owners, edit_pod_spec, pod_specs
from kai_py.simulate.remedies.search import RemedySearch, delete, first_verified, replace
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.node_kinds import node_kinds

Edit = Callable[[Document], None]
"""Changes a manifest in place."""


def fewer_device_conditions(search: RemedySearch) -> Iterator[Suggestion]:
    """Remove one condition from a selector of its claims, the first that is enough."""
    return _first_edit(
        search,
        (
            (f"remove {condition} from", each, partial(replace_selector, selector, rest))
            for each in claim_objects(search)
            for selector in selectors_of(each)
            for condition, rest in _without_one(selector)
        ),
    )


def tolerated_devices(search: RemedySearch) -> Iterator[Suggestion]:
    """Tolerate one taint of devices in its claims, the first that is enough."""
    return _first_edit(
        search,
        (
            (f"tolerate the device taint {key}:{effect} in", each, partial(_tolerate, key, effect))
            for each in claim_objects(search)
            for key, effect in dict.fromkeys(_taints(search))
        ),
    )


def _first_edit(
    search: RemedySearch, edits: Iterable[tuple[str, Document, Edit]]
) -> Iterator[Suggestion]:
    """The first edit of a claim or template that is enough; its text lacks the object's name."""
    return first_verified(edit_claim(search, *each) for each in edits)


def edit_claim(
    search: RemedySearch, text: str, document: Document, edit: Edit
) -> Iterator[Suggestion]:
    """Edit a claim or template, which is named after ``text``; its pods are created again."""
    where = f"{document['kind']} {document['metadata']['name']}"
    steps = (replace(document, edit), *recreated_owners(search))
    return search.verified(f"{text} {where}", *steps)


def recreated_owners(search: RemedySearch) -> list[SuggestionStep]:
    """The gang's owners are created again as they were, so that their pods get new claims."""
    return [replace(each, lambda _: None) for each in search.owners(search.gang)]


def _taints(search: RemedySearch) -> Iterator[tuple[str, str]]:
    for document in search.of_kind("ResourceSlice"):
        for device in document["spec"].get("devices") or ():
            yield from ((each["key"], each["effect"]) for each in device.get("taints") or ())
    for document in search.of_kind("DeviceTaintRule"):
        taint = document["spec"]["taint"]
        yield taint["key"], taint["effect"]


def _tolerate(key: str, effect: str, manifest: Document) -> None:
    tolerated = {"key": key, "operator": "Exists", "effect": effect}
    for request in claim_requests(manifest):
        request["tolerations"] = [*(request.get("tolerations") or ()), tolerated]


def claim_objects(search: RemedySearch) -> Iterator[Document]:
    """The claims and templates in the owners' pod specs, where the form of these is known."""
    specs = pod_specs(search.owners(search.gang))
    named = [claim for spec in specs for claim in spec.get("resourceClaims") or ()]
    names = {("ResourceClaimTemplate", each.get("resourceClaimTemplateName")) for each in named}
    names |= {("ResourceClaim", each.get("resourceClaimName")) for each in named}
    for document in search.of_kind("ResourceClaimTemplate", "ResourceClaim"):
        meta = document["metadata"]
        is_local = meta.get("namespace") == search.gang.owner.namespace
        if is_local and (document["kind"], meta["name"]) in names:
            yield document


def selectors_of(document: Document) -> Iterator[str]:
    """The CEL expressions of its requests."""
    for selectors in _selector_lists(document):
        yield from (each["cel"]["expression"] for each in selectors if "cel" in each)


def _selector_lists(document: Document) -> Iterator[list[Any]]:
    return (each["selectors"] for each in claim_requests(document) if each.get("selectors"))


def claim_requests(document: Document) -> Iterator[dict[str, Any]]:
    """The requests, with each alternative of a request by itself."""
    spec = document["spec"].get("spec") or document["spec"]
    for request in spec["devices"].get("requests") or ():
        if "exactly" in request:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def _without_one(selector: str) -> Iterator[tuple[str, str]]:
    """Each condition of a selector, and the selector without it."""
    compiled = compile_selector(selector)
    if isinstance(compiled, CompileError):
        return
    texts = [conjunct.text for conjunct in conjuncts(compiled)]
    for omitted, text in enumerate(texts):
        rest = [f"({each})" for index, each in enumerate(texts) if index != omitted]
        yield text, " && ".join(rest)


def replace_selector(selector: str, rest: str, manifest: Document) -> None:
    """Replace a selector wherever the manifest has it; remove it where ``rest`` is empty."""
    for selectors in _selector_lists(manifest):
        selectors[:] = [
            {"cel": {"expression": rest}} if each["cel"]["expression"] == selector else each
            for each in selectors
            if rest or each["cel"]["expression"] != selector
        ]


MAX_NODES = 64
MAX_NODE_KINDS = 3
MAX_GANGS = 8


def lower_min_available(search: RemedySearch) -> Iterator[Suggestion]:
    """The largest smaller minMember with which it starts; fewer pods never need more capacity."""
    min_members = search.gang.tree.min_pods()
    if search.gang.tree.children or min_members < 2:
        return

    def steps(less: int) -> tuple[SuggestionStep, ...]:
        return annotate_owners(search, {MIN_AVAILABLE_KEY: str(min_members - less)})

    reduction = search.smallest_count(steps, limit=min_members - 1)
    if reduction:
        text = (
            f"let it start with {min_members - reduction} of its {min_members} pods (min-available)"
        )
        yield from search.verified(text, *steps(reduction))


def end_one_gang(search: RemedySearch) -> Iterator[Suggestion]:
    """The end of the first running gang that is enough; the smallest and least important first."""
    running = sorted(
        (
            gang
            for gang in search.snapshot.gangs.values()
            if gang.bound and gang.key != search.gang.key
        ),
        key=lambda gang: (gang.allocated.get(GPU, 0.0), gang.priority, gang.key),
    )
    pending_gpus = search.pending_gpus
    fitting = [gang for gang in running if gang.allocated.get(GPU, 0.0) >= pending_gpus] or running[
        ::-1
    ]
    return first_verified(
        search.verified(f"end {gang.key}", *map(delete, search.owners(gang)))
        for gang in fitting[:MAX_GANGS]
    )


def add_nodes(search: RemedySearch) -> Iterator[Suggestion]:
    """The least number of nodes to add, of the most frequent of the existing kinds that helps.

    Then of the node groups of the configuration, in their order.
    """
    kinds = [kind.example for kind in node_kinds(search.snapshot)[:MAX_NODE_KINDS]]
    kinds += search.cluster.node_groups[:MAX_NODE_KINDS]
    return first_verified(_add_nodes_like(search, kind) for kind in kinds)


def _add_nodes_like(search: RemedySearch, like: str) -> Iterator[Suggestion]:
    def steps(count: int) -> tuple[SuggestionStep]:
        return (
            SuggestionStep(
                verb=Verb.ADD_NODES, api_version="v1", kind="Node", name=like, count=count
            ),
        )

    count_needed = search.smallest_count(steps, limit=MAX_NODES)
    if count_needed:
        text = f"add {count_of(count_needed, 'node')} like {like}"
        yield from search.verified(text, *steps(count_needed))


def reduce_requests(search: RemedySearch) -> Iterator[Suggestion]:
    """Request the most that an admitted node has, of each resource of which pods request more."""
    found = dict(_excess(search))
    owners = search.owners(search.gang)
    specs = pod_specs(owners)
    if not found or not specs or any(len(spec["containers"]) != 1 for spec in specs):
        return
    texts = (
        f"{name} {written} instead of {amount_text(name, wanted)}"
        for name, (wanted, written) in found.items()
    )
    text = f"request {' and '.join(texts)}, the most that a node has"
    edit = partial(_reduce, {name: written for name, (_, written) in found.items()})
    steps = (replace(each, partial(edit_pod_spec, edit)) for each in owners)
    yield from search.verified(text, *steps)


def _excess(search: RemedySearch) -> Iterator[tuple[str, tuple[float, str]]]:
    """Resources of which a pod requests more than any node that admits it has: both amounts."""
    snapshot = search.snapshot
    for shape in search.gang.pending_shapes.values():
        admitted = eventually_admitted(shape, snapshot.nodes)
        for name, wanted in sorted(shape.requests.items()):
            row = snapshot.resources.positions.get(name)
            if row is None or not admitted.any():
                continue
            sizes = snapshot.nodes.allocatable[row][admitted]
            most = float(sizes.max())
            if not 0 < most < wanted:
                continue
            at = int(admitted.nonzero()[0][int(sizes.argmax())])
            written = snapshot.nodes.records[at].status.allocatable.get(name)
            yield name, (wanted, str(written))


def _reduce(amounts: dict[str, str], spec: Spec) -> None:
    for container in spec["containers"]:
        resources: dict[str, Any] = container.get("resources") or {}
        for part in ("requests", "limits"):
            for name, amount in amounts.items():
                if name in (resources.get(part) or {}):
                    resources[part][name] = amount


def reduce_devices(search: RemedySearch) -> Iterator[Suggestion]:
    """Claim fewer devices, the most with which it starts, in the first claim that is enough."""
    return first_verified(_fewer_devices(search, document) for document in claim_objects(search))


def _fewer_devices(search: RemedySearch, document: Document) -> Iterator[Suggestion]:
    counts = [each.get("count", 1) for each in claim_requests(document)]
    if len(counts) != 1 or not isinstance(counts[0], int) or counts[0] < 2:
        return
    count, recreated = counts[0], recreated_owners(search)

    def steps(less: int) -> list[Any]:
        return [replace(document, partial(_set_count, count - less)), *recreated]

    less = search.smallest_count(steps, limit=count - 1)
    if less:
        where = f"{document['kind']} {document['metadata']['name']}"
        text = f"claim {count_of(count - less, 'device')} instead of {count} in {where}"
        yield from search.verified(text, *steps(less))


def _set_count(count: int, manifest: Document) -> None:
    for request in claim_requests(manifest):
        request["count"] = count
