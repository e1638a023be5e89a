"""Gangs whose pods claim devices that others of them need: every order of the pods places them."""

from itertools import permutations

import pytest

from tests.dialects.feeding import Cluster, placed

DRIVER = "gpu.example.com"
HOST = "kubernetes.io/hostname"


def document(version: str, kind: str, name: str, **fields) -> dict:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def node(name: str, models: str) -> list[dict]:
    devices = [
        {"name": f"d{i}", "attributes": {"model": {"string": model}}}
        for i, model in enumerate(models)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    status = {
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return [
        document("v1", "Node", name, metadata={"labels": {HOST: name}}, status=status),
        document("resource.k8s.io/v1", "ResourceSlice", name, spec=spec),
    ]


def claim_of(wanted: str) -> dict:
    """``wanted``: the model of the devices, or "*", as often as one is claimed."""
    exactly = {"deviceClassName": "any", "count": len(wanted)}
    if "*" not in wanted:
        cel = f'device.attributes["{DRIVER}"].model == "{wanted[0]}"'
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def pod(number: int, wanted: str, *, shared: bool = False, subgroup: str = "") -> list[dict]:
    name = f"p{number}"
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "resourceClaims": [{"name": "own", "resourceClaimName": name}]
        + [{"name": "shared", "resourceClaimName": "shared"}] * shared,
    }
    metadata = {
        "annotations": {"pod-group-name": "gang"},
        "labels": {"kai.scheduler/subgroup-name": subgroup} if subgroup else {},
    }
    return [
        document("resource.k8s.io/v1", "ResourceClaim", name, spec=claim_of(wanted)),
        document("v1", "Pod", name, metadata=metadata, spec=spec),
    ]


def started(models: str, pods: list[list[dict]], **group) -> dict[str, str]:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "memory", "gpu"), unlimited)
    cluster = Cluster(
        document("scheduling.run.ai/v2", "Queue", "team", spec={"resources": resources}),
        document("kai.scheduler/v1alpha1", "Topology", "t", spec={"levels": [{"nodeLabel": HOST}]}),
        document("resource.k8s.io/v1", "DeviceClass", "any", spec={}),
        *node("n", models),
        *pods,
    )
    spec = {"queue": "team", **group}
    cluster.add(document("scheduling.run.ai/v2alpha2", "PodGroup", "gang", spec=spec))
    return placed(cluster.plan())


@pytest.mark.parametrize(
    ("models", "wanted"),
    [("xy", ("*", "x")), ("yx", ("*", "x")), ("xxy", ("*", "xx")), ("xyzz", ("**", "x", "y"))],
)
def test_a_claim_for_any_device_leaves_the_one_that_another_needs(models, wanted):
    for order in permutations(wanted):
        pods = [pod(number, each) for number, each in enumerate(order)]
        assert len(started(models, pods, minMember=len(order))) == len(order), order


def test_pods_that_share_a_claim_as_well():
    for order in permutations(("*", "x", "y")):
        pods = [pod(i, each, shared=True) for i, each in enumerate(order)]
        shared = document("resource.k8s.io/v1", "ResourceClaim", "shared", spec=claim_of("z"))
        assert len(started("xyzz", [[shared], *pods], minMember=3)) == 3, order


def test_subgroups_in_domains_of_their_own():
    constraint = {"topology": "t", "requiredTopologyLevel": HOST}
    for order in permutations(("*", "x", "y")):
        pods = [pod(i, each, subgroup=f"s{i}") for i, each in enumerate(order)]
        subgroups = [
            {"name": f"s{i}", "minMember": 1, "topologyConstraint": constraint} for i in range(3)
        ]
        assert len(started("xyz", pods, subGroups=subgroups)) == 3, order
