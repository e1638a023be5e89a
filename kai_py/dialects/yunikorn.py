"""YuniKorn's task groups: an application is the gang, each task group a leaf of it.

The pod that starts an application lists the groups, with their ``minMember``, in an annotation;
every pod names its own. Until the list is seen, one pod of a group is required.

Source: Apache YuniKorn, "Gang Scheduling".
"""

from typing import Annotated

import msgspec

from kai_py.api.numbers import MAX_COUNT
from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.gang import GangSpec, Subgroup, pod_owner
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain

GROUP_KEY = "yunikorn.apache.org/task-group-name"
GROUPS_KEY = "yunikorn.apache.org/task-groups"
APPLICATION_KEYS = ("yunikorn.apache.org/app-id", "applicationId", "spark-app-selector")
"""Spark itself writes the last one on all pods of an application."""


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: str
    min_member: Annotated[int, msgspec.Meta(le=MAX_COUNT)] = 0


def _application(meta: ObjectMeta) -> str:
    for key in APPLICATION_KEYS:
        name = meta.labels.get(key) or meta.annotations.get(key)
        if name:
            return name
    return ""


def _marker(chain: OwnerChain) -> str:
    meta = chain.pod.metadata
    name = meta.annotations.get(GROUP_KEY, "")
    return f'annotation {GROUP_KEY} "{name}"' if name and _application(meta) else ""


def _gang(context: PodContext) -> GangSpec:
    meta = context.chain.pod.metadata
    subgroup, problem = meta.annotations[GROUP_KEY], ""
    listed = [_TaskGroup(name=subgroup, min_member=1)]
    if GROUPS_KEY in meta.annotations:
        try:
            listed = msgspec.json.decode(meta.annotations[GROUPS_KEY], type=list[_TaskGroup])
        except (ValueError, RecursionError) as error:
            problem = f"pod {meta.namespace}/{meta.name}: annotation {GROUPS_KEY}: {error}"
    known = subgroup in {each.name for each in listed}
    return GangSpec(
        key=f"{meta.namespace}/Application.yunikorn.apache.org/{_application(meta)}",
        owner=pod_owner(context.chain.pod),
        queue=context.queue.name,
        tree=Subgroup(
            children=tuple(
                Subgroup(name=each.name, min_members=max(each.min_member, 0)) for each in listed
            )
        ),
        subgroup=subgroup,
        problem=problem,
        pod_problem="" if known else f'annotation {GROUP_KEY} "{subgroup}" is not in {GROUPS_KEY}',
    )


YUNIKORN = GroupSource(marker=_marker, gang_spec=_gang)
