"""Releases of the chart, made by helm, on a cluster that has none of its definitions."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.controlplane import ControlPlane, control_plane
from tests.deploy.helm import built_once, helm
from tests.support import yaml_text
from tests.support.repository import CHART

NAMESPACE = "gpu-scheduling"
QUEUE = "queues.scheduling.run.ai/default-queue"
QUOTA = "jsonpath={.spec.resources.gpu.quota}"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path / "plane") as started:
        yield started


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """The chart for any version: a control plane that Go's tools build does not know its own."""
    copied = tmp_path / "chart"
    shutil.copytree(CHART, copied)
    described = yaml_text.read((CHART / "Chart.yaml").read_text())
    del described["kubeVersion"]
    (copied / "Chart.yaml").write_text(yaml.safe_dump(described))
    return copied


def kubectl(plane: ControlPlane, *arguments: str) -> str:
    command = [plane.kubectl, f"--kubeconfig={plane.kubeconfig}", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def release(plane: ControlPlane, *arguments: str | Path) -> str:
    options = (f"--kubeconfig={plane.kubeconfig}", f"--namespace={NAMESPACE}")
    done = helm(*arguments, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@built_once
def test_releases_keep_the_queues_that_users_have_changed(plane: ControlPlane, chart: Path) -> None:
    """Those of KAI's API are made by the release that defines their kind, and only once."""
    values = ("--set=image=i,withKaiApi=true", "--set-json=nodePools=" + json.dumps(["west"]))
    printed = release(plane, "install", "first", chart, "--create-namespace", *values)
    assert "rollout status deployment/kai-py" in printed
    assert kubectl(plane, "get", QUEUE, "-o=jsonpath={.spec.parentQueue}") == "default-parent-queue"
    changed = {"spec": {"resources": {"gpu": {"quota": 7}}}}
    kubectl(plane, "patch", QUEUE, "--type=merge", f"--patch={json.dumps(changed)}")

    release(plane, "upgrade", "first", chart, "--reuse-values", "--set=webhook.enabled=true")
    deployments = kubectl(plane, "get", "deployments", f"--namespace={NAMESPACE}", "-o=name")
    assert {name.partition("/")[2] for name in deployments.split()} == {
        "kai-py",
        "kai-py-west",
        "kai-py-webhook",
    }
    assert kubectl(plane, "get", QUEUE, f"-o={QUOTA}") == "7"

    release(plane, "uninstall", "first")
    assert not kubectl(plane, "get", "deployments", f"--namespace={NAMESPACE}", "-o=name")
    assert kubectl(plane, "get", QUEUE, f"-o={QUOTA}") == "7"
    kubectl(plane, "get", "queues.scheduling.kai.io")

    release(plane, "install", "second", chart, "--take-ownership", *values)
    assert kubectl(plane, "get", QUEUE, f"-o={QUOTA}") == "7"
