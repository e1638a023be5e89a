"""Our writes leave opaque parameters as they are, whatever bytes a client sent them in.

Only on the real control plane: the embedded one keeps documents, not bytes.
"""

import itertools
import json

import pytest
from msgspec.structs import replace
from yarl import URL

from kai_py.api.records.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from kai_py.api.references import ClaimRef, PodRef
from kai_py.cli.connection import cluster_client
from kai_py.commit.api_access import ApiAccess, CallLimit
from kai_py.commit.claims.reconcile import DesiredClaim, reconcile_claim, release_claim
from kai_py.commit.retry import RetryPolicy
from kai_py.watch import kinds
from kai_py.watch.protobuf import PROTOBUF, values
from tests.cluster.conformance.place import allocation, claim, pod
from tests.support.cluster.api import Api
from tests.support.cluster.clusters import Cluster
from tests.support.protobuf import message_of
from tests.support.records import from_json

NUMBERS = itertools.count()
PARAMETERS = {
    "python's blanks": '{"kind": "Config", "n": 1}',
    "unescaped": '{"kind":"Config","text":"<a> & b"}',
    "escaped": '{"kind":"Config","text":"\\u003ca\\u003e \\u0026 b"}',
    "numbers": '{"n":1.00,"large":123456789012345678901234567890,"tiny":1e-30}',
    "null": '{"nothing":null,"deep":{"nothing":null}}',
    "lines": '{\n  "text": "\\u00e9 \\n"\n}',
}


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
async def test_a_claim_is_allocated_shared_and_released(real: Cluster, parameters: str):
    api, namespace = real.api, f"opaque-{next(NUMBERS)}"
    await real.create_namespace(namespace)
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    body = claim("c")
    config = {"opaque": {"driver": "example.com", "parameters": "PARAMETERS"}}
    body["spec"]["devices"]["config"] = [config]
    text = json.dumps(body).replace('"PARAMETERS"', parameters)
    await post(api, path, text)
    stored = await spec_of(api, path)
    pods = []
    for name in ("one", "two"):
        made = await api.post(f"/api/v1/namespaces/{namespace}/pods", pod(name))
        pods.append(PodRef(namespace, name, made["metadata"]["uid"]))
    async with cluster_client(str(real.scheduler_kubeconfig), "") as client:
        access = ApiAccess(
            client=client,
            pods=kinds.PODS.at(),
            served_claims=kinds.RESOURCE_CLAIMS.at,
            limiter=CallLimit(4),
            retry=RetryPolicy(attempts=3, base=0.01),
            settle_pause=RetryPolicy(attempts=3, base=0.01),
        )
        found = await access.read_claim(ClaimRef(namespace, "c", ""))
        ref = ClaimRef.of(found.metadata)
        for number, each in enumerate(pods):
            done = await reconcile_claim(access, desired(found, each, first=number == 0), None)
            assert isinstance(done, ResourceClaim), done
        assert [user.name for user in done.status.reserved_for] == ["one", "two"]
        (given,) = done.status.allocation.devices.config
        assert json.loads(bytes(given.opaque.parameters)) == json.loads(parameters)
        await release_claim(access, ref, frozenset({pods[0].uid}))
        left = await access.read_claim(ref)
        assert [user.name for user in left.status.reserved_for] == ["two"]
        await release_claim(access, ref, frozenset({pods[1].uid}))
        assert (await access.read_claim(ref)).status.allocation is None
    assert await spec_of(api, path) == stored


def desired(found: ResourceClaim, user: PodRef, *, first: bool) -> DesiredClaim:
    """The claim for a pod more; for the first, with an allocation that has its parameters."""
    config = [
        DeviceAllocationConfiguration(source="FromClaim", opaque=each.opaque)
        for each in found.spec.devices.config
    ]
    wanted = from_json(AllocationResult, allocation("gpu-0"))
    wanted = replace(wanted, devices=replace(wanted.devices, config=tuple(config)))
    consumer = ResourceClaimConsumerReference(resource="pods", name=user.name, uid=user.uid)
    ref = ClaimRef.of(found.metadata)
    return DesiredClaim(ref, (user,), (consumer,), ("n",), wanted if first else None)


async def post(api: Api, path: str, text: str) -> None:
    """Create an object from these bytes and no others."""
    headers = {"Content-Type": "application/json"}
    async with api.open("POST", URL(path), body=text.encode(), headers=headers) as answer:
        assert answer.status == 201, await answer.text()


async def spec_of(api: Api, path: str) -> list[bytes]:
    """The claim's spec as the server keeps it."""
    return values(message_of(await api.request("GET", f"{path}/c", accept=PROTOBUF)), 2)
