"""Parts common to the scheduler's objects and the webhooks'."""

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
_PART = "[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*"
IMAGE_NAME = (
    rf"{_PART}(?::[0-9]+)?(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?"
    r"(?:@sha256:[0-9a-f]{64})?"
)
"""HOST:PORT/PATH:TAG@DIGEST, as the OCI distribution specification has it."""
USER = 65532
"""The user ``nonroot`` of distroless images."""
POD_SECURITY = "pod-security.kubernetes.io/enforce"
"""The label of a namespace with the Pod Security level of its pods."""
CONFIGURATION_FILE = "config.yaml"
CONFIGURATION_DIRECTORY = "/etc/kai-py"
CONFIGURATION_MAP = "kai-py"


def labels_of(name: str) -> dict[str, str]:
    """The labels that select the pods of ``name``."""
    return {"app.kubernetes.io/name": name}


def named_object(
    name: str, api_version: str, kind: str, namespace: str = "", **rest: Any
) -> Document:
    """An object called ``name``, cluster-scoped if no namespace is given."""
    metadata: Document = {"name": name, "labels": labels_of(name)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def permissions(
    name: str,
    namespace: str,
    cluster_rules: list[Document],
    role_namespace: str,
    rules: list[Document],
) -> list[Document]:
    """The service account ``name``, with rules for the cluster and for one namespace."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}

    def binding(kind: str) -> Document:
        return {
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [dict(account)],
        }

    version = f"{RBAC}/v1"
    return [
        named_object(name, "v1", "ServiceAccount", namespace),
        named_object(name, version, "ClusterRole", rules=cluster_rules),
        named_object(name, version, "ClusterRoleBinding", **binding("ClusterRole")),
        named_object(name, version, "Role", role_namespace, rules=rules),
        named_object(name, version, "RoleBinding", role_namespace, **binding("Role")),
    ]


def deployment(name: str, namespace: str, *, replicas: int, digest: str, pod: Document) -> Document:
    """Replicas of ``pod``, rolled when ``digest``, that of their configuration, changes."""
    template = {
        "metadata": {
            "labels": labels_of(name),
            "annotations": {"kai-py/configuration": digest},
        },
        "spec": pod,
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels_of(name)},
        "template": template,
    }
    return named_object(name, "apps/v1", "Deployment", namespace, spec=spec)


def restricted_pod(
    name: str, container: Document, *, priority_class: str, extra: Mapping[str, Any]
) -> Document:
    """A pod of one container, admitted to restricted namespaces, with the configuration in it.

    Replicas keep to different nodes; ``extra``: fields of the spec beside those that are set here.
    """
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": labels_of(name)},
    }
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    restricted = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mount = {"name": "configuration", "mountPath": CONFIGURATION_DIRECTORY, "readOnly": True}
    mounts = [mount, *container.get("volumeMounts", ())]
    return {
        **extra,
        "serviceAccountName": name,
        "priorityClassName": priority_class,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        },
        "containers": [container | {"securityContext": restricted, "volumeMounts": mounts}],
        "volumes": [{"name": "configuration", "configMap": {"name": CONFIGURATION_MAP}}],
    }


def network_policy(name: str, namespace: str, container: Document) -> Document:
    """Ingress to the served ports only; the API server's address has no portable selector."""
    ports = [{"protocol": "TCP", "port": port["name"]} for port in container["ports"]]
    spec = {
        "podSelector": {"matchLabels": labels_of(name)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": ports}],
    }
    return named_object(name, "networking.k8s.io/v1", "NetworkPolicy", namespace, spec=spec)
