"""Rules on pods: their claims, the amounts of their containers, and their parts of GPUs."""

import re
from collections.abc import Iterator
from fractions import Fraction

import msgspec

from kai_py.api.gpu_share import SHARE_KEYS, GpuShareError, gpu_share
from kai_py.api.manifests import LineMapping, LineSequence
from kai_py.api.problems import FieldPath, closest_match
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.core import Pod
from kai_py.api.records.record import convert_record
from kai_py.embedded.kinds.amounts import STANDARD, is_of_containers
from kai_py.lint.manifest import (
    Finding,
    Manifest,
    mapping_at,
    mapping_at_line,
    mappings_at,
    move,
    set_key,
)
from kai_py.lint.rules.workloads import pod_specs

_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_CONTAINERS = ("containers", "initContainers")
_GROUPS_WITHOUT_COPIES = ("apps", "batch")
"""Groups whose workloads do not pass their own annotations on to their pods."""
GPU = "nvidia.com/gpu"
_BYTES = re.compile("([0-9.]+) *([kmgtp])(i?)b?", re.IGNORECASE)
"""An amount of bytes as people write it: 4GB, 4 Gi, 512mb."""


def pod_claims(manifest: Manifest) -> Iterator[Finding]:
    """A pod's claim has a name and exactly one source."""
    for path, spec in pod_specs(manifest):
        for index, claim in mappings_at(spec, "resourceClaims"):
            claim_path = (*path, "resourceClaims", index)
            source = claim.get("source")
            if isinstance(source, LineMapping):
                message = (
                    "source was removed: write resourceClaimName or resourceClaimTemplateName here"
                )
                yield manifest.error((*claim_path, "source"), message, fixed=True)
                del claim["source"]
                for key in list(source):
                    move(source, claim, key)
            if not claim.get("name"):
                yield manifest.error(claim_path, "has no name for containers to refer to")
            sources = [key for key in _SOURCES if claim.get(key)]
            if len(sources) != 1:
                message = f"needs exactly one of {' and '.join(_SOURCES)}"
                yield manifest.error(claim_path, message)


def container_claims(manifest: Manifest) -> Iterator[Finding]:
    """A container refers, under resources.claims, to claims of its pod."""
    for path, spec in pod_specs(manifest):
        names = [str(claim.get("name")) for _, claim in mappings_at(spec, "resourceClaims")]
        used: list[str] = []
        for container_path, container in _containers(spec, path):
            yield from _claims_level(manifest, container, container_path)
            yield from _claim_names(manifest, container, container_path, names, used)
        for index, name in enumerate(names):
            if name not in used:
                message = f"no container uses {name}: add it to resources.claims of one"
                yield manifest.hint((*path, "resourceClaims", index), message)


def extended_resources(manifest: Manifest) -> Iterator[Finding]:
    """Extended resources (nvidia.com/gpu) are whole, and equal in limits and requests."""
    for path, resources in _resources(manifest):
        yield from _limits_missing(manifest, resources, path)
        yield from _device_amounts(manifest, resources, path)


def amounts(manifest: Manifest) -> Iterator[Finding]:
    """Requests and limits are quantities of resources; none of the node's is above its limit."""
    for path, resources in _resources(manifest):
        limits = mapping_at(resources, "limits")
        for side in ("limits", "requests"):
            for key, written in mapping_at(resources, side).items():
                problem = _amount_problem(str(key), written, limits.get(key))
                if problem:
                    yield manifest.error((*path, side, key), problem)


def _amount_problem(resource: str, written: object, limit: object) -> str:
    if not isinstance(written, str | int | float):
        return ""
    if not is_of_containers(resource):
        meant = GPU if "gpu" in resource.lower() else closest_match(resource, STANDARD)
        known = f"without a domain, only {', '.join(STANDARD)} exist"
        return f"the API rejects this resource: {f'write {meant}' if meant else known}"
    amount, most = _amount(written), _amount(limit)
    if amount is None:
        return f"{written!r} is not a quantity{_advice(str(written))}"
    if amount < 0:
        return f"{written!r} is less than 0, the API rejects it"
    if most is not None and amount > most and not _is_extended(resource):
        return f"{written!r} is above the limit, {limit!r}"
    return ""


def _advice(written: str) -> str:
    found = _BYTES.fullmatch(written)
    if not found:
        return ""
    number, unit = found[1], found[2].upper()
    binary, decimal = f"{number}{unit}i", f"{number}{'k' if unit == 'K' else unit}"
    return f": write {binary}" if found[3] else f": write {decimal} or {binary}"


def _containers(spec: LineMapping, path: FieldPath) -> Iterator[tuple[FieldPath, LineMapping]]:
    """The containers of a pod spec, which is at ``path``, each with its path."""
    for kind in _CONTAINERS:
        for index, container in mappings_at(spec, kind):
            yield (*path, kind, index), container


def _resources(manifest: Manifest) -> Iterator[tuple[FieldPath, LineMapping]]:
    """The resources of every container, each with its path."""
    for path, spec in pod_specs(manifest):
        for container_path, container in _containers(spec, path):
            yield (*container_path, "resources"), mapping_at(container, "resources")


def _limits_missing(
    manifest: Manifest, resources: LineMapping, path: FieldPath
) -> Iterator[Finding]:
    requests, limits = mapping_at(resources, "requests"), mapping_at(resources, "limits")
    for key in requests:
        if not _is_extended(key) or key in limits:
            continue
        message = f"{key} must be set in limits too, with the same number"
        yield manifest.error((*path, "requests", key), message, fixed=True)
        if "limits" not in resources:
            set_key(resources, "limits", limits)
        set_key(limits, key, requests[key])


