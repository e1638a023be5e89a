"""Roles of people who ask the scheduler: what they see follows from their rights on the objects.

``view`` (and with it ``edit`` and ``admin``) comes to include the scheduler's own kinds. All users
whom the API server knows may reach the Service through its proxy: the scheduler answers with what
the rights of each allow (``observe.http_access``), and metrics only to those who may get them. A
role to read the whole cluster, as the commands do by themselves, is there to be bound.
"""

from kai_py.deploy.parts import RBAC, Document, named_object
from kai_py.deploy.permissions import READ, Grant, mirrored_grants

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
    return mirrored_grants()


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
