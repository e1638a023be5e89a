"""kubectl is the first client a person uses: it works the same on every kind of cluster."""

import asyncio
from pathlib import Path

import yaml

from kai_py.api.crd import queue_crd
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.patience import patience

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      schedulerName: no-scheduler
      restartPolicy: Never
      containers: [{name: main, image: "busybox:1"}]
"""


async def test_apply_get_describe_delete(cluster: Cluster, kubectl, tmp_path: Path):
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST)
    assert "job.batch/train created" in await kubectl("apply", "-f", str(manifest))
    assert "job.batch/train unchanged" in await kubectl("apply", "-f", str(manifest))
    manifest.write_text(MANIFEST.replace("red", "blue"))
    assert "configmap/settings configured" in await kubectl("apply", "-f", str(manifest))
    colour = await kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}")
    assert colour == "blue"

    async def two_pods() -> bool:
        rows = (await kubectl("get", "po", "--no-headers")).splitlines()
        return len(rows) == 2 and all("Pending" in row for row in rows)

    await eventually(two_pods, what="two pending pods")
    described = await kubectl("describe", "pod", "-l", "job-name=train")
    assert described.count("Controlled By:") == 2
    assert "Job/train" in described
    await kubectl("label", "job", "train", "team=a")
    assert "train" in await kubectl("get", "jobs", "-l", "team=a")
    await kubectl("delete", "-f", str(manifest), f"--timeout={patience(30):.0f}s")

    async def empty() -> bool:
        return "No resources found" in await kubectl("get", "pods")

    await eventually(empty, within=30, what="no pods")


async def test_applying_on_the_server(cluster: Cluster, kubectl):
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "applied"},
        "data": {"a": "1"},
    }
    await kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(document))
    await kubectl("patch", "cm", "applied", "-p", '{"data":{"b":"2"}}')
    shown = yaml.safe_load(await kubectl("get", "cm", "applied", "-o", "yaml"))
    assert shown["data"] == {"a": "1", "b": "2"}


async def test_custom_resources_show_their_columns(cluster: Cluster, kubectl, tmp_path: Path):
    definition = tmp_path / "crd.yaml"
    definition.write_text(yaml.safe_dump(queue_crd()))
    await kubectl("apply", "-f", str(definition))
    await kubectl(
        "wait",
        "--for=condition=Established",
        "-f",
        str(definition),
        f"--timeout={patience(20):.0f}s",
    )
    queue = {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "team-a"},
        "spec": {"deservedGPUs": 8, "maxGPUs": 16},
    }
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump(queue))
    header, row = (await kubectl("get", "queues.scheduling.kai.io")).splitlines()
    assert header.split()[0] == "NAME"
    assert "team-a" in row
    assert "8" in row.split()


async def test_a_watch_prints_rows_as_they_come(kubectl, start_kubectl):
    watching = await start_kubectl("get", "cm", "-w", "--no-headers", "-l", "seen=yes")
    names = ("one", "two")
    documents = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": n}} for n in names]
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(documents))
    try:
        for name in names:
            await kubectl("label", "configmap", name, "seen=yes")
            line = await asyncio.wait_for(watching.stdout.readline(), patience(15))
            assert line.decode().split()[0] == name
    finally:
        watching.terminate()
        await watching.wait()
