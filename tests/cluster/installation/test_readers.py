"""Who may read the dashboard, as a real API server with RBAC knows it."""

import asyncio
import itertools
from contextlib import suppress

import aiohttp
from prometheus_client import CollectorRegistry

from kai_py.cli.connection import cluster_client
from kai_py.cli.errors import CommandError
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.deploy.objects import NAME
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.metrics import Metrics
from kai_py.observe.token_review import TokenReviews
from kai_py.scheduler import Scheduler
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.installation.test_tenants import kai_py
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.installation import SPACES, as_account, install
from tests.support.cluster.manifests import job, pod_spec, queue

NAMES = (f"reader-{number}" for number in itertools.count())
RBAC = "rbac.authorization.k8s.io"


async def token_of_new_account(real: Cluster, space: str, name: str) -> str:
    accounts = f"/api/v1/namespaces/{space}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await real.api.post(accounts, account)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return (await real.api.post(f"{accounts}/{name}/token", body))["status"]["token"]


async def let_read(real: Cluster, space: str, name: str) -> None:
    """What docs/dashboard.md tells to give readers."""
    api, metadata = f"/apis/{RBAC}/v1", {"name": name}
    rules = [{"nonResourceURLs": ["/v1/*"], "verbs": ["get"]}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata}
    await real.api.post(f"{api}/clusterroles", {**role, "rules": rules})
    await bind(real, space, name, name)


async def bind(real: Cluster, space: str, name: str, role: str) -> None:
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space}],
    }
    await real.api.post(f"/apis/{RBAC}/v1/clusterrolebindings", binding)


async def test_readers_are_those_whom_a_cluster_role_lets_read(real: Cluster, tmp_path) -> None:
    space = next(SPACES)
    configuration = Configuration(
        leader_election=LeaderElectionConfig(enabled=False, namespace=space)
    )
    await install(real, space, configuration)
    reader, stranger = next(NAMES), next(NAMES)
    tokens = {name: await token_of_new_account(real, space, name) for name in (reader, stranger)}
    await let_read(real, space, reader)
    its = await as_account(real, space, NAME, tmp_path / "kubeconfig")
    (tmp_path / "token").write_text("another")
    async with cluster_client(str(its.kubeconfig), "") as client:
        scheduler = Scheduler(
            client, configuration, Metrics(CollectorRegistry()), identity="served"
        )
        access = HttpAccess("127.0.0.1", tmp_path / "token", TokenReviews(client))
        async with (
            serve(scheduler.probes(), access, 0) as port,
            aiohttp.ClientSession() as session,
        ):

            async def ask(token: str) -> tuple[int, str]:
                headers = {"Authorization": f"Bearer {token}"}
                url = f"http://127.0.0.1:{port}/v1/decisions"
                async with session.get(url, headers=headers) as answer:
                    return answer.status, await answer.text()

            async def may_read() -> bool:
                return await ask(tokens[reader]) == (200, "[]")

            await eventually(may_read, within=30.0, what="the permission to take hold")
            status, text = await ask(tokens[stranger])
            assert status == 403
            assert f"system:serviceaccount:{space}:{stranger} may not get /v1/decisions" in text
            assert (await ask("made-up"))[0] == 401


async def test_a_reader_of_the_cluster_is_refused_nothing(real: Cluster, tmp_path) -> None:
    space, name = next(SPACES), next(NAMES)
    await install(real, space, Configuration())
    await token_of_new_account(real, space, name)
    await bind(real, space, name, f"{NAME}-cluster-reader")
    its = await as_account(real, space, name, tmp_path / "kubeconfig")
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=1)):
        await real.submit(queue(), job("waits", 2, pod_spec(gpus=1)))

        async def is_explained() -> bool:
            with suppress(CommandError):  # roles take a moment to take hold
                explained = await asyncio.to_thread(kai_py, its.kubeconfig, "explain", "job/waits")
                return explained.exit_code == 1 and "2 pods" in explained.output
            return False

        await eventually(is_explained, within=30.0, what="the pending gang")
        for command in (
            ("explain", "job/waits"),
            ("explain", "queue/team-a"),
            ("gangs",),
            ("queues",),
            ("devices",),
            ("top", "--once"),
            ("what-if", "--remove", "default/Job/waits"),
            ("snapshot", str(tmp_path / "cluster.json.gz")),
            ("audit", "--again-after", "0"),
        ):
            told = await asyncio.to_thread(kai_py, its.kubeconfig, *command)
            said = (told.stderr + told.output).replace(str(tmp_path), "")  # may have a 403 in it
            assert "403" not in said, command
