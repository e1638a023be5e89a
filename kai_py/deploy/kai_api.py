"""KAI-Scheduler's API for clusters without KAI: definitions, priority classes, default queues.

With it KAI's manifests apply unchanged, and what talks to KAI's API (Grove, KubeRay, Dynamo) finds
it. Fields are those of KAI 0.17, with what they mean here; fields that are accepted and have no
effect say so. BindRequests and the operator's Config are not defined: pods are bound directly.

Source: KAI-Scheduler, deployments/kai-scheduler/crds and templates; docs/priority, docs/quickstart.
"""

from collections.abc import Mapping
from typing import Any

from kai_py.deploy.parts import Document, labels_of
from kai_py.dialects.kai.priority import CLASS_VALUES

GROUP, TOPOLOGY_GROUP = "scheduling.run.ai", "kai.scheduler"
PARENT_QUEUE, DEFAULT_QUEUE = "default-parent-queue", "default-queue"
UNLIMITED = -1
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""Kubernetes' quantities, as published definitions check them."""
SUBGROUP_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
CLASS_TEXTS: Mapping[str, str] = {
    "train": "Training and other batch work, which may be evicted.",
    "build-preemptible": "Interactive work that may be evicted.",
    "build": "Interactive work, which is not evicted and stays within the quota of its queue.",
    "inference": "Serving, which is not evicted and stays within the quota of its queue.",
}


def kai_defaults(name: str) -> list[Document]:
    """KAI's priority classes, and the queues of workloads that name none."""
    return [*_priority_classes(name), *_default_queues(name)]


def kai_definitions() -> list[Document]:
    """The CustomResourceDefinitions of KAI's Queue, PodGroup, Topology and SchedulingShard."""
    return [
        _definition(GROUP, "v2", "Queue", "queues", _queue(), columns=_queue_columns()),
        _definition(
            GROUP,
            "v2alpha2",
            "PodGroup",
            "podgroups",
            _pod_group(),
            scope="Namespaced",
            short_names=("pg",),
        ),
        _definition(TOPOLOGY_GROUP, "v1alpha1", "Topology", "topologies", _topology()),
        _definition(TOPOLOGY_GROUP, "v1", "SchedulingShard", "schedulingshards", _shard()),
    ]


def _definition(
    group: str,
    version: str,
    kind: str,
    plural: str,
    schema: Document,
    *,
    scope: str = "Cluster",
    short_names: tuple[str, ...] = (),
    columns: tuple[Document, ...] = (),
) -> Document:
    served: Document = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    if columns:
        served["additionalPrinterColumns"] = list(columns)
    names: Document = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
    }
    if short_names:
        names["shortNames"] = list(short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }


def _kind(description: str, spec: Document, status: Document) -> Document:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }
    return _object(description, properties)


def _object(description: str, properties: Document, *required: str) -> Document:
    schema: Document = {
        "type": "object",
        "description": description,
        "properties": properties,
    }
    return schema | ({"required": list(required)} if required else {})


def _text(description: str, **more: Any) -> Document:
    return {"type": "string", "description": description, **more}


def _count(description: str, **more: Any) -> Document:
    return {"type": "integer", "format": "int32", "description": description, **more}


def _list(description: str, items: Document, **more: Any) -> Document:
    return {"type": "array", "description": description, "items": items, **more}


def _amounts(description: str) -> Document:
    amount = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": True,
    }
    return {"type": "object", "description": description, "additionalProperties": amount}


def _open(description: str) -> Document:
    return {
        "type": "object",
        "description": description,
        "x-kubernetes-preserve-unknown-fields": True,
    }


def _queue() -> Document:
    units = {"gpu": "GPUs, in devices.", "cpu": "CPU, in millicores.", "memory": "Memory, in MB."}
    spec = {
        "displayName": _text("Name in metrics."),
        "parentQueue": _text("Name of the queue above; empty for a root queue."),
        "priority": {
            "type": "integer",
            "description": "Queues of a higher priority get the surplus first; 100 if unset.",
        },
        "preemptMinRuntime": _text(
            "How long gangs run before gangs of their queue may preempt them."
        ),
        "reclaimMinRuntime": _text("How long gangs run before other queues may reclaim them."),
        "resources": _object(
            "Guarantee and limit of the queue.",
            {resource: _share(text) for resource, text in units.items()},
        ),
    }
    status = {
        "childQueues": _list("Names of the queues below this one.", {"type": "string"}),
        "allocated": _amounts("Allocated to running pods of the queue and of queues below it."),
        "allocatedNonPreemptible": _amounts("The part of allocated that cannot be evicted."),
        "requested": _amounts("Requested by running and pending pods."),
        "conditions": _list("Ready, Orphan and OverQuota.", _condition()),
    }
    return _kind(
        "A queue shares the cluster with the others.",
        _object("Desired state.", spec),
        _object("Written by the scheduler.", status),
    )


def _share(text: str) -> Document:
    number = {"type": "number"}
    return _object(
        text,
        {
            "quota": number | {"description": "Guarantee; -1 is unlimited, unset is none."},
            "limit": number | {"description": "Limit; -1 is unlimited, unset is zero."},
            "overQuotaWeight": number
            | {"description": "Weight in the surplus; 0 or unset: no share of it."},
        },
    )


def _condition() -> Document:
    fields = ("type", "status", "reason", "message")
    times = ("lastProbeTime", "lastTransitionTime")
    properties: Document = {field: {"type": "string"} for field in fields}
    properties |= {field: {"type": "string", "format": "date-time"} for field in times}
    return {"type": "object", "properties": properties, "required": ["type", "status"]}


