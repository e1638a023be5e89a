"""The objects that run the admission webhooks in a cluster, beside the scheduler's.

Two replicas that serve one certificate. The failure policy is Ignore throughout: while none
answers, objects are admitted unchanged. Pods are sent only where it may matter: in namespaces with
our label, or with our scheduler's name. The process itself publishes its CA.
"""

import json
from collections.abc import Mapping
from typing import Any

from kai_py.api.admission import (
    ADMISSION_LABEL,
    ENABLED,
    KAI_POD_GROUP_RULES,
    KAI_QUEUE_RULES,
    POD_DEFAULTS,
    POD_GATE,
    POD_SHARED_GPU,
    QUEUE_RULES,
    WEBHOOK_NAME,
)
from kai_py.api.gpu_share import SHARE_KEYS
from kai_py.api.queue import GROUP, VERSION
from kai_py.config import Configuration
from kai_py.deploy.parts import (
    CONFIGURATION_DIRECTORY,
    CONFIGURATION_FILE,
    Document,
    deployment,
    labels_of,
    named_object,
    network_policy,
    permissions,
    restricted_pod,
)
from kai_py.deploy.permissions import webhook_cluster_grants, webhook_grants

REPLICAS = 2
TIMEOUT_SECONDS = 5
ADMISSION = "admissionregistration.k8s.io/v1"
CREATED = ("CREATE",)
EDITED = ("CREATE", "UPDATE")


def webhook_objects(
    image: str,
    namespace: str,
    configuration: Configuration,
    *,
    digest: str,
    priority_class: str,
    extra: Mapping[str, Any],
) -> list[Document]:
    """All objects; ``digest`` is that of the configuration, ``extra`` fields of the pod's spec."""
    port = configuration.webhook.port
    service = {
        "selector": labels_of(WEBHOOK_NAME),
        "ports": [{"name": "https", "port": 443, "targetPort": "https"}],
    }
    container = _container(image, port)
    pod = restricted_pod(WEBHOOK_NAME, container, priority_class=priority_class, extra=extra)
    pod["volumes"].append({"name": "certificate", "emptyDir": {"medium": "Memory"}})
    cluster_rules = [each.rule for each in webhook_cluster_grants()]
    namespace_rules = [each.rule for each in webhook_grants()]
    return [
        *permissions(
            WEBHOOK_NAME,
            namespace,
            cluster_rules,
            namespace,
            namespace_rules,
        ),
        deployment(WEBHOOK_NAME, namespace, replicas=REPLICAS, digest=digest, pod=pod),
        named_object(WEBHOOK_NAME, "v1", "Service", namespace, spec=service),
        network_policy(WEBHOOK_NAME, namespace, container),
        *webhook_configurations(namespace, configuration),
    ]


def webhook_configurations(namespace: str, configuration: Configuration) -> list[Document]:
    """The webhook configurations: which requests the API server sends to us."""
    schedulers = [configuration.scheduler_name, *configuration.scheduler_aliases]
    our_pods = {
        "name": "ours",
        "expression": f"object.spec.schedulerName in {json.dumps(schedulers)}",
    }
    share = json.dumps(sorted(SHARE_KEYS))
    shares_gpu = {
        "name": "sharing",
        "expression": f"{share}.exists(k, k in object.metadata.?annotations.orValue({{}}))",
    }
    enabled = {"namespaceSelector": {"matchLabels": {ADMISSION_LABEL: ENABLED}}}
    pods = _rule("", "v1", "pods", CREATED)
    mutating = [
        _webhook(namespace, POD_DEFAULTS, pods, **enabled),
        _webhook(namespace, POD_GATE, pods, matchConditions=[our_pods]),
        _webhook(namespace, POD_SHARED_GPU, pods, matchConditions=[our_pods, shares_gpu]),
    ]
    validating = [
        _webhook(namespace, QUEUE_RULES, _rule(GROUP, VERSION, "queues", (*EDITED, "DELETE"))),
        _webhook(
            namespace,
            KAI_QUEUE_RULES,
            _rule("scheduling.run.ai", "v2", "queues", (*EDITED, "DELETE")),
        ),
        _webhook(
            namespace,
            KAI_POD_GROUP_RULES,
            _rule("scheduling.run.ai", "v2alpha2", "podgroups", EDITED),
        ),
    ]
    return [
        named_object(WEBHOOK_NAME, ADMISSION, "MutatingWebhookConfiguration", webhooks=mutating),
        named_object(
            WEBHOOK_NAME, ADMISSION, "ValidatingWebhookConfiguration", webhooks=validating
        ),
    ]


def _webhook(namespace: str, path: str, rule: Document, **wanted: Any) -> Document:
    service = {"name": WEBHOOK_NAME, "namespace": namespace, "path": f"/{path}"}
    return {
        "name": f"{path}.{GROUP}",
        "clientConfig": {"service": service},
        "rules": [rule],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": TIMEOUT_SECONDS,
        **wanted,
    }


def _rule(group: str, version: str, plural: str, operations: tuple[str, ...]) -> Document:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [plural],
        "operations": list(operations),
    }


def _container(image: str, port: int) -> Document:
    probe = {"tcpSocket": {"port": "https"}, "periodSeconds": 10}
    return {
        "name": "webhook",
        "image": image,
        "args": ["webhook", f"--config={CONFIGURATION_DIRECTORY}/{CONFIGURATION_FILE}"],
        "ports": [{"name": "https", "containerPort": port}],
        "livenessProbe": {**probe, "failureThreshold": 6},
        "readinessProbe": {**probe, "failureThreshold": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "192Mi"}},
        "volumeMounts": [{"name": "certificate", "mountPath": "/tmp"}],
    }
