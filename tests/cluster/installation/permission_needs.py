"""What the scheduler does with each right to write: a situation that needs it, by the right."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from kai_py.api.queue import ADMISSION_GATE
from kai_py.config import Configuration, LeaderElectionConfig
from tests.cluster.claims.test_local_volumes import CLASS, pods_with_claims, volume
from tests.cluster.dialects.test_grove import POD_GANG, SPEAKING
from tests.cluster.dialects.test_kai_dialect import kai_queue, members, pod_group
from tests.cluster.dialects.test_provisioning import ASKING, REQUEST, REQUESTS, TEMPLATES
from tests.cluster.fake_kubelet import FakeNode, gpu_nodes
from tests.cluster.fake_kubelet.nodes import GPU_DRIVER
from tests.cluster.queues.test_suspended_jobs import ASKS
from tests.support.cluster.account import NAMESPACE
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import Framework
from tests.support.cluster.kai_definitions import install_kai_definitions
from tests.support.cluster.manifests import (
    IN_TEAM_A,
    TEMPLATE,
    claim,
    claim_template,
    job,
    pod,
    pod_spec,
    priority_class,
    queue,
)
from tests.support.cluster.scheduling import EAGER
from tests.support.cluster.view import View

PATIENCE = 30.0
ELECTING = EAGER.model_copy(update={"leader_election": LeaderElectionConfig(namespace=NAMESPACE)})


PARAMETERS = {"driver": GPU_DRIVER, "parameters": {"kind": "Config", "text": "<a> & b"}}


HIGH = pod_spec(template=TEMPLATE, priorityClassName="high")


Permission = tuple[str, str, str]
"""Verb, resource, group."""


Rules = tuple[list[Document], list[Document]]
"""For the cluster, and for one namespace."""


Act = Callable[[Cluster], Awaitable[object]]


async def claiming(real: Cluster) -> None:
    await real.submit(queue(), claim_template(), job("train", 2))


def configured(body: Document) -> Document:
    """A claim or template with parameters that Python writes and Go would not."""
    spec = body["spec"]["spec"] if "spec" in body["spec"] else body["spec"]
    spec["devices"]["config"] = [{"opaque": PARAMETERS}]
    return body


async def configuring(real: Cluster) -> None:
    await real.submit(queue(), configured(claim_template()), job("train", 2))


async def joining(real: Cluster) -> None:
    """A pod joins a claim that a scheduler allocated whose writes keep such parameters."""
    await real.submit(queue(), configured(claim("c")))
    path = f"{View(real.api).path('resourceclaims')}/c"
    result = {"request": "gpu", "driver": GPU_DRIVER, "pool": "node-0", "device": "gpu-0"}
    config = {"source": "FromClaim", "opaque": PARAMETERS}
    found = await real.api.get(path)
    status = {"allocation": {"devices": {"results": [result], "config": [config]}}}
    await real.api.put(f"{path}/status", {**found, "status": status})
    await real.submit(pod("train", pod_spec(claim="c")))


async def preempting(real: Cluster) -> None:
    await real.submit(queue(), priority_class("high", 1000), claim_template(), job("low", 4))
    await View(real.api).wait_bound("low", 4, within=PATIENCE)
    await real.submit(job("urgent", 4, HIGH))


async def promising(real: Cluster) -> None:
    """The node is promised for as long as its pods take to stop."""
    low = job("low", 4, pod_annotations={"kai-py.test/stop-seconds": "20"})
    await real.submit(queue(), priority_class("high", 1000), claim_template(), low)
    await View(real.api).wait_bound("low", 4, within=PATIENCE)
    await real.submit(job("urgent", 4, HIGH))


async def suspending(real: Cluster) -> None:
    low = job("low", 4, annotations=ASKS)
    await real.submit(queue(), priority_class("high", 1000), claim_template(), low)
    await View(real.api).wait_bound("low", 4, within=PATIENCE)
    await real.submit(job("urgent", 4, HIGH))


async def waiting(real: Cluster) -> None:
    await real.submit(queue(), pod("big", pod_spec(gpus=9)))


async def gated(real: Cluster) -> None:
    await real.submit(queue(), pod("p", pod_spec(schedulingGates=[{"name": ADMISSION_GATE}])))


async def provisioned(real: Cluster) -> None:
    await real.submit(queue(), CLASS | {"provisioner": "example.com/disks"}, *pods_with_claims(1))


async def local(real: Cluster) -> None:
    await real.submit(queue(), CLASS, volume("disk-0", "node-0"), *pods_with_claims(1))


async def extended(real: Cluster) -> None:
    await real.submit(queue(), pod("train", pod_spec(gpus=2)))


async def queues_of_kai(real: Cluster) -> None:
    await real.submit(kai_queue("kai-team"))


async def groups_of_kai(real: Cluster) -> None:
    await real.submit(kai_queue("kai-team"), claim_template(), pod_group("big", minMember=9))
    await real.submit(*members("big", 9))


async def stale_group_of_kai(real: Cluster) -> None:
    await install_kai_definitions(real.api)
    short = pod_group("short", minMember=3)
    await real.submit(kai_queue("kai-team"), claim_template(), short, *members("short", 3))
    await View(real.api).wait_bound("short", 3, within=PATIENCE)
    await real.api.delete("/api/v1/namespaces/default/pods/short-pod-2")


async def gang_of_grove(real: Cluster) -> None:
    parts = [{"name": "a-0", "minReplicas": 1}]
    meta = {"name": "a", "namespace": "default", "annotations": dict(IN_TEAM_A)}
    kind = {"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang", "metadata": meta}
    labels = {"grove.io/podgang": "a", "grove.io/podclique": "a-0"}
    await real.submit(queue(), kind | {"spec": {"podgroups": parts}})
    await real.submit(pod("a-0-0", pod_spec(), labels=labels))


async def asking(real: Cluster) -> None:
    await real.submit(queue(), job("train", 4, pod_spec(gpus=1)))


async def started_after_asking(real: Cluster) -> None:
    await asking(real)
    await eventually(lambda: real.api.items(TEMPLATES), what="a PodTemplate", within=PATIENCE)
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=2, prefix="added")):
        await asyncio.Event().wait()


async def asking_again(real: Cluster) -> None:
    """The templates of the request before are still there."""
    await asking(real)
    (template,) = await eventually(
        lambda: real.api.items(TEMPLATES), what="a PodTemplate", within=PATIENCE
    )
    kept = {"metadata": {"ownerReferences": None}}
    await real.api.patch(f"{TEMPLATES}/{template['metadata']['name']}", kept)
    (request,) = await real.api.items(REQUESTS)
    await real.api.delete(f"{REQUESTS}/{request['metadata']['name']}")


@dataclass(frozen=True)
class Need:
    """A situation in which the scheduler needs a permission; `besides`: others taken away too."""

    act: Act
    nodes: Sequence[FakeNode] = field(default_factory=lambda: gpu_nodes(1, published_gpus=4))
    configuration: Configuration = EAGER
    besides: frozenset[str] = frozenset()
    kinds: tuple[Framework, ...] = ()
    """Kinds of others that are served meanwhile."""
    kai: bool = False
    """KAI's kinds are served."""
    code: str = "403"
    """How the API server refuses."""
    reads: bool = False
    """A user with a token asks for what the dashboard shows."""


