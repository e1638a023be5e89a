"""The Helm chart, generated from the same objects as ``kai-py install``.

The objects are made with placeholders for what a release decides, which are then replaced by
template expressions; so the chart can't drift from what is tested on a real API server.
"""

import json
from importlib import metadata

import yaml

from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.crd import crds, plain_yaml
from kai_py.api.gpu_share import RESERVATION
from kai_py.config import Configuration, HttpConfig, LeaderElectionConfig, WebhookConfig
from kai_py.deploy.monitoring import DASHBOARDS, RULES, text_of
from kai_py.deploy.objects import NAME, Installation, dashboards, manifests, text_of_manifest
from kai_py.deploy.parts import CONFIGURATION_FILE, Document
from kai_py.deploy.permissions import cluster_grants
from kai_py.deploy.values_schema import values_schema

NAMESPACE, IMAGE, REPLICAS, PORT = "release-namespace", "values-image", 1234, 45678
WEBHOOK_PORT, SCHEDULER = 45679, "values-scheduler"
RESOURCES, PRIORITY_CLASS = "values-resources", "values-priority-class"
POD_VALUES = {
    "nodeSelector": "values-node-selector",
    "tolerations": "values-tolerations",
    "imagePullSecrets": "values-pull-secrets",
}
OPTIONAL_KINDS = {
    "NetworkPolicy": "networkPolicy",
    "ValidatingAdmissionPolicy": "admissionPolicies",
    "ValidatingAdmissionPolicyBinding": "admissionPolicies",
    "ServiceMonitor": "monitoring.serviceMonitor",
    "PrometheusRule": "monitoring.rules",
}
"""Kinds that a value enables, and the value."""
WEBHOOK_SWITCH = "webhook.enabled"
SHARING_SWITCH = "gpuSharing.enabled"
DASHBOARDS_SWITCH = "monitoring.dashboards"
DIGEST_KEY = "kai-py/configuration"

HELPERS = """\
{{- define "kai-py.config" -}}
{{- $own := dict "leaderElection" (dict "namespace" .Release.Namespace) -}}
{{- if .Values.webhook.enabled -}}
{{- $_ := set $own "webhook" (dict "namespace" .Release.Namespace) -}}
{{- end -}}
{{- mustMergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}
"""

SCHEDULERS = (
    '{{ prepend (dig "schedulerAliases" list .Values.config) '
    '(dig "schedulerName" "kai-scheduler" .Values.config) | toJson }}'
)
VALUES = """\
# Container image whose entry point is kai-py; docs/install.md says how to build it.
image: ""
imagePullSecrets: []
# One replica schedules, the others are standbys.
replicas: 2
# The process has 540 MiB resident with 10,000 nodes and 100,000 pods of 7 KB (docs/benchmarks.md),
# and nothing in it grows with the pods that ever were. The limit leaves 0.5 GiB for reading
# all pods once more after a broken watch and 1 GiB for caches, which are bounded. Raise it in
# proportion to the pods of the cluster where there are more than 200,000.
resources:
  requests: {cpu: 500m, memory: 512Mi}
  limits: {memory: 2Gi}
priorityClassName: system-cluster-critical
nodeSelector: {}
tolerations: []
# Allows only metrics, probes and the dashboard.
networkPolicy: true
# Policies by which tenants can't write what the scheduler writes, and its account nothing else.
admissionPolicies: true
# Rights of the scheduler's account that may be left out, and with them what needs them: binding
# volumes without a provisioner, ProvisioningRequests.
rights:
  localVolumes: true
  provisioning: true
gpuSharing:
  # What reservation pods of shared GPUs need (docs/gpu-sharing.md): their account, and the right to
  # create them. Their namespace is KAI-Scheduler's, which may exist already.
  enabled: true
  createNamespace: true
# The first two need the CRDs of the Prometheus operator, the third Grafana's sidecar.
monitoring:
  serviceMonitor: false
  rules: false
  dashboards: false
# The scheduler's configuration; `kai-py run --config` reads the same file.
config: {}
webhook:
  # Defaults for pods of namespaces with the label scheduling.kai.io/admission: enabled, and checks
  # of queues before they are stored; docs/webhook.md.
  enabled: false
"""


def chart() -> dict[str, str]:
    """The files of the chart by path."""
    files = {
        "Chart.yaml": _chart_file(),
        "values.yaml": VALUES,
        "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
        "templates/_config.tpl": HELPERS,
    }
    for name, document in crds().items():
        files[f"crds/{name}"] = plain_yaml(document)
    files |= {f"monitoring/{name}": text_of(name) for name in (RULES, *DASHBOARDS)}
    for document in manifests(_installation()):
        kind = document["kind"]
        if document["metadata"]["name"] == f"{NAME}-dashboards":
            files["templates/dashboards.yaml"] = _dashboards()
        elif kind == "Namespace" and document["metadata"]["name"] == RESERVATION:
            text = _with_values(text_of_manifest(document))
            files[f"templates/{kind.lower()}-gpu-sharing.yaml"] = _conditional(
                _conditional(text, "gpuSharing.createNamespace"), SHARING_SWITCH
            )
        elif kind not in ("CustomResourceDefinition", "Namespace"):
            files[f"templates/{_file(document)}.yaml"] = _template(document)
    return files


