"""The Helm chart is complete; ``test_helm.py`` renders it."""

import json
from pathlib import Path

import pytest

from kai_py.deploy.chart import IMAGE, NAMESPACE, PORT, REPLICAS, SCHEDULER, WEBHOOK_PORT, chart
from tests.support import yaml_text


@pytest.mark.slow
def test_no_stand_in_is_left():
    text = "".join(chart().values())
    for stand_in in (NAMESPACE, IMAGE, SCHEDULER, str(REPLICAS), str(PORT), str(WEBHOOK_PORT)):
        assert stand_in not in text


@pytest.mark.slow
def test_every_object_but_the_namespace_has_a_template():
    names = {Path(name).stem for name in chart() if name.startswith("templates/")}
    assert names >= {
        "serviceaccount",
        "clusterrole",
        "clusterrolebinding",
        "role",
        "rolebinding",
        "configmap",
        "deployment",
        "service",
        "poddisruptionbudget",
        "networkpolicy",
        "servicemonitor",
        "prometheusrule",
        "dashboards",
    }


@pytest.mark.slow
def test_values_have_a_schema_of_the_configuration():
    schema = json.loads(chart()["values.schema.json"])
    assert schema["properties"]["config"]["properties"]["schedulerName"]
    assert set(yaml_text.read(chart()["values.yaml"])) <= set(schema["properties"])


@pytest.mark.slow
def test_webhooks_stand_behind_a_value():
    for name, text in chart().items():
        if name.startswith("templates/webhook-"):
            switch = "{{- if .Values.webhook.enabled }}\n"
            assert text.startswith(f'{{{{- include "kai-py.values" . }}}}\n{switch}')
            assert text.endswith("{{- end }}\n")
        elif name.startswith("templates/"):
            assert "kai-py-webhook" not in text
    assert yaml_text.read(chart()["values.yaml"])["webhook"] == {"enabled": False}


@pytest.mark.slow
def test_every_value_is_explained():
    rows = [
        line.split(" | ") for line in chart()["README.md"].splitlines() if line.startswith("| `")
    ]
    assert len(rows) > 40
    assert [row for row in rows if len(row) != 3 or not row[2].removesuffix(" |").strip()] == []


@pytest.mark.slow
def test_no_hook_is_deleted_before_it_is_made_again():
    hooks = [text for text in chart().values() if "helm.sh/hook:" in text]
    assert len(hooks) == 2
    assert all("helm.sh/hook-delete-policy: hook-failed" in text for text in hooks)
