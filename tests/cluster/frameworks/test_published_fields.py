"""Every field that a rule reads exists in the published CRD of its kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kai_py.grouping.failure_limits import JOB_RESTARTS
from kai_py.grouping.owner_chain import GroupKind
from kai_py.grouping.rule_table import RuleTable, read_rules, shipped_rules
from tests.cluster.frameworks.modules import definitions
from tests.support import yaml_text

DEFINED = {
    "sigs.k8s.io/jobset": "config/components/crd/bases/*.yaml",
    "sigs.k8s.io/lws": "config/crd/bases/*.yaml",
    "github.com/ray-project/kuberay/ray-operator": "config/crd/bases/*.yaml",
    "github.com/kubeflow/training-operator": "manifests/base/crds/*.yaml",
    "github.com/kubeflow/mpi-operator": "manifests/base/*mpijobs.yaml",
    "github.com/kubeflow/trainer/v2": "manifests/base/crds/*.yaml",
    "github.com/kserve/kserve": "config/crd/full/**/serving*.yaml",
}
WRITTEN_DOWN = yaml_text.read(Path(__file__).with_name("published_fields.yaml").read_text())
POD_RESOURCES = "spec.mpiReplicaSpecs.Launcher.template.spec.resources"
"""Resources of a whole pod are younger than this CRD, which drops them."""
ABSENT = {
    # Of JobSet v0.12 (KEP-262, the action RestartJob).
    ("JobSet.jobset.x-k8s.io", "v1alpha2"): {JOB_RESTARTS},
    ("MPIJob.kubeflow.org", "v1"): {"spec.launcherCreationPolicy", POD_RESOURCES},
    ("MPIJob.kubeflow.org", "v2beta1"): {POD_RESOURCES},
    **{
        (kind, "v1alpha1"): {
            f"{cluster}.workerGroupSpecs.*.numOfHosts",
            f"{cluster}.workerGroupSpecs.*.suspend",
            *more,
        }
        for kind, cluster, more in (
            ("RayCluster.ray.io", "spec", ()),
            (
                "RayJob.ray.io",
                "spec.rayClusterSpec",
                ("spec.submissionMode", "spec.backoffLimit", "status.failed"),
            ),
        )
    },
}
"""Fields that older versions lack; their defaults are what those versions do."""


@pytest.fixture(scope="module")
def schemas() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """By kind and version the schema that is published."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for module, pattern in DEFINED.items():
        for definition in definitions(module, pattern):
            spec = definition["spec"]
            kind = str(GroupKind(spec["group"], spec["names"]["kind"]))
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                found.setdefault(kind, {})[version["name"]] = schema
    return found


def unknown(table: RuleTable, schemas) -> dict[tuple[str, str], set[str]]:
    """By kind and version the fields that rules read and no CRD has."""
    missing = {}
    for kind in table.kinds():
        paths = table.paths(kind)
        if not paths:
            continue
        if str(kind) in WRITTEN_DOWN:
            fields = WRITTEN_DOWN[str(kind)]["fields"]
            missing[str(kind), "written down"] = {
                path for path in paths if not any(is_below(each, path) for each in fields)
            }
            continue
        for version, schema in schemas.get(str(kind), {"": {}}).items():
            missing[str(kind), version] = {
                path for path in paths if not has(schema, path.split("."))
            }
    return {place: paths for place, paths in missing.items() if paths}


def is_below(field: str, path: str) -> bool:
    """Whether a field is the one at ``path``, or one below it; ``*`` in a field is any name."""
    pairs = list(zip(field.split("."), path.split("."), strict=False))
    long_enough = len(field.split(".")) >= len(path.split("."))
    return long_enough and all(known in ("*", part) for known, part in pairs)


def has(schema: Mapping[str, Any], path: list[str]) -> bool:
    """Whether the field exists, or its parent keeps fields that it does not know."""
    if not path or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    first, *rest = path
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    if first == "*" and "items" in schema:
        return has(schema["items"], rest)
    if first == "*" and properties:
        return any(has(each, rest) for each in properties.values())
    if first in properties:
        return has(properties[first], rest)
    return isinstance(others, dict) and has(others, rest)


def test_every_field_that_a_rule_reads_is_published(schemas):
    assert unknown(RuleTable(shipped_rules()), schemas) == ABSENT


def test_an_unknown_field_is_found(schemas):
    rule = "rules:\n  - owners: [{group: GROUP, kinds: [KIND]}]\n    floor: {first: [spec.sise]}\n"
    for group, kind, version in (
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "v1"),
        ("sparkoperator.k8s.io", "SparkApplication", "written down"),
        ("example.com", "Simulation", ""),
    ):
        text = rule.replace("GROUP", group).replace("KIND", kind)
        found = unknown(RuleTable(read_rules(text, "own.yaml")), schemas)
        assert found == {(f"{kind}.{group}", version): {"spec.sise"}}
