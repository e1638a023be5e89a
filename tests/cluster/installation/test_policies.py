"""What the admission policies let tenants and the scheduler's account write, on a real API server.

Tenants are impersonated and have the role `admin` of Kubernetes in their namespace; the policies
are those of an installation, for the account of the scheduler under test.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kai_py.api.gpu_reservation import GpuGroup, ReservationTemplate, reservation_pod
from kai_py.api.queue import ADMISSION_GATE
from kai_py.grouping.admitted import ADMITTED_KEY, read_terms
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.account import NAME
from tests.support.cluster.api import Api, ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    IN_TEAM_A,
    TEMPLATE,
    claim_template,
    job,
    pod,
    pod_spec,
    queue,
)
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.shared_gpus import SHARING, sharing
from tests.support.cluster.view import View

TENANT = "tenant"
POD = "/api/v1/namespaces/default/pods/train-0"
RESERVATION = "kai-resource-reservation"
Act = Callable[[Api], Awaitable[object]]


@asynccontextmanager
async def impersonating(real: Cluster, user: str, *groups: str) -> AsyncIterator[Api]:
    """The API as another user reaches it."""
    async with Api(real.kubeconfig) as api:
        api.impersonate(user, *groups)
        yield api


@pytest.fixture
async def tenant(real: Cluster) -> AsyncIterator[Api]:
    """A user with Kubernetes' role `admin` in the namespace `default`."""
    await make_admin(real, "default")
    async with impersonating(real, TENANT, "system:authenticated") as api:
        yield api


async def make_admin(real: Cluster, namespace: str) -> None:
    """Give the tenant Kubernetes' role `admin` in a namespace."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT}
    await real.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": TENANT, "namespace": namespace},
            "roleRef": role,
            "subjects": [subject],
        }
    )


@pytest.fixture
async def account(real: Cluster) -> AsyncIterator[Api]:
    """The scheduler's account as a thief of its token would use it."""
    async with Api(real.scheduler_kubeconfig) as api:
        yield api


async def refused(act: Awaitable[object], because: str) -> None:
    """``act`` is forbidden by a policy that says why."""
    with pytest.raises(ApiError) as told:
        await act
    assert told.value.code == 403, told.value
    assert because in str(told.value)


async def in_force(api: Api) -> None:
    """Wait until the policies are evaluated: a new one takes the server a moment."""

    async def denied() -> bool:
        body = pod("probe", pod_spec(nodeName="nowhere"))
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        try:
            await api.post(path, body)
        except ApiError as error:
            return error.code == 403
        return False

    await eventually(denied, what="policies in force")


def merged(path: str, **metadata: Any) -> Act:
    return lambda api: api.patch(path, {"metadata": metadata})


async def running_pod(real: Cluster) -> Document:
    """`train-0`, which has half of a GPU, once it runs."""
    await install_definitions(real.api)
    await real.submit(queue(), sharing("train-0", fraction="0.5"))
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=2)), scheduling(real, SHARING):
        await View(real.api).wait_bound("train-0", 1, within=30)
        return await real.api.get(POD)


async def test_no_tenant_writes_what_the_scheduler_wrote(real: Cluster, tenant: Api) -> None:
    found = await running_pod(real)
    terms = read_terms(found["metadata"]["annotations"])
    assert terms is not None
    assert terms.queue == "team-a"
    assert terms.share is not None
    await in_force(tenant)
    forged = terms.text().replace("team-a", "team-b")
    for value in (forged, None):
        await refused(merged(POD, annotations={ADMITTED_KEY: value})(tenant), ADMITTED_KEY)
    for labels in ({"runai-gpu-group": "x"}, {"runai-gpu-group": None}, {"runai-gpu-group/x": "x"}):
        await refused(merged(POD, labels=labels)(tenant), "runai-gpu-group")
    for key in ("scheduling.kai.io/gpu-index", "scheduling.kai.io/visible-gpus"):
        await refused(merged(POD, annotations={key: "7"})(tenant), "GPU")
    await refused(merged(POD, labels={"kai.scheduler/node-pool": "x"})(tenant), "node pool")
    await merged(POD, labels={"mine": "yes"}, annotations={"mine": "yes"})(tenant)


