"""RBAC permissions of the scheduler, its webhooks and its readers, with the reason for each.

The scheduler reads what ``watch.kinds`` mirrors and the owners that grouping has rules for, so
these rules are derived from there; unreadable owners end the chain above their pods. What
``commit`` writes is listed here. A test on a real API server runs the scheduler with exactly these
permissions and finds none missing.

People who ask the scheduler see what follows from their rights on the objects. ``view`` (and with
it ``edit`` and ``admin``) comes to include the scheduler's own kinds. All users whom the API server
knows may reach the Service through its proxy: the scheduler answers with what the rights of each
allow (``observe.http_access``), and metrics only to those who may get them. A role to read the
whole cluster, as the commands do by themselves, is there to be bound.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.queue import GROUP as QUEUE_GROUP
from kai_py.deploy.parts import RBAC, Document, named_object
from kai_py.grouping.rule_table import shipped_table
from kai_py.watch.kinds import WATCHED
from kai_py.watch.resource import Kind

Rule = dict[str, Any]
READ = ("get", "list", "watch")
WORKLOADS = ("apps", "batch")
"""API groups of the owners that every cluster has."""
FIRST_OF_RULE = "- apiGroups:"


class Right(StrEnum):
    """A right that an installation may leave out, with the feature that needs it."""

    LOCAL_VOLUMES = "localVolumes"
    """Claims of classes without a provisioner stay unbound without it."""
    PROVISIONING = "provisioning"
    """No ProvisioningRequests are made without it."""
    PROMISED_NODES = "promisedNodes"
    """Autoscalers may remove nodes that are promised to pods without it."""


class Grant(Struct, frozen=True):
    """A rule of a role, and why it is needed."""

    reason: str
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """The only objects for which it holds; empty: all."""
    right: Right | None = None
    """The right that it is, if it may be left out."""

    @property
    def rule(self) -> Rule:
        """The rule of a role."""
        rule: Rule = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        return rule | {"resourceNames": list(self.names)} if self.names else rule


MIRRORED = "Mirrored kinds, and owners that group pods."
WRITES = (
    Grant(
        "Bindings; evictions for preemption and reclaim, which honour disruption budgets.",
        "",
        ("pods/binding", "pods/eviction"),
        ("create",),
    ),
    Grant(
        "Why a pod is pending or was evicted, and its nominated node.",
        "",
        ("pods/status",),
        ("patch",),
    ),
    Grant(
        "The group of pods that share a GPU, written before they are bound; the scheduling gate "
        "of kai-py; the ProvisioningRequest that adds nodes for them.",
        "",
        ("pods",),
        ("patch",),
    ),
    Grant(
        "Jobs that are suspended instead of evicting their pods, and resumed.",
        "batch",
        ("jobs",),
        ("patch",),
    ),
    Grant(
        "The node for which a volume is to be provisioned.",
        "",
        ("persistentvolumeclaims",),
        ("patch",),
    ),
    Grant(
        "The claim that an existing volume is chosen for.",
        "",
        ("persistentvolumes",),
        ("patch",),
        right=Right.LOCAL_VOLUMES,
    ),
    Grant(
        "Claims for extended resources, on nodes without a device plugin for them.",
        "resource.k8s.io",
        ("resourceclaims",),
        ("create", "delete"),
    ),
    Grant(
        "Finalizer, then allocation and reservation; all of it where opaque parameters need it.",
        "resource.k8s.io",
        ("resourceclaims", "resourceclaims/status"),
        ("patch", "update"),
    ),
    Grant(
        "From Kubernetes 1.36 on, allocating requires this right.",
        "resource.k8s.io",
        ("resourceclaims/binding",),
        ("patch", "update"),
    ),
    Grant(
        "Allocated, requested and entitled amounts of queues.",
        QUEUE_GROUP,
        ("queues/status",),
        ("patch",),
    ),
    Grant(
        "The same on KAI's Queues, and why the gangs of its PodGroups are pending.",
        "scheduling.run.ai",
        ("podgroups/status", "queues/status"),
        ("patch",),
    ),
    Grant(
        "The annotation of KAI that records since when a gang has run below minMember.",
        "scheduling.run.ai",
        ("podgroups",),
        ("patch",),
    ),
    Grant(
        "Whether Kubernetes' own groups have started.",
        "scheduling.k8s.io",
        ("compositepodgroups/status", "podgroups/status"),
        ("patch",),
    ),
    Grant(
        "Whether Grove's PodGangs have started.",
        "scheduler.grove.io",
        ("podgangs/status",),
        ("patch",),
    ),
    Grant(
        "Capacity requested from autoscalers for a whole gang.",
        "autoscaling.x-k8s.io",
        ("provisioningrequests",),
        ("create", "delete"),
        right=Right.PROVISIONING,
    ),
    Grant(
        "The pods that such requests are for.",
        "",
        ("podtemplates",),
        ("create", "delete", "get"),
        right=Right.PROVISIONING,
    ),
    Grant(
        "Annotations that keep autoscalers from removing nodes that are promised to pods.",
        "",
        ("nodes",),
        ("patch",),
        right=Right.PROMISED_NODES,
    ),
    Grant(
        "Decisions, as events on pods, gangs and queues.",
        "events.k8s.io",
        ("events",),
        ("create",),
    ),
    Grant(
        "Decisions of earlier leaders, which a new leader shows.",
        "",
        ("events",),
        ("list",),
    ),
    Grant(
        "The user of the token that a reader of the dashboard presents.",
        "authentication.k8s.io",
        ("tokenreviews",),
        ("create",),
    ),
    Grant(
        "Whether that user may read the dashboard.",
        "authorization.k8s.io",
        ("subjectaccessreviews",),
        ("create",),
    ),
)


def cluster_grants(without: Collection[Right] = ()) -> list[Grant]:
    """Grants of the ClusterRole; ``without`` these rights."""
    return [*mirrored_grants(), *(each for each in WRITES if each.right not in without)]


def cluster_rules(without: Collection[Right] = ()) -> list[Rule]:
    """The rules of the ClusterRole."""
    return [grant.rule for grant in cluster_grants(without)]


def lease_grants() -> list[Grant]:
    """Grants of the Role in the namespace of the lease."""
    reason = "One Lease elects the replica that schedules; another keeps history for the next."
    return [Grant(reason, "coordination.k8s.io", ("leases",), ("create", "get", "patch"))]


def lease_rules() -> list[Rule]:
    """The rules of the Role in the namespace of the lease."""
    return [grant.rule for grant in lease_grants()]


def gpu_sharing_grants() -> list[Grant]:
    """Grants of the scheduler's Role in the namespace of the reservation pods."""
    reason = "Pods that reserve a GPU of a device plugin each, for the pods that share it."
    return [Grant(reason, "", ("pods",), ("create", "delete"))]


