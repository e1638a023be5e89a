"""Which objects make the scheduler run in a cluster? All of them, ready to apply.

Two replicas, one of which schedules (a Lease decides which); the other has read the cluster
already and takes over when the first one ends, so they keep to different nodes. The configuration
is a ConfigMap; its content is part of the pod template's annotations, so that a change of it rolls
the replicas. What needs the CRDs of a Prometheus operator is asked for apart (``monitoring``).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kai_py.api.crd import crds, plain_yaml
from kai_py.config import Configuration
from kai_py.deploy.monitoring import (
    DASHBOARD_LABEL,
    DASHBOARDS,
    rule_groups,
    scraping,
    text_of,
)
from kai_py.deploy.permissions import (
    cluster_grants,
    cluster_rules,
    commented,
    lease_grants,
    lease_rules,
)

Document = dict[str, Any]
NAME = "kai-py"
LABELS = {"app.kubernetes.io/name": NAME}
CONFIGURATION_FILE = "config.yaml"
CONFIGURATION_DIRECTORY = "/etc/kai-py"
RBAC = "rbac.authorization.k8s.io"
USER = 65532
"""The user that images without a shell call nonroot."""
RESOURCES: Document = {"requests": {"cpu": "500m", "memory": "512Mi"}}
PRIORITY_CLASS = "system-cluster-critical"
"""Without the scheduler nothing else of ours starts; every cluster has this class."""
MONITORING = ("ServiceMonitor", "PrometheusRule")
"""Kinds of the Prometheus operator."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What differs from cluster to cluster; the configuration names the namespace of the lease.

    ``pod``: fields of the pod's spec beside those that are set here, as node selector and
    tolerations. ``monitoring``: with the objects of a Prometheus operator and Grafana's sidecar.
    """

    image: str
    namespace: str
    replicas: int
    configuration: Configuration
    resources: Any = field(default_factory=lambda: dict(RESOURCES))
    priority_class: str = PRIORITY_CLASS
    pod: Mapping[str, Any] = field(default_factory=dict)
    monitoring: bool = False


def manifests(wanted: Installation) -> list[Document]:
    """Every object, in an order in which each finds what it needs."""
    return [
        *crds().values(),
        _namespace(wanted),
        _object("v1", "ServiceAccount", wanted.namespace),
        *_permissions(wanted),
        _configuration(wanted),
        _deployment(wanted),
        _service(wanted),
        _disruption_budget(wanted),
        _network_policy(wanted),
        *(_monitoring(wanted) if wanted.monitoring else ()),
    ]


def text_of_manifest(document: Document) -> str:
    """One object as YAML; roles say why they need each of their rules."""
    grants = {"ClusterRole": cluster_grants, "Role": lease_grants}.get(document["kind"])
    text = plain_yaml(document)
    return commented(text, grants()) if grants else text


def _object(api_version: str, kind: str, namespace: str = "", **rest: Any) -> Document:
    metadata: Document = {"name": NAME, "labels": dict(LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _namespace(wanted: Installation) -> Document:
    labels = LABELS | {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": wanted.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _permissions(wanted: Installation) -> list[Document]:
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": wanted.namespace}
    lease_namespace = wanted.configuration.leader_election.namespace

    def binding(kind: str) -> Document:
        return {
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": NAME},
            "subjects": [dict(account)],
        }

    return [
        _object(f"{RBAC}/v1", "ClusterRole", rules=cluster_rules()),
        _object(f"{RBAC}/v1", "ClusterRoleBinding", **binding("ClusterRole")),
        _object(f"{RBAC}/v1", "Role", lease_namespace, rules=lease_rules()),
        _object(f"{RBAC}/v1", "RoleBinding", lease_namespace, **binding("Role")),
    ]


def configuration_text(configuration: Configuration) -> str:
    """The configuration as a file that says only what differs from the defaults."""
    changed = configuration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(changed, sort_keys=True)


def _configuration(wanted: Installation) -> Document:
    data = {CONFIGURATION_FILE: configuration_text(wanted.configuration)}
    return _object("v1", "ConfigMap", wanted.namespace, data=data)


def _deployment(wanted: Installation) -> Document:
    digest = hashlib.sha256(configuration_text(wanted.configuration).encode()).hexdigest()
    template = {
        "metadata": {
            "labels": dict(LABELS),
            "annotations": {"kai-py/configuration": digest[:16]},
        },
        "spec": _pod(wanted),
    }
    spec = {
        "replicas": wanted.replicas,
        "selector": {"matchLabels": dict(LABELS)},
        "template": template,
    }
    return _object("apps/v1", "Deployment", wanted.namespace, spec=spec)


def _pod(wanted: Installation) -> Document:
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": dict(LABELS)},
    }
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    return {
        **wanted.pod,
        "serviceAccountName": NAME,
        "priorityClassName": wanted.priority_class,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        },
        "containers": [_container(wanted)],
        "volumes": [{"name": "configuration", "configMap": {"name": NAME}}],
    }


def _container(wanted: Installation) -> Document:
    http = {"name": "http", "containerPort": wanted.configuration.http.port}
    return {
        "name": "scheduler",
        "image": wanted.image,
        "args": ["run", f"--config={CONFIGURATION_DIRECTORY}/{CONFIGURATION_FILE}"],
        "ports": [http],
        "livenessProbe": _probe("/healthz", failures=6),
        "readinessProbe": _probe("/readyz", failures=1),
        "resources": wanted.resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "configuration", "mountPath": CONFIGURATION_DIRECTORY, "readOnly": True}
        ],
    }


def _probe(path: str, *, failures: int) -> Document:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _service(wanted: Installation) -> Document:
    ports = [{"name": "http", "port": wanted.configuration.http.port, "targetPort": "http"}]
    spec = {"selector": dict(LABELS), "ports": ports}
    return _object("v1", "Service", wanted.namespace, spec=spec)


def _disruption_budget(wanted: Installation) -> Document:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(LABELS)}}
    return _object("policy/v1", "PodDisruptionBudget", wanted.namespace, spec=spec)


def _network_policy(wanted: Installation) -> Document:
    """Only the ports that are served; to where the API server is, no policy can name portably."""
    ports = [{"protocol": "TCP", "port": port["name"]} for port in _container(wanted)["ports"]]
    spec = {
        "podSelector": {"matchLabels": dict(LABELS)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": ports}],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", wanted.namespace, spec=spec)


def _monitoring(wanted: Installation) -> list[Document]:
    api_version = "monitoring.coreos.com/v1"
    return [
        _object(api_version, "ServiceMonitor", wanted.namespace, spec=scraping(dict(LABELS))),
        _object(api_version, "PrometheusRule", wanted.namespace, spec=rule_groups()),
        dashboards(wanted.namespace, {f"{NAME}-{name}": text_of(name) for name in DASHBOARDS}),
    ]


def dashboards(namespace: str, data: Mapping[str, str]) -> Document:
    """The ConfigMap that Grafana's sidecar loads; ``data``: file name to JSON."""
    document = _object("v1", "ConfigMap", namespace, data=dict(data))
    metadata = document["metadata"]
    metadata["name"] = f"{NAME}-dashboards"
    metadata["labels"] |= DASHBOARD_LABEL
    return document
