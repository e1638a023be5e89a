"""Absurd objects that an API server accepts: a gang of another tenant starts in its ordinary time.

The corpus is ``tests/corpus/poison``: each file on the embedded server by itself, all of them
together on the real one, a few of each kind from each file, in ``make nightly`` whole and on both.
The scheduler must log no error: nothing in the corpus is set aside by mistake.
"""

import copy
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import AsyncExitStack

import pytest
from aiohttp import ServerDisconnectedError

from tests.cluster.fake_kubelet import FakeNode, gpu_nodes
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.frameworks import Framework, served
from tests.support.cluster.kai_definitions import install_kai_definitions
from tests.support.cluster.manifests import QUEUE_KEY, job, pod_spec, queue
from tests.support.cluster.scheduling import Running
from tests.support.cluster.view import View
from tests.support.patience import time_limit
from tests.support.poison.corpus import NAMESPACE, corpus
from tests.support.poison.fuzz import absurd
from tests.support.poison.objects import ordinary

CANARY_SECONDS = 30.0
OWN_GPUS = "amd.com/gpu"
HUGE_EXPONENT = "1000000000"
"""kube-apiserver multiplies such a quantity out, in minutes, and never accepts it."""
PODS = 1000
"""Of the tenant, at most; the corpus has about 750."""
FEW = 4
"""The controllers around a real API server write thousands of events about all these pods."""
RAY = Framework("ray.io", "v1", "RayCluster", {}, ())


async def apply(cluster: Cluster, documents: list[Document]) -> Counter[bool]:
    """Create the objects; counts those that the server accepts and refuses."""
    answers: Counter[bool] = Counter()
    for each in documents:
        body = copy.deepcopy(each)
        body["metadata"].pop("uid", None)
        body["metadata"].pop("resourceVersion", None)
        status = body.pop("status", None)
        try:
            created = await cluster.api.create(body)
            if status is not None and each["kind"] == "Node":
                path = f"/api/v1/nodes/{created['metadata']['name']}/status"
                await cluster.api.patch(path, {"status": status})
        except (ApiError, LookupError, ServerDisconnectedError):
            # kube-apiserver fails on some of them itself, and closes the connection.
            answers[False] += 1
        else:
            answers[True] += 1
    return answers


async def delete(cluster: Cluster, documents: list[Document]) -> None:
    """Delete the objects at once, with or without finalizers."""
    for each in documents:
        meta = each["metadata"]
        try:
            kinds = await cluster.api.types(each["apiVersion"])
            path = kinds[each["kind"]].path(meta["name"], namespace=meta.get("namespace", ""))
            if meta.get("finalizers"):
                await cluster.api.patch(path, {"metadata": {"finalizers": None}})
            # By default the pods of a Job outlive it.
            await cluster.api.delete(
                path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            )
        except (ApiError, KeyError):
            continue


async def canary_starts(cluster: Cluster, view: View, name: str) -> None:
    """A gang of two in a queue of its own is bound, and goes again."""
    resources = {"limits": {OWN_GPUS: "1"}}
    spec = pod_spec(
        containers=[{"name": "main", "image": "none", "resources": resources}],
        tolerations=[{"key": "canary", "operator": "Exists"}],
    )
    body = job(name, 2, spec, annotations={QUEUE_KEY: "canary"})
    await cluster.submit(body)
    await view.wait_bound(name, 2, within=CANARY_SECONDS)
    await delete(cluster, [body])
    for each in await view.pods(name):
        # Items of a list do not say what they are.
        await delete(cluster, [{**each, "apiVersion": "v1", "kind": "Pod"}])


