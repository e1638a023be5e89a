"""The Helm chart, made from the same objects as ``kai-py manifests``.

The objects are made once with stand-ins for what a release decides, then the stand-ins are replaced
by template expressions; so the chart can't drift from what is tested on a real API server.
"""

import json
from importlib import metadata

import yaml

from kai_py.api.crd import crds, plain_yaml
from kai_py.config import Configuration, Http, LeaderElection
from kai_py.deploy.objects import (
    CONFIGURATION_FILE,
    NAME,
    Document,
    Installation,
    manifests,
)

NAMESPACE, IMAGE, REPLICAS, PORT = "release-namespace", "values-image", 1234, 45678
DIGEST_KEY = "kai-py/configuration"

HELPERS = """\
{{- define "kai-py.config" -}}
{{- $own := dict "leaderElection" (dict "namespace" .Release.Namespace) -}}
{{- mustMergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}
"""

VALUES = """\
# Container image whose entry point is kai-py; docs/install.md says how to build it.
image: ""
# One schedules, the rest stand by.
replicas: 2
# The scheduler's configuration; `kai-py run --config` reads the same file.
config: {}
"""


def chart() -> dict[str, str]:
    """The files of the chart by path."""
    files = {
        "Chart.yaml": _chart_file(),
        "values.yaml": VALUES,
        "values.schema.json": json.dumps(_values_schema(), indent=2) + "\n",
        "templates/_config.tpl": HELPERS,
    }
    for name, document in crds().items():
        files[f"crds/{name}"] = plain_yaml(document)
    for document in manifests(_installation()):
        kind = document["kind"]
        if kind not in ("CustomResourceDefinition", "Namespace"):
            files[f"templates/{kind.lower()}.yaml"] = _template(document)
    return files


def _installation() -> Installation:
    configuration = Configuration(
        leader_election=LeaderElection(namespace=NAMESPACE), http=Http(port=PORT)
    )
    return Installation(
        image=IMAGE, namespace=NAMESPACE, replicas=REPLICAS, configuration=configuration
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


def _values_schema() -> Document:
    config = Configuration.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["image"],
        "additionalProperties": False,
        "$defs": config.pop("$defs", {}),
        "properties": {
            "image": {"type": "string", "minLength": 1},
            "replicas": {"type": "integer", "minimum": 1},
            "config": config,
            "global": {"type": "object"},
        },
    }


def _template(document: Document) -> str:
    if document["kind"] == "ConfigMap":
        head = {**document, "data": {}}
        return (
            _replaced(plain_yaml(head).replace("data: {}\n", "data:\n"))
            + f"  {CONFIGURATION_FILE}: |\n"
            + '    {{- include "kai-py.config" . | nindent 4 }}\n'
        )
    if document["kind"] == "Deployment":
        annotations = document["spec"]["template"]["metadata"]["annotations"]
        annotations[DIGEST_KEY] = '{{ include "kai-py.config" . | sha256sum | trunc 16 }}'
    return _replaced(plain_yaml(document))


def _replaced(text: str) -> str:
    port = '{{ dig "http" "port" 8080 .Values.config }}'
    return (
        text.replace(NAMESPACE, "{{ .Release.Namespace }}")
        .replace(IMAGE, '{{ required "image: set the image to run" .Values.image }}')
        .replace(str(REPLICAS), "{{ .Values.replicas }}")
        .replace(str(PORT), port)
    )
