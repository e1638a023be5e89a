"""spark-submit without an operator: a driver pod that nobody owns, executors owned by the driver.

Both carry the application's label. The driver starts first and asks for executors later, so the
gang's floor is one pod.
"""

from kai_py.grouping.gang import GangSpec, Subgroup
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.pod_group_annotation import pod_owner

APPLICATION_LABEL = "spark-app-selector"
ROLE_LABEL = "spark-role"
DRIVER = "driver"


def _marker(chain: OwnerChain) -> str:
    name = chain.pod.metadata.labels.get(APPLICATION_LABEL, "")
    if not name or (chain.owners and chain.owners[-1].kind.kind != "Pod"):
        return ""
    waits = chain.unknown is not None and chain.unknown.kind != "Pod"
    return "" if waits else f'label {APPLICATION_LABEL} "{name}"'


def _gang(context: PodContext) -> GangSpec:
    meta = context.chain.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Spark/{meta.labels[APPLICATION_LABEL]}",
        owner=pod_owner(context.chain),
        queue=context.queue.name,
        tree=Subgroup(min_members=1),
        order=0 if meta.labels.get(ROLE_LABEL) == DRIVER else 1,
        workload_class="train",
    )


SPARK = GroupSource(marker=_marker, gang_spec=_gang)
