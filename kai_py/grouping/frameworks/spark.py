"""spark-submit without an operator: a driver pod without an owner, executors owned by the driver.

Both have the application's label. The driver starts first and requests executors later, so the
gang's minMember is 1.
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
    is_unknown = chain.unknown is not None and chain.unknown.kind != "Pod"
    return "" if is_unknown else f'label {APPLICATION_LABEL} "{name}"'


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
