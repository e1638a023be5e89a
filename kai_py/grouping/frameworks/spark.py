"""Spark: a driver, and the executors that it requests.

spark-submit without an operator creates a driver pod without an owner, which owns the executors.
Both have the application's label. The executors come later, so the gang's minMember is 1.

Of a SparkApplication, the driver starts first and requests its executors, which start together:

    minMember of the executors = with dynamicAllocation, if enabled, its minExecutors, else its
                                 initialExecutors; else executor.instances; at most Spark's limit
                                 of pending pods

Where a field is not set, the setting of Spark in ``sparkConf`` that it stands for counts. One of
the two subgroups is enough: the driver alone in cluster mode, the executors alone in client mode. A
driver starts when its executors fit as well.

Source: sparkoperator.k8s.io/v1beta2 and the defaults of its operator; Spark's configuration.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured, mapping_at
from kai_py.grouping.counts import parse_count, parse_memory_size
from kai_py.grouping.gang import ExpectedPods, GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    WorkloadOwner,
    full_owner,
    lowercase_label_reader,
    pod_of_template,
)
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.roles import Role, role_leaves

APPLICATION_LABEL = "spark-app-selector"
ROLE_LABEL = "spark-role"
DRIVER = "driver"
EXECUTOR = "executor"
DYNAMIC_ALLOCATION = "spec.dynamicAllocation"
DRIVER_MARKS = "spec.driver.annotations"
EXECUTOR_MARKS = "spec.executor.annotations"
SPARK_CONF = "spec.sparkConf"
LANGUAGE = "spec.type"
EXECUTOR_SPEC = "spec.executor"
PLACEMENT_FIELDS = ("nodeSelector", "affinity", "tolerations")
EXECUTOR_FIELDS = (
    *("instances", "cores", "coreRequest", "memory", "memoryOverhead", "gpu"),
    *("labels", "annotations"),
    *PLACEMENT_FIELDS,
)
EXECUTOR_SETTINGS = {
    "instances": "spark.executor.instances",
    "cores": "spark.executor.cores",
    "coreRequest": "spark.kubernetes.executor.request.cores",
    "memory": "spark.executor.memory",
    "memoryOverhead": "spark.executor.memoryOverhead",
}
"""The setting of Spark that a field of the executor stands for."""
ALLOCATION_SETTINGS = {
    field: f"spark.dynamicAllocation.{field}"
    for field in ("enabled", "initialExecutors", "minExecutors")
}
GPU_AMOUNT, GPU_VENDOR = (f"spark.executor.resource.gpu.{each}" for each in ("amount", "vendor"))
MAX_PENDING_PODS = "spark.kubernetes.allocation.maxPendingPods"

_role = lowercase_label_reader(ROLE_LABEL)


def _marker(chain: OwnerChain) -> str:
    name = chain.pod.metadata.labels.get(APPLICATION_LABEL, "")
    if not name or (chain.owners and chain.owners[-1].kind.kind != "Pod"):
        return ""
    is_unknown = chain.unknown is not None and chain.unknown.kind != "Pod"
    return "" if is_unknown else f'label {APPLICATION_LABEL} "{name}"'


def _gang(context: PodContext) -> GangSpec:
    meta = context.chain.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Spark/{meta.labels[APPLICATION_LABEL]}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=Subgroup(min_members=1),
        order=0 if meta.labels.get(ROLE_LABEL) == DRIVER else 1,
    )


SPARK = GroupSource(marker=_marker, gang_spec=_gang)


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    found = full_owner(workload)
    min_executors = _min_executors(found)
    marks = (DRIVER_MARKS, EXECUTOR_MARKS)
    annotations = [(path, mapping_at(found.content, path)) for path in marks]
    leaves = role_leaves(
        workload,
        (
            Role(DRIVER, 1, 1, annotations[0]),
            Role(
                EXECUTOR,
                min_executors,
                min_executors,
                annotations[1],
                has_segments_of_workload=True,
            ),
        ),
    )
    return GangTemplate(
        tree=Subgroup(min_subgroups=1, children=leaves.subgroups),
        subgroup_of=leaves.reader(_leaf),
        order_of=_rank,
        expected=(ExpectedPods(EXECUTOR, min_executors, _executor(found)),),
    )


class _Field(NamedTuple):
    """A value, None where it is not set, and its place in the application."""

    value: Any
    location: str

    def count(self, default: int) -> int:
        """The value as a number of pods; raises InvalidWorkloadError."""
        return default if self.value is None else parse_count(self.value, self.location)


def _fields(found: Unstructured, path: str, settings: Mapping[str, str]) -> dict[str, _Field]:
    """Fields below ``path``, or the settings of Spark that they stand for."""
    written, conf = mapping_at(found.content, path), mapping_at(found.content, SPARK_CONF)
    return {
        field: _Field(conf.get(key), f"{SPARK_CONF}[{key}]")
        if written.get(field) is None
        else _Field(written[field], f"{path}.{field}")
        for field, key in settings.items()
    }


def _first(fields: Mapping[str, _Field], *names: str) -> object:
    return next((fields[name].value for name in names if fields[name].value), None)


def _executor(found: Unstructured) -> Pod:
    """An executor as Spark creates it, as far as that decides where it fits.

    Memory is what the JVM gets, in MiB where the unit is left out, and the overhead: a tenth of it
    (0.4 for Python and R), at least 384 MiB, unless it is set.
    """
    spec = mapping_at(found.content, EXECUTOR_SPEC)
    fields = _fields(found, EXECUTOR_SPEC, EXECUTOR_SETTINGS)
    requests: dict[str, Any] = {
        "cpu": _first(fields, "coreRequest", "cores") or 1,
        "memory": _memory(fields, str(found.first_at(LANGUAGE) or "")),
        **_gpus(spec, mapping_at(found.content, SPARK_CONF)),
    }
    requests = {name: str(amount) for name, amount in requests.items()}
    template = {
        "metadata": {name: spec[name] for name in ("labels", "annotations") if name in spec},
        "spec": {
            "containers": [{"resources": {"requests": requests}}],
            **{name: spec[name] for name in PLACEMENT_FIELDS if name in spec},
        },
    }
    return pod_of_template(template, found.metadata, EXECUTOR_SPEC)


def _gpus(spec: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The GPUs of an executor by resource: of the operator's field, else as Spark requests them."""
    gpu = spec.get("gpu")
    if isinstance(gpu, dict) and gpu.get("name"):
        return {str(gpu["name"]): gpu.get("quantity", 1)}
    vendor, amount = settings.get(GPU_VENDOR), settings.get(GPU_AMOUNT)
    return {f"{vendor}/gpu": amount} if vendor and amount else {}