def _installation() -> Installation:
    configuration = Configuration(
        leader_election=LeaderElectionConfig(namespace=NAMESPACE),
        http=HttpConfig(port=PORT),
        webhook=WebhookConfig(port=WEBHOOK_PORT),
        scheduler_name=SCHEDULER,
    )
    return Installation(
        image=IMAGE,
        namespace=NAMESPACE,
        replicas=REPLICAS,
        configuration=configuration,
        resources=RESOURCES,
        priority_class=PRIORITY_CLASS,
        pod=POD_VALUES,
        monitoring=True,
        webhook=True,
    )


def _chart_file() -> str:
    version = metadata.version("kai-py")
    return yaml.safe_dump(
        {
            "apiVersion": "v2",
            "name": NAME,
            "description": "A scheduler for gangs of GPU work on Kubernetes",
            "type": "application",
            "version": version,
            "appVersion": version,
            "kubeVersion": ">=1.34.0-0",
        },
        sort_keys=False,
    )


def _template(document: Document) -> str:
    kind = document["kind"]
    if kind == "ConfigMap":
        configuration = '    {{- include "kai-py.config" . | nindent 4 }}\n'
        return _without_last_field(document, "data") + f"  {CONFIGURATION_FILE}: |\n{configuration}"
    if kind == "Deployment":
        annotations = document["spec"]["template"]["metadata"]["annotations"]
        annotations[DIGEST_KEY] = '{{ include "kai-py.config" . | sha256sum | trunc 16 }}'
    if kind == "PrometheusRule":
        return _conditional(
            _without_last_field(document, "spec") + _file_of(RULES, 2), OPTIONAL_KINDS[kind]
        )
    text = _with_values(text_of_manifest(document))
    if kind == "ClusterRole" and not _is_webhook(document):
        text = _with_optional_rights(text)
    if document["metadata"].get("namespace") == RESERVATION:
        return _conditional(text, SHARING_SWITCH)
    if kind in OPTIONAL_KINDS:
        text = _conditional(text, OPTIONAL_KINDS[kind])
    return _conditional(text, WEBHOOK_SWITCH) if _is_webhook(document) else text


def _with_optional_rights(text: str) -> str:
    """The role with each rule that may be left out in a condition; a comment starts a rule."""
    head, *rules = text.split("\n# ")
    written = [f"{head}\n"]
    for grant, rule in zip(cluster_grants(), rules, strict=True):
        rule_text = f"# {rule.rstrip()}\n"
        written.append(
            rule_text if grant.right is None else _conditional(rule_text, f"rights.{grant.right}")
        )
    return "".join(written)


def _file(document: Document) -> str:
    kind, name = str(document["kind"]).lower(), str(document["metadata"]["name"])
    if name.startswith(f"{NAME}-") and not _is_webhook(document):
        kind += name.removeprefix(NAME)
    return f"webhook-{kind}" if _is_webhook(document) else kind


def _is_webhook(document: Document) -> bool:
    return bool(document["metadata"]["name"] == WEBHOOK_NAME)


def _dashboards() -> str:
    files = "".join(f"  {NAME}-{name}: |\n{_file_of(name, 4)}" for name in DASHBOARDS)
    return _conditional(
        _without_last_field(dashboards(NAMESPACE, {}), "data") + files, DASHBOARDS_SWITCH
    )


def _without_last_field(document: Document, field: str) -> str:
    """The document up to its last field, whose content the caller appends."""
    return _with_values(plain_yaml({**document, field: {}})).removesuffix(" {}\n") + "\n"


def _file_of(name: str, indent: int) -> str:
    """A file of the chart verbatim: the template expressions in it are Prometheus' or Grafana's."""
    return f'{" " * indent}{{{{- .Files.Get "monitoring/{name}" | nindent {indent} }}}}\n'


def _conditional(text: str, value: str) -> str:
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _with_values(text: str) -> str:
    port = '{{ dig "http" "port" 8080 .Values.config }}'
    expressions = {
        NAMESPACE: "{{ .Release.Namespace }}",
        IMAGE: '{{ required "image: name the container image to run" .Values.image }}',
        str(REPLICAS): "{{ .Values.replicas }}",
        str(PORT): port,
        str(WEBHOOK_PORT): '{{ dig "webhook" "port" 9443 .Values.config }}',
        f'["{SCHEDULER}"]': SCHEDULERS,
        RESOURCES: "{{ toJson .Values.resources }}",
        PRIORITY_CLASS: "{{ .Values.priorityClassName | quote }}",
        **{
            placeholder: f"{{{{ toJson .Values.{value} }}}}"
            for value, placeholder in POD_VALUES.items()
        },
    }
    for placeholder, expression in expressions.items():
        text = text.replace(placeholder, expression)
    return text
