"""SparkApplication: the driver starts first and asks for its executors, which start together.

    floor of the executors = dynamicAllocation's minExecutors, else its initialExecutors,
                             else executor.instances; no more than may be pending at a time

One of the two is enough: the driver alone in cluster mode, the executors alone in client mode.

Source: sparkoperator.k8s.io/v1beta2; Spark's spark.kubernetes.allocation.maxPendingPods.
"""

from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.document import Document
from kai_py.grouping.blueprint import Blueprint, Framework, Workload, label, whole_document
from kai_py.grouping.counts import count_at, entries, whole
from kai_py.grouping.frameworks.spark import DRIVER, ROLE_LABEL
from kai_py.grouping.gang import Subgroup

EXECUTOR = "executor"
DYNAMIC = "spec.dynamicAllocation"
INSTANCES = "spec.executor.instances"
SETTINGS = "spec.sparkConf"
MOST_PENDING = "spark.kubernetes.allocation.maxPendingPods"

_role = label(ROLE_LABEL)


def _blueprint(workload: Workload) -> Blueprint:
    executors = Subgroup(name=EXECUTOR, min_members=_floor(whole_document(workload)))
    driver = Subgroup(name=DRIVER, min_members=1)
    return Blueprint(
        tree=Subgroup(min_subgroups=1, children=(driver, executors)), leaf=_leaf, rank=_rank
    )


def _floor(found: Document) -> int:
    floor = count_at(found.content, INSTANCES, 1)
    dynamic = _mapping(found, DYNAMIC)
    if dynamic and dynamic.get("enabled") is not False:
        initial = count_at(dynamic, "initialExecutors", floor, where=DYNAMIC)
        floor = count_at(dynamic, "minExecutors", initial, where=DYNAMIC)
    most = _mapping(found, SETTINGS).get(MOST_PENDING)
    return floor if most is None else min(floor, whole(most, f"{SETTINGS}[{MOST_PENDING}]"))


def _mapping(found: Document, path: str) -> dict[str, Any]:
    return dict(next(iter(entries(found.content, path)), {}))


def _leaf(pod: Pod) -> str:
    """Whatever is no executor stands beside the driver: a pod that submits, say."""
    return EXECUTOR if _role(pod) == EXECUTOR else DRIVER


def _rank(pod: Pod) -> int:
    return 0 if _leaf(pod) == DRIVER else 1


SPARK_APPLICATION = Framework(paths=(INSTANCES, DYNAMIC, SETTINGS), blueprint=_blueprint)
