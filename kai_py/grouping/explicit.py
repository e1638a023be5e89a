"""Our own annotations on a pod: ``scheduling.kai.io/pod-group`` names its gang.

``scheduling.kai.io/min-available`` is the gang's floor (1 without it), ``…/subgroup`` the pod's
leaf where the gang has several.
"""

from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.lineage import Lineage
from kai_py.grouping.marks import marked, whole_number
from kai_py.grouping.sources import Asked, Source

POD_GROUP_KEY = "scheduling.kai.io/pod-group"
MIN_AVAILABLE_KEY = "scheduling.kai.io/min-available"


def pod_owner(lineage: Lineage) -> Owner:
    """The pod itself, as what events are written to."""
    meta = lineage.pod.metadata
    return Owner("v1", "Pod", meta.namespace, meta.name, meta.uid)


def _mark(lineage: Lineage) -> str:
    name = marked(lineage.pod.metadata, POD_GROUP_KEY)
    return f'{POD_GROUP_KEY} "{name}"' if name else ""


def _gang(asked: Asked) -> GangSpec:
    meta = asked.lineage.pod.metadata
    name = marked(meta, POD_GROUP_KEY)
    floor, problem = whole_number(meta, MIN_AVAILABLE_KEY)
    return GangSpec(
        key=f"{meta.namespace}/PodGroup/{name}",
        owner=pod_owner(asked.lineage),
        queue=asked.queue.name,
        tree=Subgroup(min_members=1 if floor is None else floor),
        problem=f"pod {meta.namespace}/{meta.name}: {problem}" if problem else "",
    )


EXPLICIT = Source(mark=_mark, gang=_gang)