async def test_a_tenant_gives_its_pods_no_node_and_no_record(real: Cluster, tenant: Api) -> None:
    await in_force(tenant)
    path = "/api/v1/namespaces/default/pods"
    await refused(tenant.post(path, pod("p", pod_spec(nodeName="node-0"))), "spec.nodeName")
    other = pod_spec(nodeName="node-0", schedulerName="default-scheduler")
    forging = pod("p", other, annotations={ADMITTED_KEY: '{"queue":"team-a"}'})
    await refused(tenant.post(path, forging), ADMITTED_KEY)
    await tenant.post(path, pod("p", other))


async def test_a_tenant_marks_no_job_as_suspended_by_the_scheduler(
    real: Cluster, tenant: Api
) -> None:
    await in_force(tenant)
    path = "/apis/batch/v1/namespaces/default/jobs"
    mark = {"scheduling.kai.io/suspended-by": "kai-scheduler"}
    await refused(tenant.post(path, job("j", 2, annotations=mark)), "suspended-by")
    await tenant.post(path, job("j", 2))
    await refused(merged(f"{path}/j", annotations=mark)(tenant), "suspended-by")
    await real.api.patch(f"{path}/j", {"spec": {"parallelism": 1}})


async def test_a_tenant_poses_as_no_reservation_pod(real: Cluster, tenant: Api) -> None:
    await make_admin(real, RESERVATION)
    await in_force(tenant)
    path = f"/api/v1/namespaces/{RESERVATION}/pods"
    posing = pod("p", pod_spec(schedulerName="x"), labels={"app": RESERVATION})
    posing["metadata"]["namespace"] = RESERVATION
    await refused(tenant.post(path, posing), "only kai-py")
    del posing["metadata"]["labels"]
    await tenant.post(path, posing)
    await refused(merged(f"{path}/p", labels={"app": RESERVATION})(tenant), "only kai-py")
    binder = "system:serviceaccount:kai-scheduler:binder"
    async with impersonating(real, binder, "system:masters") as kai:
        await kai.patch(f"{path}/p", {"metadata": {"labels": {"app": RESERVATION}}})


IMAGE = {"spec": {"containers": [{"name": "main", "image": "stolen"}]}}
STOLEN: dict[str, tuple[str, Document, str]] = {
    "an image": (POD, IMAGE, "change no spec"),
    "a deadline": (POD, {"spec": {"activeDeadlineSeconds": 5}}, "change no spec"),
    "a label": (POD, {"metadata": {"labels": {"app": "x"}}}, "no labels"),
    "an annotation": (POD, {"metadata": {"annotations": {"x": "y"}}}, "no annotations"),
    "its record": (POD, {"metadata": {"annotations": {ADMITTED_KEY: "{}"}}}, "no annotations"),
    "a finalizer": (POD, {"metadata": {"finalizers": ["x/y"]}}, "no finalizers"),
    "a phase": (f"{POD}/status", {"status": {"phase": "Failed"}}, "no status"),
    "a condition": (
        f"{POD}/status",
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "no conditions",
    ),
}


async def test_a_stolen_token_writes_nothing_but_its_own(
    real: Cluster, account: Api, tenant: Api
) -> None:
    await running_pod(real)
    await in_force(tenant)
    strategic = "application/strategic-merge-patch+json"
    for path, body, because in STOLEN.values():
        await refused(account.patch(path, body, content_type=strategic), because)
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    await tenant.post(jobs, job("j", 2))
    await refused(account.patch(f"{jobs}/j", {"spec": {"parallelism": 9}}), "change no spec")
    await account.patch(f"{jobs}/j", {"spec": {"suspend": True}})


async def test_a_stolen_token_removes_only_its_gate(
    real: Cluster, account: Api, tenant: Api
) -> None:
    await in_force(tenant)
    gates = [{"name": "other.example/gate"}, {"name": ADMISSION_GATE}]
    await tenant.create(pod("gated", pod_spec(schedulingGates=gates)))
    path = "/api/v1/namespaces/default/pods/gated"
    strategic = "application/strategic-merge-patch+json"

    def removal(name: str) -> Document:
        return {"spec": {"schedulingGates": [{"$patch": "delete", "name": name}]}}

    other = account.patch(path, removal("other.example/gate"), content_type=strategic)
    await refused(other, "no scheduling gate but")
    await account.patch(path, removal(ADMISSION_GATE), content_type=strategic)


