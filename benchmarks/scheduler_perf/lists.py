"""The lists as Kubernetes publishes them, read from the module that the server is built from.

A list (``performance-config.yaml``) has test cases: a template of operations, and workloads that
give its parameters. Source: test/integration/scheduler_perf of k8s.io/kubernetes.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.controlplane.binaries import MODULE, user_cache
from tests.cluster.controlplane.toolchain import find_go, go_environment

KUBERNETES = "k8s.io/kubernetes"
LISTS = Path("test/integration/scheduler_perf")
FILE = "performance-config.yaml"
_PLACEHOLDER = re.compile(r"\{\{\s*(Mod\s+)?\.Index\s*(\d+)?\s*\}\}")


@dataclass(frozen=True)
class Operation:
    """One step: its fields with the parameters of a workload in their places."""

    opcode: str
    fields: Mapping[str, Any]

    @property
    def is_measured(self) -> bool:
        """Whether the pods of this step are those that are counted."""
        return bool(self.fields.get("collectMetrics"))


@dataclass(frozen=True)
class Workload:
    """A test case with one set of parameters; templates are relative to ``directory``."""

    case: str
    name: str
    directory: Path
    pod_template: str
    operations: tuple[Operation, ...]


@cache
def lists_directory() -> Path:
    """The directory of the lists; downloads the module where the cache of Go lacks it."""
    cached = user_cache() / "kai-py" / "controlplane"
    found = subprocess.run(
        [find_go(MODULE, cached), "mod", "download", "-json", KUBERNETES],
        cwd=MODULE,
        env=go_environment(cached),
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(json.loads(found.stdout)["Dir"]) / LISTS


def workload(case: str, name: str) -> Workload:
    """The workload of a test case; raises LookupError where the lists have none of that name."""
    for each in workloads(lists_directory()):
        if (each.case, each.name) == (case, name):
            return each
    raise LookupError(f"no workload {case}/{name} in {lists_directory()}")


def reduced(full: Workload, divisor: int) -> Workload:
    """A workload with a fraction of its nodes and pods, at least one of each."""
    return replace(full, operations=tuple(_reduced(each, divisor) for each in full.operations))


def _reduced(operation: Operation, divisor: int) -> Operation:
    if operation.opcode not in {"createNodes", "createPods"}:
        return operation
    count = int(operation.fields["count"])
    less = max(count // divisor, min(count, 1))
    return replace(operation, fields={**operation.fields, "count": less})


def workloads(directory: Path) -> Iterator[Workload]:
    """Every workload of every list below a directory."""
    for path in sorted(directory.rglob(FILE)):
        for case in yaml.safe_load(path.read_text()):
            for sized in case["workloads"]:
                operations = tuple(
                    Operation(step["opcode"], with_parameters(step, sized.get("params") or {}))
                    for step in case["workloadTemplate"]
                )
                template = case.get("defaultPodTemplatePath", "")
                yield Workload(case["name"], sized["name"], path.parent, template, operations)


def with_parameters(step: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """A step with ``countParam: $pods`` replaced by ``count`` and the value of ``pods``."""
    found: dict[str, Any] = {}
    for field, value in step.items():
        if isinstance(value, dict):
            found[field] = with_parameters(value, params)
        elif field.endswith("Param"):
            found[field.removesuffix("Param")] = params[value.removeprefix("$")]
        else:
            found[field] = value
    return found


def manifest(directory: Path, template: str, index: int = 0) -> dict[str, Any]:
    """A template as an object; ``{{.Index}}`` and ``{{Mod .Index N}}`` are what it may contain."""
    text = _PLACEHOLDER.sub(
        lambda found: str(index % int(found[2]) if found[1] else index),
        _template(directory / template),
    )
    if "{{" in text:
        raise LookupError(f"{directory / template}: a template of another form")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


@cache
def _template(path: Path) -> str:
    return path.read_text()
