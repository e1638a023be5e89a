"""The objects that run the scheduler in a cluster, ready to apply.

Two replicas, one of which schedules (decided by a Lease); the other has read the cluster already
and takes over when the first one ends, so they prefer different nodes. The configuration is a
ConfigMap; its digest is an annotation of the pod template, so that a change of it rolls the
replicas. Objects that need the CRDs of a Prometheus operator are optional (``monitoring``).

Reservation pods of shared GPUs have a namespace of their own. It is KAI-Scheduler's, so that either
scheduler finds the reservations of the other. Only there may the scheduler's account create and
delete pods, and the reservation pods' account write the GPU that each was given on itself.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import yaml
from msgspec import Struct, field

from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.crd import crds, plain_yaml
from kai_py.api.gpu_reservation import RESERVATION_ACCOUNT
from kai_py.api.gpu_share import RESERVATION
from kai_py.config import Configuration, GpuIsolation
from kai_py.deploy.kai_api import kai_defaults, kai_definitions
from kai_py.deploy.monitoring import DASHBOARD_LABEL, DASHBOARDS, rule_groups, scraping, text_of
from kai_py.deploy.parts import (
    CONFIGURATION_DIRECTORY,
    CONFIGURATION_FILE,
    POD_SECURITY,
    RBAC,
    Document,
    deployment,
    labels_of,
    named_object,
    network_policy,
    permissions,
    restricted_pod,
)
from kai_py.deploy.permissions import (
    Right,
    cluster_grants,
    cluster_reader_grants,
    cluster_rules,
    gpu_sharing_grants,
    lease_grants,
    lease_rules,
    proxy_grants,
    reader_objects,
    reservation_grants,
    view_grants,
    webhook_cluster_grants,
    webhook_grants,
    with_reasons,
)
from kai_py.deploy.policies import admission_policies
from kai_py.deploy.webhook import webhook_objects

NAME = "kai-py"
RESOURCES: Document = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"memory": "2Gi"},
}
"""The limit is derived in ``chart.VALUES``."""
PRIORITY_CLASS = "system-cluster-critical"
"""Without the scheduler none of its pods starts; every cluster has this class."""


class Installation(Struct, frozen=True, kw_only=True):
    """Settings of an installation; the configuration names the namespace of the lease.

    ``pod``: further fields of the pod's spec, such as node selector and tolerations.
    ``monitoring``: with the objects of a Prometheus operator and Grafana's sidecar. ``policies``:
    with the admission policies. ``kai_api``: with KAI's definitions, priority classes and default
    queues. ``without``: rights that the account does not get.
    """

    image: str
    namespace: str
    replicas: int
    configuration: Configuration
    resources: Any = field(default_factory=lambda: dict(RESOURCES))
    priority_class: str = PRIORITY_CLASS
    pod: Mapping[str, Any] = field(default_factory=dict)
    monitoring: bool = False
    webhook: bool = False
    policies: bool = True
    kai_api: bool = False
    without: frozenset[Right] = frozenset()


def manifests(installation: Installation) -> list[Document]:
    """All objects, in an order in which each finds what it needs."""
    return [
        *crds().values(),
        *(kai_definitions() if installation.kai_api else ()),
        _namespace(installation),
        *permissions(
            NAME,
            installation.namespace,
            cluster_rules(installation.without),
            installation.configuration.leader_election.namespace,
            lease_rules(),
        ),
        *reader_objects(NAME, installation.namespace),
        *_reservations(installation),
        *(_policies(installation) if installation.policies else ()),
        _configuration(installation),
        _deployment(installation),
        _service(installation),
        _disruption_budget(installation),
        network_policy(NAME, installation.namespace, _container(installation)),
        *(_webhook(installation) if installation.webhook else ()),
        *(_monitoring(installation) if installation.monitoring else ()),
        *(kai_defaults() if installation.kai_api else ()),
    ]


def text_of_manifest(document: Document, without: Collection[Right] = ()) -> str:
    """One object as YAML; roles have the reason for each of their rules as a comment.

    ``without``: as of the installation.
    """
    grants = {
        (NAME, "ClusterRole"): lambda: cluster_grants(without),
        (NAME, "Role"): lease_grants,
        (f"{NAME}-view", "ClusterRole"): view_grants,
        (f"{NAME}-cluster-reader", "ClusterRole"): cluster_reader_grants,
        (f"{NAME}-proxy", "Role"): lambda: proxy_grants(NAME),
        (WEBHOOK_NAME, "ClusterRole"): webhook_cluster_grants,
        (WEBHOOK_NAME, "Role"): webhook_grants,
        (SHARING, "Role"): gpu_sharing_grants,
        (RESERVATION_ACCOUNT, "Role"): reservation_grants,
    }.get((document["metadata"]["name"], document["kind"]))
    text = plain_yaml(document)
    return with_reasons(text, grants()) if grants else text


def _namespace(installation: Installation) -> Document:
    labels = labels_of(NAME) | {POD_SECURITY: "restricted"}
    metadata = {"name": installation.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def configuration_text(configuration: Configuration) -> str:
    """The configuration as a file with only what differs from the defaults."""
    changed = configuration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(changed, sort_keys=True)


def _reservations(installation: Installation) -> list[Document]:
    if installation.configuration.gpu_sharing.isolation is GpuIsolation.NONE:
        return []
    return reservation_objects(NAME, installation.namespace)


def _policies(installation: Installation) -> list[Document]:
    configuration = installation.configuration
    schedulers = (configuration.scheduler_name, *configuration.scheduler_aliases)
    pool_label = configuration.node_pool.label
    return admission_policies(NAME, installation.namespace, schedulers, pool_label)


def _configuration(installation: Installation) -> Document:
    data = {CONFIGURATION_FILE: configuration_text(installation.configuration)}
    return named_object(NAME, "v1", "ConfigMap", installation.namespace, data=data)


def _digest(installation: Installation) -> str:
    text = configuration_text(installation.configuration)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _deployment(installation: Installation) -> Document:
    pod = restricted_pod(
        NAME,
        _container(installation),
        priority_class=installation.priority_class,
        extra=installation.pod,
    )
    return deployment(
        NAME,
        installation.namespace,
        replicas=installation.replicas,
        digest=_digest(installation),
        pod=pod,
    )


def _webhook(installation: Installation) -> list[Document]:
    return webhook_objects(
        installation.image,
        installation.namespace,
        installation.configuration,
        digest=_digest(installation),
        priority_class=installation.priority_class,
        extra=installation.pod,
    )


def _container(installation: Installation) -> Document:
    http = {"name": "http", "containerPort": installation.configuration.http.port}
    return {
        "name": "scheduler",
        "image": installation.image,
        "args": [
            "run",
            "--closed-queues",
            f"--reservation-image={installation.image}",
            f"--config={CONFIGURATION_DIRECTORY}/{CONFIGURATION_FILE}",
        ],
        "ports": [http],
        "livenessProbe": _probe("/healthz", failures=6),
        "readinessProbe": _probe("/readyz", failures=1),
        "resources": installation.resources,
    }


def _probe(path: str, *, failures: int) -> Document:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _service(installation: Installation) -> Document:
    ports = [{"name": "http", "port": installation.configuration.http.port, "targetPort": "http"}]
    spec = {"selector": labels_of(NAME), "ports": ports}
    return named_object(NAME, "v1", "Service", installation.namespace, spec=spec)


def _disruption_budget(installation: Installation) -> Document:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels_of(NAME)}}
    return named_object(NAME, "policy/v1", "PodDisruptionBudget", installation.namespace, spec=spec)


def _monitoring(installation: Installation) -> list[Document]:
    api_version = "monitoring.coreos.com/v1"
    return [
        named_object(
            NAME,
            api_version,
            "ServiceMonitor",
            installation.namespace,
            spec=scraping(labels_of(NAME)),
        ),
        named_object(
            NAME, api_version, "PrometheusRule", installation.namespace, spec=rule_groups()
        ),
        dashboards(
            installation.namespace, {f"{NAME}-{name}": text_of(name) for name in DASHBOARDS}
        ),
    ]


def dashboards(namespace: str, data: Mapping[str, str]) -> Document:
    """The ConfigMap that Grafana's sidecar loads; ``data``: file name to JSON."""
    document = named_object(NAME, "v1", "ConfigMap", namespace, data=dict(data))
    metadata = document["metadata"]
    metadata["name"] = f"{NAME}-dashboards"
    metadata["labels"] |= DASHBOARD_LABEL
    return document


