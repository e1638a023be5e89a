"""Rows of recorded lists of jobs or nodes; one function per format.

A format is identified by columns that no other has; ``traces`` names the sources.
"""

import math
import re
from collections.abc import Callable, Mapping

from kai_py.simulate.scenario import NodeGroup, ScenarioJob

Row = Mapping[str, str]
MODEL_LABEL = "nvidia.com/gpu.product"
HIGH_PRIORITY = 1000
GIB_PER_CPU = 4.0
"""Memory where a list has none."""
MIN_MINUTES = 1 / 60
MAX_NAME_LENGTH = 40
TRUE_TEXTS = ("1", "true", "yes")
COLUMN_ALIASES = {
    "pod": "name",
    "node": "sn",
    "mem_mib": "memory_mib",
    "create_s": "creation_time",
    "delete_s": "deletion_time",
}
"""Columns of openb under the names of other distributions of it."""


def openb_job(row: Row) -> ScenarioJob:
    """A pod, from its creation to its deletion."""
    gpus = int(_number(row, "num_gpu" if row.get("num_gpu") else "gpus"))
    created = _number(row, "creation_time", 0)
    deleted = _number(row, "deletion_time", created)
    share = _number(row, "gpu_milli", 1000) / 1000
    return ScenarioJob(
        name=_label(row["name"]),
        queue=_label(row["qos"]) or "none",
        gpus_per_pod=share if gpus == 1 else gpus,
        cpu_per_pod=max(_number(row, "cpu_milli") / 1000, 0.001),
        memory_gib_per_pod=max(_number(row, "memory_mib") / 1024, 0.001),
        minutes=max((deleted - created) / 60, MIN_MINUTES),
        node_selector=_models(row["gpu_spec"]),
        at=created / 60,
    )


def openb_node(row: Row) -> NodeGroup:
    """A machine."""
    return NodeGroup(
        name="node",
        gpus=int(_number(row, "gpu" if row.get("gpu") else "gpus", 0)),
        cpu=_number(row, "cpu_milli") / 1000,
        memory_gib=_number(row, "memory_mib") / 1024,
        labels=_model(row["model"]),
        price_per_hour=_number(row, "price_per_hour", 0),
        spot=row.get("spot", "").lower() in TRUE_TEXTS,
    )


def spot_job(row: Row) -> ScenarioJob:
    """A gang of equal workers; ``cpu_request`` and ``gpu_request`` are those of one."""
    cpu = max(_number(row, "cpu_request", 0), 0.001)
    return ScenarioJob(
        name=_label(f"job-{row['job_name']}"),
        queue=_label(f"org-{row['organization']}"),
        pods=int(_number(row, "worker_num", 1)),
        gpus_per_pod=_number(row, "gpu_request", 0),
        cpu_per_pod=cpu,
        memory_gib_per_pod=cpu * GIB_PER_CPU,
        minutes=max(_number(row, "duration") / 60, MIN_MINUTES),
        priority=HIGH_PRIORITY if row["job_type"].lower() == "hp" else 0,
        node_selector=_models(row["gpu_model"]),
        at=_number(row, "submit_time") / 60,
    )


def spot_node(row: Row) -> NodeGroup:
    """A machine; the list has no memory."""
    cpu = _number(row, "cpu_num")
    return NodeGroup(
        name="node",
        gpus=int(_number(row, "gpu_capacity_num")),
        cpu=cpu,
        memory_gib=cpu * GIB_PER_CPU,
        labels=_model(row["gpu_model"]),
        price_per_hour=_number(row, "price_per_hour", 0),
        spot=row.get("spot", "").lower() in TRUE_TEXTS,
    )


JOBS: Mapping[frozenset[str], Callable[[Row], ScenarioJob]] = {
    frozenset(("cpu_milli", "gpu_milli", "gpu_spec", "qos")): openb_job,
    frozenset(("job_name", "organization", "worker_num", "submit_time", "duration")): spot_job,
}
NODES: Mapping[frozenset[str], Callable[[Row], NodeGroup]] = {
    frozenset(("sn", "cpu_milli", "memory_mib", "model")): openb_node,
    frozenset(("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")): spot_node,
}
"""The reader of a format's rows, by its identifying columns."""


def _number(row: Row, column: str, default: float | None = None) -> float:
    """The number in a column, the default if it is empty; raises KeyError, ValueError."""
    text = row[column] if default is None else row.get(column) or ""
    if not text and default is not None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{column}: {text!r} is not a number")
    return number


def _label(text: str) -> str:
    """``text`` as a valid object name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_NAME_LENGTH].rstrip("-")


def _models(text: str) -> dict[str, str | tuple[str, ...]]:
    models = tuple(model for model in text.split("|") if model)
    if not models:
        return {}
    return {MODEL_LABEL: models[0] if len(models) == 1 else models}


def _model(text: str) -> dict[str, str]:
    return {MODEL_LABEL: text} if text else {}