def reservation_grants() -> list[Grant]:
    """Grants of the Role of the reservation pods, in their own namespace."""
    return [
        Grant(
            "Each reservation pod writes the UUID of its GPU on itself.", "", ("pods",), ("patch",)
        )
    ]


def webhook_cluster_grants() -> list[Grant]:
    """Grants of the webhooks' ClusterRole: they write nothing but their own CA."""
    registered = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    crds = ("customresourcedefinitions",)
    labels = "Labels and annotations of namespaces set the scheduler and queue of their pods."
    owners = "An owner may name the queue of a pod."
    workloads = _plurals([kind for kind in WATCHED if kind.group in WORKLOADS])
    return [
        Grant(labels, "", ("namespaces",), READ),
        Grant("Queues are validated against each other.", QUEUE_GROUP, ("queues",), READ),
        Grant("Queues are validated against each other.", "scheduling.run.ai", ("queues",), READ),
        Grant("Which kinds are served.", "apiextensions.k8s.io", crds, READ),
        *(Grant(owners, group, plurals, ("get",)) for group, plurals in workloads.items()),
        Grant(
            "The certificate that the API server should expect.",
            "admissionregistration.k8s.io",
            registered,
            ("get", "patch"),
            (WEBHOOK_NAME,),
        ),
    ]