SHARING = "kai-py-gpu-sharing"
"""Name of the scheduler's Role there."""


def reservation_objects(account: str, namespace: str) -> list[Document]:
    """The namespace, an account and two Roles; ``account``: the scheduler's, in ``namespace``."""
    version = f"{RBAC}/v1"
    space = named_object(RESERVATION, "v1", "Namespace")
    space["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    # The scheduler's token suffices to create any pod here, so none may reach its node. KAI's
    # reservation pods would not pass the level `restricted`.
    space["metadata"]["labels"] |= {POD_SECURITY: "baseline"}
    rules = {
        SHARING: [each.rule for each in gpu_sharing_grants()],
        RESERVATION_ACCOUNT: [each.rule for each in reservation_grants()],
    }
    return [
        space,
        named_object(RESERVATION_ACCOUNT, "v1", "ServiceAccount", RESERVATION),
        *(named_object(name, version, "Role", RESERVATION, rules=rules[name]) for name in rules),
        _binding(SHARING, account, namespace),
        _binding(RESERVATION_ACCOUNT, RESERVATION_ACCOUNT, RESERVATION),
    ]


def _binding(role: str, account: str, namespace: str) -> Document:
    return named_object(
        role,
        f"{RBAC}/v1",
        "RoleBinding",
        RESERVATION,
        roleRef={"apiGroup": RBAC, "kind": "Role", "name": role},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    )