def _memory(fields: Mapping[str, _Field], language: str) -> int:
    """Bytes of an executor's container."""
    memory = _size(fields["memory"], "1g")
    if fields["memoryOverhead"].value:
        return memory + _size(fields["memoryOverhead"], "0")
    share = 4 if language in ("Python", "R") else 1
    return memory + max(memory * share // 10, 384 << 20)


def _size(field: _Field, default: str) -> int:
    return parse_memory_size(field.value or default, field.location, default_unit="m")


def _min_executors(found: Unstructured) -> int:
    executor = _fields(found, EXECUTOR_SPEC, EXECUTOR_SETTINGS)
    allocation = _fields(found, DYNAMIC_ALLOCATION, ALLOCATION_SETTINGS)
    min_members = executor["instances"].count(1)
    if str(allocation["enabled"].value).lower() == "true":
        initial = allocation["initialExecutors"].count(min_members)
        min_members = allocation["minExecutors"].count(initial)
    max_pending = _Field(
        mapping_at(found.content, SPARK_CONF).get(MAX_PENDING_PODS),
        f"{SPARK_CONF}[{MAX_PENDING_PODS}]",
    )
    return min(min_members, max_pending.count(min_members))


def _leaf(pod: Pod) -> str:
    """Any pod that is no executor counts with the driver, for example one that submits."""
    return EXECUTOR if _role(pod) == EXECUTOR else DRIVER


def _rank(pod: Pod) -> int:
    return 0 if _leaf(pod) == DRIVER else 1


SPARK_APPLICATION = Framework(
    field_paths=(
        DYNAMIC_ALLOCATION,
        SPARK_CONF,
        LANGUAGE,
        DRIVER_MARKS,
        *(f"{EXECUTOR_SPEC}.{field}" for field in EXECUTOR_FIELDS),
    ),
    gang_template=_gang_template,
)
