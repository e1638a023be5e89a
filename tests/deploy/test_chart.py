"""The Helm chart is complete; where a `helm` is found it is rendered and linted."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from kai_py.deploy.chart import IMAGE, NAMESPACE, PORT, REPLICAS, chart

HELM = shutil.which("helm")
CHART = Path(__file__).parents[2] / "charts" / "kai-py"
TEMPLATE = (HELM, "template", "release", str(CHART), "--kube-version", "1.36.0")


def test_no_stand_in_is_left():
    text = "".join(chart().values())
    for stand_in in (NAMESPACE, IMAGE, str(REPLICAS), str(PORT)):
        assert stand_in not in text


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
    }


def test_values_have_a_schema_of_the_configuration():
    schema = json.loads(chart()["values.schema.json"])
    assert schema["properties"]["config"]["properties"]["schedulerName"]
    assert set(yaml.safe_load(chart()["values.yaml"])) <= set(schema["properties"])


@pytest.mark.skipif(HELM is None, reason="no helm on the PATH")
def test_helm_renders_what_was_asked_for():
    values = ["--set", "image=registry.example/kai-py:1", "--set", "config.http.port=9090"]
    shown = subprocess.run(
        [*TEMPLATE, "--namespace", "gpu", *values],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    documents = {each["kind"]: each for each in yaml.safe_load_all(shown) if each}
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/kai-py:1"
    assert container["ports"][0]["containerPort"] == 9090
    assert documents["Deployment"]["metadata"]["namespace"] == "gpu"
    config = yaml.safe_load(documents["ConfigMap"]["data"]["config.yaml"])
    assert config == {"http": {"port": 9090}, "leaderElection": {"namespace": "gpu"}}


@pytest.mark.skipif(HELM is None, reason="no helm on the PATH")
def test_helm_refuses_what_the_scheduler_would():
    for wrong in ("config.schedulerNam=x", "replicas=0", "image="):
        values = ["--set", "image=i", "--set", wrong]
        done = subprocess.run(
            [*TEMPLATE, *values],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0, wrong
