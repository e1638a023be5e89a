"""YuniKorn's task groups: an application is the gang, each task group a leaf of it.

The pod that starts an application lists the groups, with their ``minMember``, in an annotation;
every pod names its own. The list of a pod counts for all pods that it owns: the driver of Spark is
the owner of its executors. Until the list is seen, one pod of a group is required.

Pods with a list go first. A group starts with minMember pods. YuniKorn places stand-ins for pods of
other groups that do not exist yet, as pods of the first may create them: the application starts
when these fit as well, as the list describes them.

Source: Apache YuniKorn, "Gang Scheduling".
"""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from kai_py.api.numbers import MAX_COUNT
from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.gang import ExpectedPods, GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_template import InvalidWorkloadError, pod_of_template
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain

GROUP_KEY = "yunikorn.apache.org/task-group-name"
GROUPS_KEY = "yunikorn.apache.org/task-groups"
APPLICATION_KEYS = ("yunikorn.apache.org/app-id", "applicationId", "spark-app-selector")
"""Spark itself writes the last one on all pods of an application."""


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: str
    min_member: Annotated[int, msgspec.Meta(le=MAX_COUNT)] = 0
    min_resource: dict[str, str | int | float] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    node_selector: Any = None
    tolerations: Any = None
    affinity: Any = None


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
    subgroup = meta.annotations[GROUP_KEY]
    spec = GangSpec(
        key=f"{meta.namespace}/Application.yunikorn.apache.org/{_application(meta)}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=Subgroup(children=(Subgroup(name=subgroup, min_members=1),)),
        subgroup=subgroup,
        order=0 if GROUPS_KEY in meta.annotations else 1,
    )
    lists = (each.annotations.get(GROUPS_KEY) for each in context.chain.metas)
    text = next((each for each in lists if each is not None), None)
    if text is None:
        return spec
    location = f"annotation {GROUPS_KEY}"
    try:
        listed = msgspec.json.decode(text, type=list[_TaskGroup])
        expected = tuple(_expected(listed, subgroup, meta, location))
    except InvalidWorkloadError as error:
        return replace(spec, problem=f"pod {meta.namespace}/{meta.name}: {error}")
    except (ValueError, RecursionError) as error:
        return replace(spec, problem=f"pod {meta.namespace}/{meta.name}: {location}: {error}")
    known = subgroup in {each.name for each in listed}
    leaves = [
        Subgroup(
            name=each.name, min_members=max(each.min_member, 0) if each.name == subgroup else 0
        )
        for each in listed
    ]
    return replace(
        spec,
        tree=Subgroup(children=tuple(leaves)),
        expected=expected,
        pod_problem="" if known else f'annotation {GROUP_KEY} "{subgroup}" is not in {GROUPS_KEY}',
    )


def _expected(
    listed: Iterable[_TaskGroup], subgroup: str, meta: ObjectMeta, location: str
) -> Iterable[ExpectedPods]:
    """Pods of the groups beside ``subgroup``, of which none may exist yet."""
    for each in listed:
        if each.name == subgroup or each.min_member < 1:
            continue
        requests = {name: str(amount) for name, amount in (each.min_resource or {}).items()}
        placement = {
            "nodeSelector": each.node_selector or {},
            "tolerations": each.tolerations or [],
            "affinity": each.affinity,
        }
        template = {
            "metadata": {"labels": each.labels or {}, "annotations": each.annotations or {}},
            "spec": {"containers": [{"resources": {"requests": requests}}], **placement},
        }
        pod = pod_of_template(template, meta, f"{location}[{each.name}]")
        yield ExpectedPods(each.name, each.min_member, pod)


YUNIKORN = GroupSource(marker=_marker, gang_spec=_gang)
