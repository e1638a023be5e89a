"""kai-py snapshot: what it saves of a cluster, and that a redacted one replays to the same plan."""

import asyncio
import json
import re

import pytest
from typer.testing import CliRunner

from kai_py.api.crd import crds
from kai_py.cli import main
from kai_py.cli.errors import CommandError
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes
from tests.simulate.clusters import job, queue, template

pytestmark = pytest.mark.cluster


def run(*arguments):
    result = CliRunner().invoke(main.app, list(arguments), obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.fixture
async def kubeconfig(tmp_path):
    async with EmbeddedCluster() as cluster:
        cluster.create_all([*crds().values(), *nvidia_device_classes(), template()])
        cluster.create(h100_node("secret-node", gpus=4))
        cluster.create_all(h100_slices("secret-node", gpus=4))
        cluster.create_all([queue("secret-team", 4), job("secret-a", 3, "secret-team")])
        cluster.create(job("secret-b", 2, "secret-team"))
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        yield str(path)


async def test_a_redacted_snapshot_replays_to_the_same_plan(kubeconfig, tmp_path):
    plans = []
    for name, options in (("plain.json", ()), ("hidden.json.gz", ("--redact",))):
        path = str(tmp_path / name)
        told = await asyncio.to_thread(run, "snapshot", path, "--kubeconfig", kubeconfig, *options)
        assert re.fullmatch(rf"saved \d+ objects to {re.escape(path)}\n", told)
        plans.append(await asyncio.to_thread(run, "replay", path))
    plain, hidden = plans
    assert "place default/Job/secret-a (queue secret-team, allocate)" in plain
    assert "secret" in plain
    assert "secret" not in hidden
    shape = [re.sub(r"(secret|name|gpu)-[-\w]*", "*", plan) for plan in plans]
    assert shape[0] == shape[1]


async def test_a_snapshot_can_go_through_a_pipe(kubeconfig, tmp_path):
    path = tmp_path / "cluster.json"
    await asyncio.to_thread(run, "snapshot", str(path), "--kubeconfig", kubeconfig)
    piped = await asyncio.to_thread(run, "snapshot", "-", "--kubeconfig", kubeconfig)
    names = [
        [each["metadata"]["name"] for each in json.loads(text)["items"]]
        for text in (path.read_text(encoding="utf-8"), piped)
    ]
    assert names[0] == names[1]


async def test_where_nothing_can_be_written_is_one_line(kubeconfig, tmp_path):
    path = str(tmp_path / "none" / "file.json")
    with pytest.raises(CommandError, match=r"file\.json: No such file"):
        await asyncio.to_thread(run, "snapshot", path, "--kubeconfig", kubeconfig)