CLAIMS = Need(claiming)


ELECTS = Need(waiting, configuration=ELECTING)


READS = Need(waiting, reads=True)


PROVISIONS = Need(asking, gpu_nodes(1, plugin_gpus=2), ASKING, kinds=(REQUEST,))


STARTS = replace(PROVISIONS, act=started_after_asking)


NEEDS = {
    "create pods/binding": CLAIMS,
    "create pods/eviction": Need(preempting),
    "patch pods/status": Need(waiting),
    "patch pods": Need(gated),
    "patch nodes": Need(promising),
    "patch jobs": Need(suspending),
    "patch persistentvolumeclaims": Need(provisioned),
    "patch persistentvolumes": Need(local),
    "create resourceclaims": Need(extended),
    "delete resourceclaims": Need(extended, besides=frozenset({"create pods/binding"})),
    "patch resourceclaims": CLAIMS,
    "update resourceclaims": Need(configuring),
    "update resourceclaims/status": Need(joining),
    "update resourceclaims/binding": Need(joining, code="422"),
    "patch resourceclaims/status": CLAIMS,
    "patch resourceclaims/binding": replace(CLAIMS, code="422"),
    "patch queues/status scheduling.kai.io": Need(waiting),
    "patch queues/status scheduling.run.ai": Need(queues_of_kai, kai=True),
    "patch podgroups/status scheduling.run.ai": Need(groups_of_kai, kai=True),
    "patch podgroups": Need(stale_group_of_kai, kai=True),
    "patch podgangs/status": Need(gang_of_grove, configuration=SPEAKING, kinds=(POD_GANG,)),
    "create provisioningrequests": PROVISIONS,
    "delete provisioningrequests": STARTS,
    "create podtemplates": PROVISIONS,
    "delete podtemplates": STARTS,
    "get podtemplates": replace(PROVISIONS, act=asking_again),
    "create events": Need(waiting),
    "create tokenreviews": READS,
    "create subjectaccessreviews": READS,
    "create leases": ELECTS,
    "get leases": ELECTS,
    "patch leases": ELECTS,
}