def _device_amounts(
    manifest: Manifest, resources: LineMapping, path: FieldPath
) -> Iterator[Finding]:
    requests, limits = mapping_at(resources, "requests"), mapping_at(resources, "limits")
    for key in filter(_is_extended, limits):
        limit = _amount(limits[key])
        if limit is None:
            continue  # ``amounts`` reports it.
        if limit % 1:
            message = f"{limits[key]!r} is not whole, the API rejects it"
            if key == GPU:
                message += ": a part of a GPU is requested by the annotation gpu-fraction"
            yield manifest.error((*path, "limits", key), message)
        elif key in requests and _amount(requests[key]) != limit:
            message = f"{requests[key]!r} must be the same as in limits, {limits[key]!r}"
            yield manifest.error((*path, "requests", key), message)


def _is_extended(resource: str) -> bool:
    return "/" in resource and not resource.startswith("kubernetes.io/")


def _amount(value: object) -> Fraction | None:
    try:
        return Fraction(parse_quantity(value).nano, 10**9)
    except (QuantityError, TypeError, AttributeError):
        return None


def _claims_level(manifest: Manifest, container: LineMapping, path: FieldPath) -> Iterator[Finding]:
    """Move claims beside resources, or in its limits or requests, to where they belong."""
    resources = mapping_at(container, "resources")
    for owner, owner_path in (
        (container, path),
        (mapping_at(resources, "limits"), (*path, "resources", "limits")),
        (mapping_at(resources, "requests"), (*path, "resources", "requests")),
    ):
        if isinstance(owner.get("claims"), list) and "claims" not in resources:
            message = "claims belong under resources.claims of the container"
            yield manifest.error((*owner_path, "claims"), message, fixed=True)
            if "resources" not in container:
                resources = mapping_at_line(container.line)
                set_key(container, "resources", resources)
            move(owner, resources, "claims")


def _claim_names(
    manifest: Manifest, container: LineMapping, path: FieldPath, names: list[str], used: list[str]
) -> Iterator[Finding]:
    claims = mapping_at(container, "resources").get("claims")
    if not isinstance(claims, LineSequence):
        return
    path = (*path, "resources", "claims")
    for index, written in enumerate(claims):
        if isinstance(written, str):
            message = f"a claim is written '- name: {written}'"
            yield manifest.error((*path, index), message, fixed=True)
            claims[index] = mapping_at_line(claims.lines[index], name=written)
        claim = claims[index]
        if not isinstance(claim, LineMapping):
            message = f"must be a mapping with the name of a claim, is {claim!r}"
            yield manifest.error((*path, index), message)
            continue
        name = str(claim.get("name"))
        if name not in names:
            suggestion = closest_match(name, names) or (names[0] if len(names) == 1 else None)
            advice = f"write {suggestion}" if suggestion else "add it to the pod's resourceClaims"
            message = f"{name} is not a claim of this pod: {advice}"
            yield manifest.error((*path, index, "name"), message, fixed=suggestion is not None)
            if suggestion:
                set_key(claim, "name", suggestion)
                name = suggestion
        used.append(name)


def gpu_shares(manifest: Manifest) -> Iterator[Finding]:
    """Parts of GPUs are requested by annotations of the pod, with values that are valid."""
    for spec_path, spec in pod_specs(manifest):
        if spec_path[-1] != "spec":
            continue
        path = (*spec_path[:-1], "metadata")
        metadata = mapping_at(manifest.value, *path)
        yield from _as_labels(manifest, metadata, path)
        yield from _values(manifest, metadata, path, spec)
    if manifest.group in _GROUPS_WITHOUT_COPIES:
        yield from _above_the_pods(manifest)


def _as_labels(manifest: Manifest, metadata: LineMapping, path: FieldPath) -> Iterator[Finding]:
    labels = mapping_at(metadata, "labels")
    for key in [key for key in labels if key in SHARE_KEYS]:
        message = f"{key} is an annotation; as a label it is ignored"
        yield manifest.error((*path, "labels", key), message, fixed=True)
        if "annotations" not in metadata:
            set_key(metadata, "annotations", LineMapping(metadata.line))
        move(labels, metadata["annotations"], key)
    if "labels" in metadata and not metadata["labels"]:
        del metadata["labels"]


def _values(
    manifest: Manifest, metadata: LineMapping, path: FieldPath, spec: LineMapping
) -> Iterator[Finding]:
    annotations = mapping_at(metadata, "annotations")
    asked = [key for key in annotations if key in SHARE_KEYS]
    if not asked:
        return
    try:
        gpu_share(convert_record({"metadata": {"annotations": annotations}, "spec": spec}, Pod))
    except GpuShareError as error:
        named = next((key for key in asked if f" {key}:" in str(error)), asked[0])
        message = str(error).removeprefix(f"annotation {named}: ")
        yield manifest.error((*path, "annotations", named), message)
    except msgspec.ValidationError:
        return  # Other rules report which value is of another type.


def _above_the_pods(manifest: Manifest) -> Iterator[Finding]:
    for field in ("annotations", "labels"):
        for key in mapping_at(manifest.value, "metadata", field):
            if key in SHARE_KEYS:
                message = f"{key} is ignored here: write it among the annotations of the pods"
                yield manifest.error(("metadata", field, key), message)
