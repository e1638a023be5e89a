"""The chart's values: their JSON schema, and the table of the README with their meanings.

The schema rejects invalid values before they are applied. The configuration's part is that of its
model. Fields of a pod's spec are checked only as far as Kubernetes would refuse them anyway, only
later.
"""

import json
from collections.abc import Iterator

import yaml

from kai_py.config import Configuration
from kai_py.deploy.parts import IMAGE_NAME, Document
from kai_py.deploy.permissions import Right

QUANTITY = r"^[+]?[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
TEXT: Document = {"type": "string"}
TEXTS: Document = {"type": "object", "additionalProperties": TEXT}
AMOUNTS: Document = {
    "type": "object",
    "additionalProperties": {"type": ["string", "integer", "number"], "pattern": QUANTITY},
}


def values_schema() -> Document:
    """The JSON schema of the values."""
    config = Configuration.model_json_schema(by_alias=True)
    definitions = config.pop("$defs", {})
    # The configuration may leave the port to the system; a Service needs one that is known.
    definitions["HttpConfig"]["properties"]["port"]["minimum"] = 1
    properties = {**_pod_values(), **_exposure_values(), **_feature_values(config)}
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "$defs": definitions, **_object(properties, "image")}


def _pod_values() -> Document:
    """Values that go to the scheduler's pods."""
    secret = _object({"name": {**TEXT, "pattern": DNS_SUBDOMAIN}}, "name")
    return {
        "image": {**TEXT, "pattern": f"^({IMAGE_NAME})?$"},
        "imagePullSecrets": _list(secret),
        "fullnameOverride": {**TEXT, "pattern": "^([a-z]([-a-z0-9]{0,30}[a-z0-9])?)?$"},
        "replicas": {"type": "integer", "minimum": 1},
        "resources": _object({"requests": AMOUNTS, "limits": AMOUNTS}),
        "priorityClassName": TEXT,
        "nodeSelector": TEXTS,
        "tolerations": _list(_toleration()),
        "affinity": {"type": "object"},
        "podAnnotations": TEXTS,
        "podLabels": TEXTS,
        "serviceAccountAnnotations": TEXTS,
        "env": _list({"type": "object", "required": ["name"]}),
        "envFrom": _list({"type": "object"}),
        "extraVolumes": _list({"type": "object", "required": ["name"]}),
        "extraVolumeMounts": _list({"type": "object", "required": ["name", "mountPath"]}),
        "extraArgs": _list(TEXT),
    }


def _exposure_values() -> Document:
    """How the dashboard is reached."""
    return {
        "ingress": _object(
            {
                "enabled": {"type": "boolean"},
                "className": TEXT,
                "host": TEXT,
                "annotations": TEXTS,
                "tls": _list({"type": "object"}),
            }
        ),
        "route": _object(
            {
                "enabled": {"type": "boolean"},
                "hostnames": _list(TEXT),
                "parentRefs": _list({"type": "object", "required": ["name"]}),
            }
        ),
    }


def _feature_values(config: Document) -> Document:
    """What is installed beside the scheduler, and what it may do."""
    return {
        "networkPolicy": {"type": "boolean"},
        "admissionPolicies": {"type": "boolean"},
        "rights": _switches(*Right),
        "nodePools": _list({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$"}),
        "gpuSharing": _switches("enabled", "createNamespace"),
        "crds": _switches("install"),
        "monitoring": _object(
            {
                name: {"type": "boolean"}
                for name in ("serviceMonitor", "podMonitor", "rules", "dashboards")
            }
            | {"labels": TEXTS, "runbookURL": {**TEXT, "pattern": "^(https?://.+)?$"}}
        ),
        "readers": _switches("throughApiServer"),
        "config": config,
        "webhook": _switches("enabled"),
        "withKaiApi": {"type": "boolean"},
        "global": {"type": "object"},
    }


def _object(properties: Document, *required: str) -> Document:
    checked: Document = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    return checked | ({"required": list(required)} if required else {})


def _list(items: Document) -> Document:
    return {"type": "array", "items": items}


def _switches(*names: str) -> Document:
    return _object({name: {"type": "boolean"} for name in names})


def _toleration() -> Document:
    return _object(
        {
            "key": TEXT,
            "operator": {"enum": ["Exists", "Equal", "Lt", "Gt"]},
            "value": TEXT,
            "effect": {"enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]},
            "tolerationSeconds": {"type": "integer"},
        }
    )


def value_rows(values: str) -> Iterator[str]:
    """A line of the README's table for each value, nested ones by their path, with its comment."""
    meanings = _comments(values)
    for path, value in _leaves(yaml.safe_load(values)):
        meaning = meanings.get(path) or meanings[path.rpartition(".")[0]]
        yield f"| `{path}` | `{json.dumps(value)}` | {meaning} |\n"


def _leaves(values: Document, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _comments(values: str) -> dict[str, str]:
    """The comment above each value, by the path of the value; at most two levels deep."""
    found: dict[str, str] = {}
    comment: list[str] = []
    group = ""
    for line in values.splitlines():
        content = line.strip()
        if content.startswith("# "):
            comment.append(content.removeprefix("# "))
            continue
        name = content.partition(":")[0]
        group = group if line.startswith(" ") else name
        found[f"{group}.{name}" if line.startswith(" ") else name] = " ".join(comment)
        comment = []
    return found