def webhook_grants() -> list[Grant]:
    """Grants of the webhooks' Role: the Secret with their certificate."""
    create_reason = "The Secret with the certificate; create cannot be restricted by name."
    read_reason = "The certificate, to serve and to renew it."
    return [
        Grant(create_reason, "", ("secrets",), ("create",)),
        Grant(read_reason, "", ("secrets",), ("get", "patch"), (WEBHOOK_NAME,)),
    ]


def with_reasons(text: str, grants: Iterable[Grant]) -> str:
    """A role's YAML with the reason above each rule."""
    reasons = (grant.reason for grant in grants)
    lines = text.splitlines()
    return "".join(
        f"# {next(reasons)}\n{line}\n" if line == FIRST_OF_RULE else f"{line}\n" for line in lines
    )


def mirrored_grants() -> list[Grant]:
    """Grants to read what the scheduler reads."""
    plurals = _plurals(WATCHED)
    return [Grant(MIRRORED, group, plurals[group], READ) for group in plurals]


def _plurals(kinds: Iterable[Kind[Any]]) -> dict[str, tuple[str, ...]]:
    """Plurals by group, of ``kinds`` and of every owner that has a grouping rule."""
    plurals: dict[str, list[str]] = defaultdict(list)
    for kind in kinds:
        plurals[kind.group].append(kind.plural)
    for owner in shipped_table().kinds():
        plural = f"{owner.kind.lower()}s"
        if plural not in plurals[owner.group]:
            plurals[owner.group].append(plural)
    return {group: tuple(sorted(plurals[group])) for group in sorted(plurals)}


AGGREGATED = {f"{RBAC}/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")}
ASKERS = "system:authenticated"
HTTP_PORT = "http"


def view_grants() -> list[Grant]:
    """Grants that are added to ``view``."""
    groups = "Groups of pods, and why they are pending."
    return [
        Grant("Queues; a RoleBinding does not reach them.", "scheduling.kai.io", ("queues",), READ),
        Grant(groups, "scheduling.run.ai", ("podgroups", "queues"), READ),
        Grant(groups, "scheduling.k8s.io", ("compositepodgroups", "podgroups"), READ),
        Grant("Topologies.", "kai.scheduler", ("topologies",), READ),
        Grant(
            "Claims of pods.",
            "resource.k8s.io",
            ("resourceclaims", "resourceclaimtemplates"),
            READ,
        ),
    ]


def cluster_reader_grants() -> list[Grant]:
    """Grants of readers of the whole cluster."""
    events = Grant("Past decisions, and pods that the API server refused.", "", ("events",), READ)
    return [*mirrored_grants(), events]


def proxy_grants(name: str) -> list[Grant]:
    """Grants of those who may ask the scheduler through the API server."""
    names = (name, f"{name}:{HTTP_PORT}", f"http:{name}:{HTTP_PORT}")
    reason = "Questions to the scheduler, which reviews the rights of each user."
    return [Grant(reason, "", ("services/proxy",), ("get",), names)]


def reader_objects(name: str, namespace: str) -> list[Document]:
    """Roles for readers; only that to reach the Service is bound."""
    version = f"{RBAC}/v1"
    view = named_object(
        f"{name}-view", version, "ClusterRole", rules=[each.rule for each in view_grants()]
    )
    view["metadata"]["labels"] |= AGGREGATED
    readers = [each.rule for each in cluster_reader_grants()]
    proxied = [each.rule for each in proxy_grants(name)]
    role = {"apiGroup": RBAC, "kind": "Role", "name": f"{name}-proxy"}
    subjects = [{"apiGroup": RBAC, "kind": "Group", "name": ASKERS}]
    return [
        view,
        named_object(f"{name}-cluster-reader", version, "ClusterRole", rules=readers),
        named_object(f"{name}-proxy", version, "Role", namespace, rules=proxied),
        named_object(
            f"{name}-proxy", version, "RoleBinding", namespace, roleRef=role, subjects=subjects
        ),
    ]
