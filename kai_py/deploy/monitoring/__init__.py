"""Monitoring: recording and alerting rules for Prometheus, dashboards for Grafana.

The files beside this module are the originals. `rules.yaml` is a rule file of Prometheus as well as
the spec of a PrometheusRule; dashboards are JSON as Grafana exports it.
"""

from importlib.resources import files
from typing import Any

import yaml

Document = dict[str, Any]
RULES = "rules.yaml"
DASHBOARDS = ("scheduler.json", "devices.json")
POOL_LABEL = "kai-py/node-pool"
"""Label of a scheduler's pods with their node pool, if they are for one."""
DASHBOARD_LABEL = {"grafana_dashboard": "1"}
"""Label of ConfigMaps that Grafana's sidecar loads."""


def text_of(name: str) -> str:
    """The content of a file."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def rule_groups() -> Document:
    """The groups of recording and alerting rules."""
    groups: Document = yaml.safe_load(text_of(RULES))
    return groups


def scraping(labels: dict[str, str]) -> Document:
    """Spec of the ServiceMonitor; ``labels`` are those of the Service.

    The metrics' labels `namespace` and `pod` are those of claims, not of the scheduler's pod, hence
    ``honorLabels``. Of the pod they get the node pool, as the label ``node_pool``.
    """
    pool = "__meta_kubernetes_pod_label_" + POOL_LABEL.replace("-", "_").replace("/", "_")
    endpoint = {
        "port": "http",
        "path": "/metrics",
        "interval": "30s",
        "honorLabels": True,
        "relabelings": [{"sourceLabels": [pool], "targetLabel": "node_pool"}],
    }
    return {"selector": {"matchLabels": labels}, "endpoints": [endpoint]}
