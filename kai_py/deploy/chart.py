"""The Helm chart, generated from the same objects as ``kai-py install``.

The objects are made with placeholders for what a release decides, which are then replaced by
template expressions; so the chart can't drift from what is tested on a real API server.
"""

import json
import re
from importlib import metadata, resources

import yaml

from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.crd import crds, plain_yaml
from kai_py.api.gpu_share import RESERVATION
from kai_py.api.settings import HttpConfig, WebhookConfig
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.deploy.chart_values import value_rows, values_schema
from kai_py.deploy.kai_api import kai_defaults, kai_definitions
from kai_py.deploy.monitoring import DASHBOARDS, POOL_LABEL, RULES, scraping, text_of
from kai_py.deploy.objects import NAME, Installation, dashboards, manifests, text_of_manifest
from kai_py.deploy.parts import CONFIGURATION_FILE, Document, labels_of, named_object
from kai_py.deploy.permissions import cluster_grants

WRITTEN_TEMPLATES = ("_config.tpl", "ingress.yaml", "httproute.yaml", "NOTES.txt")
"""Templates of the directory ``chart_files``, of what only a chart has."""
NAMESPACE, IMAGE, REPLICAS, PORT = "release-namespace", "values-image", 1234, 45678
WEBHOOK_PORT, SCHEDULER = 45679, "values-scheduler"
RESOURCES, PRIORITY_CLASS = "values-resources", "values-priority-class"
POD_VALUES = {
    "nodeSelector": "values-node-selector",
    "tolerations": "values-tolerations",
    "imagePullSecrets": "values-pull-secrets",
}
CONTAINER_VALUES = {"env": "values-env", "envFrom": "values-env-from"}
LIST_VALUES = {
    "values-extra-args": ("extraArgs", "quote ."),
    "values-volume-mounts": ("extraVolumeMounts", "toJson ."),
    "values-volumes": ("extraVolumes", "toJson ."),
}
"""Last items of lists, in whose place the items of a value are written, and how."""
MAP_VALUES = {
    "values-pod-annotations": "podAnnotations",
    "values-pod-labels": "podLabels",
    "values-account-annotations": "serviceAccountAnnotations",
    "values-monitoring-labels": "monitoring.labels",
}
"""Keys, in whose place the entries of a value are written."""
AFFINITY = "values-affinity"
OPTIONAL_KINDS = {
    "NetworkPolicy": "networkPolicy",
    "ValidatingAdmissionPolicy": "admissionPolicies",
    "ValidatingAdmissionPolicyBinding": "admissionPolicies",
    "ServiceMonitor": "monitoring.serviceMonitor",
    "PodMonitor": "monitoring.podMonitor",
    "PrometheusRule": "monitoring.rules",
}
"""Kinds that a value enables, and the value."""
MONITORING_KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
WEBHOOK_SWITCH = "webhook.enabled"
KAI_API_SWITCH = "withKaiApi"
OWN_NAME = re.compile(
    rf"((?<![\w/])name: |serviceAccountName: |policyName: |^  - |^  - http:|:){NAME}"
    r"(?!-webhook|-gpu-reservation|/)(?=[\s'{:-])(-[a-z-]+)?",
    re.MULTILINE,
)
"""A name of an object of the chart; labels and those that the program itself knows stay."""
WITH_DEFAULTS = '{{- include "kai-py.values" . }}\n'
SHARING_SWITCH = "gpuSharing.enabled"
RULES_TEMPLATE = """\
  {{- $rules := .Files.Get "monitoring/rules.yaml" }}
  {{- with .Values.monitoring.runbookURL }}
  {{- $base := trimSuffix "/" . }}
  {{- $rules = $rules | replace "runbook: runbooks/" (printf "runbook_url: %s/" $base) }}
  {{- end }}
  {{- $rules | nindent 2 }}
"""
"""The rules verbatim, as their template expressions are Prometheus'.

The runbooks of alerts become links where the value says where docs/runbooks is served.
"""
DASHBOARDS_SWITCH = "monitoring.dashboards"
KEPT = {"helm.sh/resource-policy": "keep"}
AFTER_DEFINITIONS = {
    "helm.sh/hook": "post-install,post-upgrade",
    # By default hooks are deleted before they are made again. Helm makes none that exist; Argo CD,
    # which renders without a cluster, would delete queues that are in use.
    "helm.sh/hook-delete-policy": "hook-failed",
}
DIGEST_KEY = "kai-py/configuration"

SCHEDULERS = (
    '{{ prepend (dig "schedulerAliases" list .Values.config) '
    '(dig "schedulerName" "kai-scheduler" .Values.config) | toJson }}'
)

