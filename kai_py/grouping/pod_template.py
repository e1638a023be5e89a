"""Pods that do not exist yet, built from the template of their owner; annotations with a number."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kai_py.api.numbers import NumberError, parse_count
from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.decoding import convert_record
from kai_py.grouping.gang_template import InvalidWorkloadError


def annotation_or_label(meta: ObjectMeta, key: str) -> str:
    """An annotation, or else a label, of an object; empty where it has neither."""
    return meta.annotations.get(key) or meta.labels.get(key) or ""


def count_annotation(meta: ObjectMeta, *keys: str, least: int = 0) -> tuple[int | None, str]:
    """The number under the first of ``keys`` that is set, and what is wrong with it."""
    for key in keys:
        text = annotation_or_label(meta, key)
        if text:
            try:
                return parse_count(text, least=least), ""
            except NumberError as error:
                return None, f"{key} {error}"
    return None, ""


TEMPLATE_FIELDS = (
    "metadata.labels",
    "metadata.annotations",
    "spec.containers.*.resources",
    "spec.initContainers.*.resources",
    "spec.initContainers.*.restartPolicy",
    "spec.resources",
    "spec.overhead",
    "spec.nodeSelector",
    "spec.affinity",
    "spec.tolerations",
    "spec.resourceClaims",
)
"""The fields of a template that decide where its pods fit."""


def template_paths(template: str) -> tuple[str, ...]:
    """The paths of these fields in the owner, for the template at ``template``."""
    return tuple(f"{template}.{field}" for field in TEMPLATE_FIELDS)


def pod_of_template(template: Mapping[str, Any], owner: ObjectMeta, location: str) -> Pod:
    """A pod of the owner's namespace; raises InvalidWorkloadError for an invalid template."""
    meta = dict(template.get("metadata") or {})
    meta |= {"namespace": owner.namespace, "name": owner.name}
    try:
        return convert_record({**template, "metadata": meta}, Pod)
    except msgspec.ValidationError as error:
        raise InvalidWorkloadError(f"{location}: {error}") from None