def quota_of_pods(number: int) -> Document:
    """The most pods that the tenant's namespace may have."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "pods", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": str(number)}},
    }


def first_of_each_kind(documents: Iterable[Document], most: int | None) -> list[Document]:
    """Copies of the first ``most`` documents of each kind, of all for None."""
    by_kind = defaultdict[str, list[Document]](list)
    for each in documents:
        by_kind[each["kind"]].append(copy.deepcopy(each))
    return [each for found in by_kind.values() for each in found[:most]]


async def prepare(cluster: Cluster, stack: AsyncExitStack, pods: int = PODS) -> None:
    """Definitions, nodes, namespaces and queues."""
    await install_kai_definitions(cluster.api)
    await stack.enter_async_context(served(cluster, RAY))
    # What the tenants' pods may use, they use, and fuzzed ones tolerate every taint: the canary has
    # a node for itself, with GPUs of a vendor that no other pod asks for.
    taint = {"key": "canary", "effect": "NoSchedule"}
    own = FakeNode(name="canary", taints=[taint], allocatable={OWN_GPUS: "64"})
    await stack.enter_async_context(cluster.run_nodes([*gpu_nodes(2, plugin_gpus=4), own]))
    await cluster.create_namespace(NAMESPACE)
    if "ResourceQuota" in await cluster.api.types("v1"):
        # Else the Job controller has the API server create the millions of pods that Jobs ask for.
        await cluster.submit(quota_of_pods(pods))
    await cluster.submit(queue("tenant", deservedGPUs=0, maxGPUs=4), queue("canary"))


@pytest.mark.slow
@pytest.mark.timeout(time_limit(900))
@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
async def test_each_by_itself(cluster: Cluster, scheduler: Running, view: View):
    async with AsyncExitStack() as stack:
        await prepare(cluster, stack)
        await canary_starts(cluster, view, "before")
        for poison in corpus():
            documents = list(poison.documents)
            await apply(cluster, documents)
            await canary_starts(cluster, view, f"with-{poison.name}"[:50])
            await delete(cluster, documents)
        await canary_starts(cluster, view, "after")
        assert scheduler.count("kai_py_cycle_failures_total") == 0


@pytest.mark.slow
@pytest.mark.timeout(time_limit(900))
@pytest.mark.parametrize(
    ("cluster", "most"),
    [
        ("real", FEW),
        pytest.param("real", None, marks=pytest.mark.nightly),
        pytest.param("embedded", None, marks=pytest.mark.nightly),
    ],
    indirect=["cluster"],
)
async def test_all_together(cluster: Cluster, scheduler: Running, view: View, most: int | None):
    async with AsyncExitStack() as stack:
        await prepare(cluster, stack, PODS if most is None else PODS // 2)
        await canary_starts(cluster, view, "before")
        documents, answers = [], Counter[str]()
        for poison in corpus():
            unique = first_of_each_kind(poison.documents, most)
            for each in unique:
                if each["kind"] == "Pod":
                    each["metadata"]["name"] = f"{poison.name}-{each['metadata']['name']}"[:60]
            accepted = await apply(cluster, unique)
            answers["accepted"] += accepted[True]
            answers[f"refused of {poison.name}"] += accepted[False]
            documents += unique
        await canary_starts(cluster, view, "with-all")
        assert answers["accepted"] >= 120, answers
        await delete(cluster, documents)
        await canary_starts(cluster, view, "after")
        assert scheduler.count("kai_py_cycle_failures_total") == 0


@pytest.mark.nightly
@pytest.mark.timeout(time_limit(7200))
async def test_2_000_fuzzed_objects(cluster: Cluster, scheduler: Running, view: View):
    source, accepted = random.Random(7), 0
    async with AsyncExitStack() as stack:
        await prepare(cluster, stack)
        number = 0
        while accepted < 2000:
            number += 1
            documents = [absurd(each, source) for each in ordinary() if each["kind"] != "Node"]
            documents = [each for each in documents if HUGE_EXPONENT not in json.dumps(each)]
            accepted += (await apply(cluster, documents))[True]
            await canary_starts(cluster, view, f"canary-{number}")
            await delete(cluster, documents)
        assert scheduler.count("kai_py_cycle_failures_total") == 0