LABEL_OF_PODS = Configuration().node_pool.label
LABEL_OF_PODS_VALUE = f'{{{{ dig "nodePool" "label" "{LABEL_OF_PODS}" .Values.config }}}}'


def chart() -> dict[str, str]:
    """The files of the chart by path."""
    values = _written("values.yaml")
    files = {
        "Chart.yaml": _chart_file(),
        "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
        "values.yaml": values,
        "templates/_defaults.tpl": f'{{{{- define "kai-py.defaults" }}}}\n{values}{{{{- end }}}}\n',
        "README.md": _written("README.md") + "".join(value_rows(values)),
    }
    files |= {f"templates/{name}": _written(name) for name in WRITTEN_TEMPLATES}
    files |= {f"templates/crd-{name}": _definition(crd) for name, crd in crds().items()}
    files |= {f"monitoring/{name}": text_of(name) for name in (RULES, *DASHBOARDS)}
    for document in (*kai_definitions(), *kai_defaults()):
        files[f"templates/kai-api/{_kai_file(document)}.yaml"] = _kai_template(document)
    for document in (*manifests(_installation()), _pod_monitor()):
        kind = document["kind"]
        if document["metadata"]["name"] == f"{NAME}-dashboards":
            files["templates/dashboards.yaml"] = _dashboards()
        elif kind == "Namespace" and document["metadata"]["name"] == RESERVATION:
            text = _with_values(text_of_manifest(document))
            files[f"templates/{kind.lower()}-gpu-sharing.yaml"] = _conditional(
                _conditional(text, "gpuSharing.createNamespace"), SHARING_SWITCH
            )
        elif kind not in ("CustomResourceDefinition", "Namespace"):
            text = _template(document)
            is_scheduler = kind == "Deployment" and not _is_webhook(document)
            made = _for_node_pools(text) if is_scheduler else text
            files[f"templates/{_file(document)}.yaml"] = made
    return {path: _finished(path, text) for path, text in files.items()}


def _finished(path: str, text: str) -> str:
    """A template that reads the values with their defaults, its objects named as they say."""
    if not path.startswith("templates/") or not path.endswith(".yaml"):
        return text
    if path.startswith("templates/kai-api/"):
        return WITH_DEFAULTS + text
    return WITH_DEFAULTS + OWN_NAME.sub(
        rf'\1{{{{ default "{NAME}" .Values.fullnameOverride }}}}\2', text
    )


def _definition(crd: Document) -> str:
    """A definition among the templates: Helm never upgrades those of the directory ``crds``.

    It is kept when the release is deleted, as all objects of the kind would be deleted with it.
    """
    annotations = {"helm.sh/resource-policy": "keep"} | crd["metadata"].get("annotations", {})
    kept = crd | {"metadata": crd["metadata"] | {"annotations": annotations}}
    return _conditional(plain_yaml(kept), "crds.install")


def _written(name: str) -> str:
    """A file of the chart that is written by hand."""
    return resources.files("kai_py.deploy").joinpath("chart_files", name).read_text("utf-8")


def _pod_monitor() -> Document:
    spec = scraping(labels_of(NAME))
    spec["podMetricsEndpoints"] = spec.pop("endpoints")
    return named_object(NAME, "monitoring.coreos.com/v1", "PodMonitor", NAMESPACE, spec=spec)


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
            "description": "A gang scheduler for GPU workloads on Kubernetes",
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
        document = _with_pod_values(document)
    if kind == "ServiceAccount" and document["metadata"]["name"] in (NAME, WEBHOOK_NAME):
        document["metadata"]["annotations"] = {"values-account-annotations": ""}
    if kind in MONITORING_KINDS:
        document["metadata"]["labels"] = labels_of(NAME) | {"values-monitoring-labels": ""}
    if kind == "PrometheusRule":
        return _conditional(
            _without_last_field(document, "spec") + RULES_TEMPLATE, OPTIONAL_KINDS[kind]
        )
    text = _with_values(text_of_manifest(document))
    if kind == "ClusterRole" and document["metadata"]["name"] == NAME:
        text = _with_optional_rights(text)
    if document["metadata"].get("namespace") == RESERVATION:
        return _conditional(text, SHARING_SWITCH)
    if (kind, document["metadata"]["name"]) == ("RoleBinding", f"{NAME}-proxy"):
        return _conditional(text, "readers.throughApiServer")
    if kind in OPTIONAL_KINDS:
        text = _conditional(text, OPTIONAL_KINDS[kind])
    return _conditional(text, WEBHOOK_SWITCH) if _is_webhook(document) else text


