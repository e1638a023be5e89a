"""Without any one of its permissions to write, the scheduler is refused something that it needs.

For every verb on every resource that its roles let it write there is a situation here, in which an
account that may do everything else is refused. That all of them together suffice is what the other
tests on the real API server show, whose schedulers may do this and no more. Composite groups are
left out: Kubernetes serves them from 1.37 on only.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kai_py.admission.certificate import ensure_certificate
from kai_py.admission.server import publish_authority
from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.settings import WebhookConfig
from kai_py.cli.connection import cluster_client
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.deploy.parts import permissions
from kai_py.deploy.permissions import (
    READ,
    cluster_rules,
    lease_rules,
    webhook_cluster_grants,
    webhook_grants,
)
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.metrics import Metrics
from kai_py.observe.token_review import TokenReviews
from kai_py.scheduler import Scheduler
from kai_py.watch.errors import Forbidden
from tests.cluster.faults.test_leader_election import LEASE
from tests.cluster.installation.permission_needs import NEEDS, PATIENCE, Need, Permission, Rules
from tests.support.cluster.account import NAMESPACE, kubeconfig_of
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import served
from tests.support.cluster.installation import SPACES, install
from tests.support.cluster.kai_definitions import install_kai_definitions
from tests.support.cluster.scheduling import install_definitions
from tests.support.patience import patience

NUMBERS = itertools.count()
"""Seconds, on a busy machine."""
SERVED_LATER = "patch compositepodgroups/status"
OF_THE_SCHEDULER: Rules = (cluster_rules(), lease_rules())


NATIVE = "patch podgroups/status scheduling.k8s.io"
"""Is needed in test_native_groups.py, whose control plane has Kubernetes' own groups."""


def permissions_to_write() -> dict[str, Permission]:
    """All of them, by verb and resource, and by group where that is not enough."""
    found = [
        (verb, resource, rule["apiGroups"][0])
        for rules in OF_THE_SCHEDULER
        for rule in rules
        if not {*rule["verbs"]} <= {*READ}
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    pairs = [permission[:2] for permission in found]
    return {
        " ".join(permission if pairs.count(permission[:2]) > 1 else permission[:2]): permission
        for permission in found
    }


def without(rules: list[Document], taken: set[Permission]) -> list[Document]:
    """The rules without these permissions to write."""
    return [
        {**rule, "resources": [resource], "verbs": left}
        for rule in rules
        for resource in rule["resources"]
        if (
            left := [
                verb for verb in rule["verbs"]
                if (verb, resource, rule["apiGroups"][0]) not in taken
            ]
        )
    ]  # fmt: skip


async def account_without(
    real: Cluster,
    taken: set[Permission],
    path: Path,
    *,
    rules: Rules = OF_THE_SCHEDULER,
    namespace: str = NAMESPACE,
) -> Path:
    """The kubeconfig of an account with rules for the cluster and a namespace, but for these."""
    own = f"without-{next(NUMBERS)}"
    everywhere, inside = (without(every, taken) for every in rules)
    for document in permissions(own, namespace, everywhere, namespace, inside):
        await real.api.create(document)
    return await kubeconfig_of(real.api, namespace, own, path)


@asynccontextmanager
async def at_work(kubeconfig: Path, need: Need) -> AsyncIterator[Metrics]:
    """A scheduler that may be refused, and if needed a reader of what it serves."""
    metrics = Metrics(CollectorRegistry())
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            cluster_client(str(kubeconfig), "", on_call=metrics.count_call)
        )
        scheduler = Scheduler(client, need.configuration, metrics, identity="refused")
        task = asyncio.create_task(scheduler.run())
        try:
            if need.reads:
                access = HttpAccess("0.0.0.0", review=TokenReviews(client))
                port = await stack.enter_async_context(serve(scheduler.probes(), access, 0))
                await read(f"http://127.0.0.1:{port}/v1/decisions", token_in(kubeconfig))
            yield metrics
        finally:
            scheduler.stop()
            with suppress(TimeoutError):
                await asyncio.wait_for(task, patience(20))


def token_in(kubeconfig: Path) -> str:
    return str(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"])


async def read(url: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers):
        pass


def answers(metrics: Metrics) -> set[tuple[str, str]]:
    """Verb and code of the answers that the API server gave."""
    return {
        (sample.labels["verb"], sample.labels["code"])
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "kai_py_api_calls_total" and sample.value > 0
    }


async def is_refused_without(real: Cluster, name: str, need: Need, tmp_path: Path) -> None:
    """Take one permission away and wait until that is felt."""
    await install_definitions(real.api)
    with suppress(ApiError):
        await real.api.delete(LEASE)
    known = permissions_to_write()
    taken = {known[each] for each in need.besides | {name}}
    kubeconfig = await account_without(real, taken, tmp_path / "kubeconfig")
    verb = name.partition(" ")[0]
    if need.kai:
        await install_kai_definitions(real.api)
    async with AsyncExitStack() as stack:
        for kind in need.kinds:
            await stack.enter_async_context(served(real, kind))
        await stack.enter_async_context(real.run_nodes(need.nodes))
        metrics = await stack.enter_async_context(at_work(kubeconfig, need))
        acting = asyncio.create_task(need.act(real))

        async def felt() -> bool:
            if acting.done() and (failure := acting.exception()):
                raise RuntimeError(f"{need.act.__name__} failed") from failure
            return (verb, need.code) in answers(metrics)

        try:
            await eventually(felt, within=2 * PATIENCE, what=f"a refusal without {name}")
        finally:
            acting.cancel()
            with suppress(asyncio.CancelledError):
                await acting


def test_every_permission_to_write_has_its_need() -> None:
    assert {*NEEDS, NATIVE, SERVED_LATER} == permissions_to_write().keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
async def test_without_it_the_scheduler_is_refused(
    real: Cluster, name: str, tmp_path: Path
) -> None:
    await is_refused_without(real, name, NEEDS[name], tmp_path)


def webhook_rules() -> Rules:
    return (
        [grant.rule for grant in webhook_cluster_grants()],
        [grant.rule for grant in webhook_grants()],
    )


def of_the_webhook() -> list[Permission]:
    """What the webhooks may do to what is theirs: their Secret and their registrations."""
    return sorted(
        (verb, resource, rule["apiGroups"][0])
        for rules in webhook_rules()
        for rule in rules
        if "resourceNames" in rule or "create" in rule["verbs"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("permission", of_the_webhook(), ids=lambda each: f"{each[0]} {each[1]}")
async def test_without_it_the_webhooks_are_refused(
    real: Cluster, permission: Permission, tmp_path: Path
) -> None:
    space = next(SPACES)
    wanted = WebhookConfig(namespace=space)
    configuration = Configuration(
        webhook=wanted, leader_election=LeaderElectionConfig(namespace=space)
    )
    await install(real, space, configuration, webhook=True)
    kubeconfig = await account_without(
        real, {permission}, tmp_path / "kubeconfig", rules=webhook_rules(), namespace=space
    )
    metrics = Metrics(CollectorRegistry())
    secret = f"/api/v1/namespaces/{space}/secrets/{WEBHOOK_NAME}"
    async with cluster_client(str(kubeconfig), "", on_call=metrics.count_call) as client:
        with suppress(Forbidden):
            await ensure_certificate(client, wanted)
            await real.api.patch(secret, {"data": {"tls.crt": ""}})
            await ensure_certificate(client, wanted)
        await publish_authority(client, b"a certificate")
    assert (permission[0], "403") in answers(metrics)
