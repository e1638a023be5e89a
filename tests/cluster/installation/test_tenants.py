"""A user with rights in one namespace asks the scheduler through a real API server."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.connection import cluster_client
from kai_py.cli.errors import CommandError
from kai_py.deploy.parts import labels_of
from kai_py.deploy.permissions import reader_objects
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess, reader_finder
from kai_py.observe.token_review import TokenReviews
from kai_py.simulate.advisor import with_advisor
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode
from tests.support.cluster.account import kubeconfig_of, scheduler_account
from tests.support.cluster.api import Api
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import QUEUE_KEY, job, pod_spec, queue
from tests.support.cluster.scheduling import EAGER, install_definitions, scheduling
from tests.support.cluster.service_proxy import plane_with_service_proxy, ready_endpoint
from tests.support.records import replace

RBAC = "rbac.authorization.k8s.io"
SCHEDULER = "kai-py"


def kai_py(kubeconfig, *arguments):
    """Run a command as its own process would; status, output, what it says besides."""
    words = [*arguments, "--kubeconfig", str(kubeconfig)]
    result = CliRunner().invoke(main.app, words, obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


async def tenant(api: Api, namespace: str, path):
    """The kubeconfig of a user who may view one namespace."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "anna"}}
    await api.post(accounts, account)
    await api.post(
        f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings",
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "anna"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "anna", "namespace": namespace}],
        },
    )
    written = await kubeconfig_of(api, namespace, "anna", path)
    document = json.loads(written.read_text())
    for context in document["contexts"]:
        context["context"]["namespace"] = namespace
    written.write_text(json.dumps(document))
    return written


async def install_for_readers(api: Api) -> None:
    """The Service and the roles that `kai-py install` prints, without the Deployment."""
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SCHEDULER}})
    spec = {"selector": labels_of(SCHEDULER), "ports": [{"name": "http", "port": 8080}]}
    metadata = {"name": SCHEDULER, "namespace": SCHEDULER}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    for document in (service, *reader_objects(SCHEDULER, SCHEDULER)):
        await api.create(document)


async def work(api: Api, team: str) -> None:
    """A namespace with a Job that runs and one that is too large."""
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
    accounts = f"/api/v1/namespaces/{team}/serviceaccounts"
    await eventually(lambda: api.items(accounts), what=f"service account of {team}")
    await api.create(queue(team, deservedGPUs=8, maxGPUs=16))
    for name, pods in ((f"{team}-runs", 4), (f"{team}-waits", 20)):
        spec, named = pod_spec(gpus=1), {QUEUE_KEY: team}
        await api.create(job(name, pods, spec, namespace=team, annotations=named))


async def test_a_tenant_asks_for_its_own_through_the_api_server(tmp_path):
    async with plane_with_service_proxy(tmp_path) as plane, Api(plane.kubeconfig) as api:
        await install_definitions(api)
        await install_for_readers(api)
        cluster = Cluster(
            "real", plane.kubeconfig, await scheduler_account(api), plane.url, api, lambda _: None
        )
        nodes = [FakeNode(name=f"node-{i}", allocatable={"nvidia.com/gpu": "8"}) for i in range(2)]
        async with FakeKubelet(api, nodes), scheduling(cluster) as running:
            for team in ("ml", "vision"):
                await work(api, team)
            anna = await tenant(api, "ml", tmp_path / "anna.kubeconfig")
            async with cluster_client(str(cluster.scheduler_kubeconfig), "") as client:
                reviews = TokenReviews(client)
                access = HttpAccess("127.0.0.1", None, reviews, reader_finder(reviews))
                # A pod's server listens on every address: without a token it answers none.
                access = replace(access, token_file=tmp_path / "token")
                (tmp_path / "token").write_text("another")
                with with_advisor(running.scheduler.probes(), client, EAGER) as probes:
                    async with serve(probes, access, 0) as port:
                        await ready_endpoint(api, SCHEDULER, SCHEDULER, port)
                        await ask_everything(anna, tmp_path)


async def ask_everything(anna, tmp_path) -> None:
    async def ask(*arguments):
        return await asyncio.to_thread(kai_py, anna, *arguments)

    async def lists_both():
        try:
            listed = await ask("gangs", "-o", "name")
        except CommandError:  # roles and endpoints take a moment to take hold
            return False
        return listed.output.split() == ["ml/Job/ml-runs", "ml/Job/ml-waits"]

    await eventually(lists_both, within=30.0, what="the gangs of the namespace")
    listed = await ask("gangs")
    assert "vision" not in listed.output
    assert "Other namespaces: 2 gangs" in listed.stderr
    assert (await ask("queues", "-o", "name")).output.split() == ["ml"]
    explained = await ask("explain", "job/ml-waits")
    assert explained.exit_code == 1
    assert "ml/Job/ml-waits is pending" in explained.output
    assert "lets ml/Job/ml-waits start:\n  - let it start with " in explained.output
    assert "vision" not in explained.output
    with pytest.raises(CommandError, match="list pods in namespace vision is missing"):
        await ask("explain", "job/vision-waits", "-n", "vision")
    assert "Queue ml:" in (await ask("explain", "queue", "ml")).output
    entitled = (await ask("queues", "--explain", "ml")).output
    assert "it deserves 8 and may have 16" in entitled
    assert "vision" not in entitled
    decided = [json.loads(line) for line in (await ask("decisions")).output.splitlines()]
    assert {each["gang"] for each in decided} == {"ml/Job/ml-runs", "ml/Job/ml-waits"}
    assert "vision" not in json.dumps(decided)
    devices = json.loads((await ask("devices", "-o", "json")).output)
    assert {each["gang"] for entry in devices for each in entry["claims"]} == {"ml/Job/ml-runs"}
    assert sum(each["count"] for each in devices) == 16
    screen = (await ask("top", "--once")).output
    assert "others: 1 gang running, 1 pending" in screen
    assert "ml-waits" in screen
    assert "vision" not in screen
    simulated = await ask("what-if", "--remove", "ml/Job/ml-runs")
    assert "vision" not in simulated.output
    added = tmp_path / "more.yaml"
    one = job("ml-more", 1, pod_spec(gpus=1), namespace="ml", annotations={QUEUE_KEY: "ml"})
    del one["metadata"]["namespace"]
    added.write_text(json.dumps(one))
    simulated = await ask("what-if", "--add", str(added))
    assert "ml/Job/ml-more" in simulated.output
    added.write_text(json.dumps(job("x", 1, pod_spec(gpus=1), namespace="vision", annotations={})))
    with pytest.raises(CommandError, match="may not list pods in namespace vision"):
        await ask("what-if", "--add", str(added))
    with pytest.raises(CommandError, match="whose pods you may not list"):
        await ask("what-if", "--remove", "vision/Job/vision-runs")