def _kai_file(document: Document) -> str:
    return f"{str(document['kind']).lower()}-{document['metadata']['name']}"


def _kai_template(document: Document) -> str:
    """An object of KAI's API, unless KAI or a user has made it; it outlives the release.

    Queues are made after their definition, and only where they do not exist: users change them.
    What hooks make belongs to no release.
    """
    kind, name = str(document["kind"]), str(document["metadata"]["name"])
    keys = AFTER_DEFINITIONS if kind == "Queue" else KEPT
    metadata = {**document["metadata"], "annotations": keys}
    condition = f'include "kai-py.mayMake" (list . "{document["apiVersion"]}" "{kind}" "{name}")'
    text = plain_yaml({**document, "metadata": metadata})
    guarded = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return _conditional(guarded, KAI_API_SWITCH)


def _with_pod_values(deployment: Document) -> Document:
    """The Deployment with a placeholder for each value that its pods and their container have."""
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"]["values-pod-annotations"] = ""
    template["metadata"]["labels"] = {**template["metadata"]["labels"], "values-pod-labels": ""}
    pod = template["spec"]
    pod["affinity"] = AFFINITY + json.dumps(pod["affinity"], separators=(",", ":"))
    pod["volumes"] = [*pod["volumes"], "values-volumes"]
    [container] = pod["containers"]
    container |= CONTAINER_VALUES
    container["volumeMounts"] = [*container["volumeMounts"], "values-volume-mounts"]
    if not _is_webhook(deployment):
        container["args"] = [*container["args"], "values-extra-args"]
    return deployment


def _for_node_pools(text: str) -> str:
    """The Deployment of the scheduler once as it is, and once for each further node pool."""
    suffix = "{{ with .nodePool }}-{{ . }}{{ end }}"
    text = text.replace(f"  name: {NAME}\n", f"  name: {NAME}{suffix}\n", 1)
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        lines.append(line)
        content = line.lstrip()
        if content.startswith("- --config="):
            lines.append(_if_pool(line, "- --node-pool={{ . }}"))
        elif content == f"app.kubernetes.io/name: {NAME}\n":
            lines.append(_if_pool(line, f"{POOL_LABEL}: {{{{ . }}}}"))
    body = "".join(lines)
    return (
        f'{{{{- define "kai-py.deployment" }}}}\n{body}{{{{- end }}}}\n'
        '{{- range $pool := prepend .Values.nodePools "" }}\n'
        '---\n{{- include "kai-py.deployment" (merge (dict "nodePool" $pool) $) }}\n{{- end }}\n'
    )


def _if_pool(line: str, content: str) -> str:
    """A line like another, where the Deployment is that of a further node pool."""
    indent = line[: len(line) - len(line.lstrip())]
    return _loop(indent, "with .nodePool", content)


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
        f"[?'{LABEL_OF_PODS}']": f"[?'{LABEL_OF_PODS_VALUE}']",
        RESOURCES: "{{ toJson .Values.resources }}",
        PRIORITY_CLASS: "{{ .Values.priorityClassName | quote }}",
        **{
            f": {placeholder}\n": f": {{{{ toJson .Values.{value} }}}}\n"
            for value, placeholder in (POD_VALUES | CONTAINER_VALUES).items()
        },
    }
    for placeholder, expression in expressions.items():
        text = text.replace(placeholder, expression)
    return "".join(map(_with_repeated_values, text.splitlines(keepends=True)))


def _with_repeated_values(line: str) -> str:
    """A line of a template, or the loop over a value for which it stands."""
    content = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    for placeholder, (value, written) in LIST_VALUES.items():
        if content == f"- {placeholder}":
            loop = f"range .Values.{value}"
            return _loop(indent, loop, f"- {{{{ {written} }}}}")
    for placeholder, value in MAP_VALUES.items():
        if content.startswith(f"{placeholder}:"):
            loop = f"range $key, $value := .Values.{value}"
            return _loop(indent, loop, "{{ quote $key }}: {{ quote $value }}")
    if AFFINITY in content:
        default = content.partition(AFFINITY)[2].removesuffix("'")
        chosen = f"{{{{ .Values.affinity | default (fromJson `{default}`) | toJson }}}}"
        return f"{indent}affinity: {chosen}\n"
    return line


def _loop(indent: str, loop: str, body: str) -> str:
    return f"{indent}{{{{- {loop} }}}}\n{indent}{body}\n{indent}{{{{- end }}}}\n"
