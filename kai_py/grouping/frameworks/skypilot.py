"""SkyPilot: pods without an owner that form a cluster by their label.

    floor = the largest worker index + 1, at least 2 where pods avoid others of their cluster

The head is called ``<cluster>-head``, workers ``<cluster>-worker1`` and so on; SkyPilot creates all
of them at once and gives up if one does not start. No pod states how many there are, but only those
of clusters of several pods have an anti-affinity to their own cluster. The annotation
``scheduling.kai.io/min-available`` on the pods sets minMember. With Kueue, Kueue's labels decide.

Source: sky/provision/kubernetes/instance.py; labels in sky/provision/constants.py.
"""

from kai_py.api.numbers import MAX_COUNT, parse_int64
from kai_py.api.records.core import Pod
from kai_py.grouping.annotations import MIN_AVAILABLE_KEY
from kai_py.grouping.gang import GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_template import count_annotation
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain

CLUSTER_LABELS = ("skypilot-cluster-name", "skypilot-cluster")
WORKER_INFIX = "-worker"


def _cluster(pod: Pod) -> str:
    labels = pod.metadata.labels
    return next((labels[key] for key in CLUSTER_LABELS if labels.get(key)), "")


def _marker(chain: OwnerChain) -> str:
    name = _cluster(chain.pod)
    if not name or chain.pod.metadata.owner_references:
        return ""
    return f'label {CLUSTER_LABELS[0]} "{name}"'


def _gang(context: PodContext) -> GangSpec:
    pod = context.chain.pod
    meta = pod.metadata
    min_members, problem = count_annotation(meta, MIN_AVAILABLE_KEY)
    index = _worker_index(pod)
    if min_members is None:
        min_members = max(index + 1, 2 if _avoids_its_cluster(pod) else 1)
    return GangSpec(
        key=f"{meta.namespace}/SkyPilot/{_cluster(pod)}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=Subgroup(min_members=min_members),
        order=index,
        problem=f"pod {meta.namespace}/{meta.name}: {problem}" if problem else "",
    )


def _worker_index(pod: Pod) -> int:
    """The index of a worker, from 1 on; 0 for the head and for pods of other names."""
    _, _, text = pod.metadata.name.rpartition(WORKER_INFIX)
    index = parse_int64(text)
    return index if index is not None and 0 < index < MAX_COUNT else 0


def _avoids_its_cluster(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    terms = anti.preferred if anti is not None else ()
    return any(
        expression.key in CLUSTER_LABELS
        for term in terms
        if (selector := term.pod_affinity_term.label_selector) is not None
        for expression in selector.match_expressions
    )


SKYPILOT = GroupSource(marker=_marker, gang_spec=_gang)