async def test_a_stolen_token_writes_only_its_record_with_a_binding(
    real: Cluster, account: Api, tenant: Api
) -> None:
    """A binding writes its labels and annotations on the pod."""
    zone = {"topology.kubernetes.io/zone": "z1"}
    meta = {"name": "node-0", "labels": zone}
    await real.api.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})
    await in_force(tenant)
    pods = "/api/v1/namespaces/default/pods"
    await tenant.post(pods, pod("p", pod_spec()))

    def binding(**metadata: Any) -> Document:
        meta = {"name": "p", "namespace": "default", **metadata}
        target = {"kind": "Node", "name": "node-0"}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}

    record = {ADMITTED_KEY: '{"queue":"team-a"}'}
    for more in ({"annotations": {**record, "x": "y"}}, {"labels": {"x": "y"}}):
        await refused(account.post(f"{pods}/p/binding", binding(**more)), "nothing with a binding")
    await account.post(f"{pods}/p/binding", binding(annotations=record))
    bound = await real.api.get(f"{pods}/p")
    assert bound["metadata"]["annotations"].items() >= record.items()
    # The API server has copied them from the node to the binding.
    assert bound["metadata"]["labels"] == zone


async def test_a_stolen_token_deletes_no_claim_of_others(
    real: Cluster, account: Api, tenant: Api
) -> None:
    await in_force(tenant)
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]}}
    meta = {"name": "data", "namespace": "default"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta}
    await tenant.create(claim | {"spec": spec})
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/data"
    await refused(account.delete(path), "delete no claims")
    await tenant.delete(path)


PRIVILEGED = {"name": "main", "image": "x", "securityContext": {"privileged": True}}
ESCAPES: dict[str, Document] = {
    "hostPath": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "hostPID": {"hostPID": True},
    "privileged": {"containers": [PRIVILEGED]},
}


async def test_a_stolen_token_creates_no_pod_that_reaches_its_node(
    real: Cluster, account: Api
) -> None:
    """Pods that it may create are those that reserve GPUs, in a namespace of their own."""
    path = f"/api/v1/namespaces/{RESERVATION}/pods?dryRun=All"
    made = reservation_pod(GpuGroup("node-0", "g"), ReservationTemplate(image="x"))
    for name, escape in ESCAPES.items():
        await refused(account.post(path, made | {"spec": made["spec"] | escape}), name)
    await account.post(path, made)
    elsewhere = "/api/v1/namespaces/default/pods?dryRun=All"
    await refused(account.post(elsewhere, pod("p", pod_spec())), "cannot create resource")


async def test_a_tenant_lets_go_of_no_claim_that_is_used(real: Cluster, tenant: Api) -> None:
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    await real.submit(pod("train-0", pod_spec(template=TEMPLATE), annotations=IN_TEAM_A))
    view = View(real.api)
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    async with real.run_nodes(gpu_nodes(1, published_gpus=1)), scheduling(real):
        await view.wait_bound("train-0", 1, within=30)
        await in_force(tenant)
        [claim] = await tenant.items(path)
        name = claim["metadata"]["name"]
        for kept in ([], ["example.com/mine"]):
            await refused(merged(f"{path}/{name}", finalizers=kept)(tenant), "finalizer")
        await merged(f"{path}/{name}", labels={"mine": "yes"})(tenant)
        await tenant.delete(f"{path}/{name}")
        assert [each["metadata"]["name"] for each in await real.api.items(path)] == [name]
        await tenant.delete(POD)

        async def released() -> bool:
            return await real.api.items(path) == []

        await eventually(released, what="a claim that Kubernetes has let go of")


async def test_policies_are_valid(real: Cluster) -> None:
    """The server's own type check finds nothing to complain of."""
    root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    async def checked() -> bool:
        policies = await real.api.items(root)
        ours = [each for each in policies if each["metadata"]["name"].startswith(NAME)]
        checks = [each.get("status", {}).get("typeChecking") for each in ours]
        assert len(ours) == 6
        assert not [check for check in checks if check and check.get("expressionWarnings")]
        return all(check is not None for check in checks)

    await eventually(checked, what="policies that are type-checked")
