"""Rule for PodCliqueSets: fields of older articles, mapped to ``grove.io/v1alpha1``.

Articles write cliques as flat pods under ``spec.podCliques``, a start order and one scaling for the
set. Today a set is ``replicas`` copies of a ``template``: cliques with a ``spec`` each, a start
type, and scaling groups of cliques that grow together.

Source: Grove's API types, PodCliqueSet and PodClique.
"""

import itertools
from collections.abc import Iterator

from kai_py.api.manifests import LineMapping, LineSequence
from kai_py.api.problems import FieldPath
from kai_py.lint.manifest import (
    Finding,
    Manifest,
    at,
    mapping_at,
    mapping_at_line,
    mappings_at,
    move,
    served_as,
    set_key,
)

API_VERSION = "grove.io/v1alpha1"
_CLIQUE = ("name", "labels", "annotations", "topologyConstraint", "resourceSharing", "spec")
_CLIQUE_SPEC = {
    "replicas": "replicas",
    "minAvailable": "minAvailable",
    "minReplicas": "minAvailable",
    "roleName": "roleName",
    "role": "roleName",
    "startsAfter": "startsAfter",
    "dependsOn": "startsAfter",
    "autoScalingConfig": "autoScalingConfig",
    "scaling": "autoScalingConfig",
    "scaleConfig": "autoScalingConfig",
    "podSpec": "podSpec",
}
_TEMPLATE = (
    "cliques",
    "podCliqueScalingGroups",
    "cliqueStartupType",
    "priorityClassName",
    "headlessServiceConfig",
    "terminationDelay",
    "resourceClaimTemplates",
    "resourceSharing",
    "topologyConstraint",
)
_IN_ORDER, _EXPLICIT = "CliqueStartupTypeInOrder", "CliqueStartupTypeExplicit"
_GROUP_NAME = "group"
MUST_BE_MAPPING = "must be a mapping of fields"


def pod_clique_set(manifest: Manifest) -> Iterator[Finding]:
    """Map a set in an article's spelling to today's shape, field by field."""
    if not manifest.is_a("grove.io", "PodCliqueSet", "PodGangSet"):
        return
    if manifest.kind == "PodGangSet":
        yield manifest.error(("kind",), "PodGangSet is now called PodCliqueSet", fixed=True)
        manifest.value["kind"] = "PodCliqueSet"
    yield from served_as(manifest, API_VERSION)
    spec = mapping_at(manifest.value, "spec")
    template = _below(spec, "template")
    if template is None:
        yield manifest.error(("spec", "template"), MUST_BE_MAPPING)
        return
    yield from _levels(manifest, spec, template)
    for index, clique in mappings_at(template, "cliques"):
        yield from _clique(manifest, clique, ("spec", "template", "cliques", index))
    yield from _start_order(manifest, spec, template)
    yield from _scaling(manifest, spec, template)
    if "replicas" not in spec:
        set_key(spec, "replicas", 1)


def _levels(manifest: Manifest, spec: LineMapping, template: LineMapping) -> Iterator[Finding]:
    for key in ("podCliques", "cliques"):
        if key in spec and "cliques" not in template:
            message = f"{key} is now spec.template.cliques"
            yield manifest.error(("spec", key), message, fixed=True)
            move(spec, template, key, "cliques")
    for key in [key for key in spec if key in _TEMPLATE]:
        if key not in template:
            yield manifest.error(("spec", key), f"{key} is now spec.template.{key}", fixed=True)
            move(spec, template, key)


def _clique(manifest: Manifest, clique: LineMapping, path: FieldPath) -> Iterator[Finding]:
    """Move the flat fields of a clique into its spec and its pods' spec."""
    flat = [key for key in clique if key not in _CLIQUE]
    if not flat:
        return
    spec = _below(clique, "spec")
    if spec is None:
        yield manifest.error((*path, "spec"), MUST_BE_MAPPING)
        return
    if "roleName" not in spec and "roleName" not in clique and "role" not in clique:
        set_key(spec, "roleName", clique.get("name", ""))
    for key in (each for each in flat if each in _CLIQUE_SPEC):
        target = _CLIQUE_SPEC[key]
        if target in spec and spec[target] != clique[key]:
            message = f"{key} is now spec.{target} of the clique, which has another value: keep one"
            yield manifest.error((*path, key), message)
            continue
        message = f"{key} is now spec.{target} of the clique"
        yield manifest.error((*path, key), message, fixed=True)
        move(clique, spec, key, target)
    pod_fields = [key for key in flat if key not in _CLIQUE_SPEC]
    pods = _below(spec, "podSpec") if pod_fields else spec
    if pods is None:
        yield manifest.error((*path, "spec", "podSpec"), MUST_BE_MAPPING)
        return
    if pod_fields:
        message = f"{', '.join(pod_fields)} of the pods are now spec.podSpec.* of the clique"
        yield manifest.error((*path, pod_fields[0]), message, fixed=True)
    for key in pod_fields:
        move(clique, pods, key)


def _below(holder: LineMapping, key: str) -> LineMapping | None:
    """The mapping at a key, an empty one where there is none; None where there is anything else."""
    if key not in holder:
        set_key(holder, key, mapping_at_line(holder.line))
    found = holder[key]
    return found if isinstance(found, LineMapping) else None


def _start_order(manifest: Manifest, spec: LineMapping, template: LineMapping) -> Iterator[Finding]:
    order = spec.get("startupOrder")
    if not isinstance(order, LineSequence):
        return
    cliques = {str(clique.get("name")): clique for _, clique in mappings_at(template, "cliques")}
    in_order = sorted(map(str, order)) == sorted(cliques)
    kind = _IN_ORDER if in_order else _EXPLICIT
    where = "the order of the cliques" if in_order else "spec.startsAfter of each clique"
    message = f"startupOrder is now spec.template.cliqueStartupType: {kind}, with {where}"
    yield manifest.error(("spec", "startupOrder"), message, fixed=True)
    del spec["startupOrder"]
    set_key(template, "cliqueStartupType", kind)
    if in_order:
        listed = template["cliques"]
        listed.sort(key=lambda clique: order.index(clique["name"]))
        listed.lines.clear()
        listed.lines.extend(clique.line for clique in listed)
        return
    for before, name in itertools.pairwise(order):
        if name in cliques:
            if "spec" not in cliques[name]:
                set_key(cliques[name], "spec", mapping_at_line(cliques[name].line))
            set_key(cliques[name]["spec"], "startsAfter", [before])


def _scaling(manifest: Manifest, spec: LineMapping, template: LineMapping) -> Iterator[Finding]:
    """Turn one minimum and maximum for the set into a scaling group of all cliques."""
    scaling = mapping_at(spec, "scaling")
    if not scaling or "podCliqueScalingGroups" in template:
        return
    message = (
        "scaling of the set is now spec.template.podCliqueScalingGroups[]: all cliques in one "
        "group (cliqueNames), minReplicas as replicas and minAvailable, both in scaleConfig"
    )
    yield manifest.error(("spec", "scaling"), message, fixed=True)
    line = spec.line_of("scaling")
    minimum = scaling.get("minReplicas", 1)
    group = mapping_at_line(
        line,
        name=_GROUP_NAME,
        cliqueNames=[at(clique, "name") for _, clique in mappings_at(template, "cliques")],
        replicas=minimum,
        minAvailable=minimum,
        scaleConfig=scaling,
    )
    del spec["scaling"]
    set_key(template, "podCliqueScalingGroups", [group])