def _queue_columns() -> tuple[Document, ...]:
    columns = (
        ("Priority", ".spec.priority"),
        ("Parent", ".spec.parentQueue"),
        ("Children", ".status.childQueues"),
        ("DisplayName", ".spec.displayName"),
    )
    return tuple({"name": name, "type": "string", "jsonPath": path} for name, path in columns)


def _pod_group() -> Document:
    subgroup = {
        "name": _text("Name of the subgroup, to which pods refer by label.", pattern=SUBGROUP_NAME),
        "parent": _text("Name of the subgroup above this one.", pattern=SUBGROUP_NAME),
        "minMember": _count("Number of pods that it needs in order to start.", minimum=0),
        "minSubGroup": _count(
            "Number of subgroups below it that are needed; all if unset.", minimum=0
        ),
        "topologyConstraint": _topology_constraint(),
    }
    no_effect = "Accepted and ignored, as in KAI."
    spec = {
        "queue": _text("Name of the queue."),
        "priorityClassName": _text("Name of the PriorityClass."),
        "preemptibility": _text(
            "Whether it may be evicted for others; by default if its priority is below 100.",
            enum=["preemptible", "semi-preemptible", "non-preemptible", ""],
        ),
        "minMember": _count("Number of pods that the gang needs in order to start.", minimum=0),
        "minSubGroup": _count("Number of subgroups that are needed; all if unset.", minimum=0),
        "subGroups": _list(
            "Subgroups of the gang, which form a tree.",
            _object("A subgroup of the gang.", subgroup, "name"),
        ),
        "topologyConstraint": _topology_constraint(),
        "markUnschedulable": {
            "type": "boolean",
            "description": "Whether pods that cannot be scheduled get a condition that says so.",
        },
        "schedulingBackoff": _count("Number of attempts: 1, or -1 or unset for no limit."),
        "preemptionDelay": _text("How long it waits before it may evict others."),
        "stalenessGracePeriod": _text("How long it may run below minMember; negative: forever."),
        "backoffLimit": _count(no_effect),
        "completions": _count(no_effect),
        "parallelism": _count(no_effect),
    }
    resources = {
        "allocated": _amounts("Allocated to its running pods."),
        "allocatedNonPreemptible": _amounts("The part of allocated that cannot be evicted."),
        "requested": _amounts("Requested by its pods."),
    }
    status = {
        "resourcesStatus": _object("Allocated and requested resources.", resources),
        "schedulingConditions": _list("Why it is pending, per node pool.", _open("A reason.")),
        "conditions": _list("Not written.", _open("A condition.")),
        "phase": _text("Not written."),
        **{
            state: _count("Not written.") for state in ("pending", "running", "succeeded", "failed")
        },
    }
    return _kind(
        "A gang: pods that start together or not at all.",
        _object("Desired state.", spec),
        _object("Written by the scheduler.", status),
    )


def _topology_constraint() -> Document:
    return _object(
        "Topology domains in which the pods are kept together.",
        {
            "topology": _text("Name of the Topology that has the levels."),
            "requiredTopologyLevel": _text(
                "Label or alias of a level: all pods in one of its domains."
            ),
            "preferredTopologyLevel": _text(
                "Label or alias of a level: all pods in one of its domains if possible."
            ),
        },
    )


def _topology() -> Document:
    label = _text(
        "Node label whose values are the domains.", pattern=LABEL_KEY, minLength=1, maxLength=316
    )
    alias = _text("A name that may be used instead of the label.", maxLength=63)
    levels = _list(
        "Levels, from the coarsest to the finest.",
        _object("A level.", {"nodeLabel": label, "alias": alias}, "nodeLabel"),
        minItems=1,
        maxItems=16,
        **{
            "x-kubernetes-list-type": "atomic",
            "x-kubernetes-validations": [
                {
                    "rule": "self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)",
                    "message": "the labels of levels cannot be changed: create another Topology",
                },
                {
                    "rule": "self.all(a, self.exists_one(b, b.nodeLabel == a.nodeLabel))",
                    "message": "the labels of levels must differ",
                },
                {
                    "rule": "self.all(l, l.nodeLabel != 'kubernetes.io/hostname' "
                    "|| l == self[size(self) - 1])",
                    "message": "kubernetes.io/hostname can only be the finest level",
                },
            ],
        },
    )
    schema = _kind(
        "Levels of the network, as labels of nodes.",
        _object("The levels.", {"levels": levels}, "levels"),
        _open("Not written."),
    )
    return schema | {"required": ["spec"]}


def _shard() -> Document:
    return _kind(
        "Settings of a scheduler of KAI. This scheduler reads its configuration instead; "
        "`kai-py migrate --write-config` translates one into the other.",
        _open("Settings, stored unchanged."),
        _open("Not written."),
    )


def _priority_classes(name: str) -> list[Document]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": each, "labels": labels_of(name)},
            "value": value,
            "globalDefault": False,
            "description": CLASS_TEXTS[each],
        }
        for each, value in CLASS_VALUES.items()
    ]


def _default_queues(name: str) -> list[Document]:
    share = {"quota": 0, "limit": UNLIMITED, "overQuotaWeight": 1}
    resources = {resource: dict(share) for resource in ("cpu", "gpu", "memory")}
    return [
        {
            "apiVersion": f"{GROUP}/v2",
            "kind": "Queue",
            "metadata": {"name": queue, "labels": labels_of(name)},
            "spec": {**parent, "resources": resources},
        }
        for queue, parent in (
            (PARENT_QUEUE, {}),
            (DEFAULT_QUEUE, {"parentQueue": PARENT_QUEUE}),
        )
    ]
