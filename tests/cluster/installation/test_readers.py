"""Who may read the dashboard, as a real API server with RBAC knows it."""

import itertools

import aiohttp
from prometheus_client import CollectorRegistry

from kai_py.cli.connection import cluster_client
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.deploy.objects import NAME
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.metrics import Metrics
from kai_py.observe.token_review import TokenReviews
from kai_py.scheduler import Scheduler
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.installation import SPACES, as_account, install

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
    binding = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space}],
    }
    await real.api.post(f"{api}/clusterrolebindings", binding)


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
