"""Nothing of one test is left for the next."""

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Api, ApiError
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.sweep import Sweep


def definition(group: str, kind: str) -> dict[str, object]:
    """Return the definition of a custom resource of the cluster."""
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    names = {"kind": kind, "plural": plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

# Python writes the parameters with blanks, which a patch takes away.
OPAQUE = {"driver": "gpu.test", "parameters": {"sharing": {"strategy": "TimeSlicing", "slots": 2}}}
CLAIM_SPEC = {
    "devices": {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.test"}}],
        "config": [{"opaque": OPAQUE}],
    }
}


def held(api_version: str, kind: str, name: str, **rest: object) -> dict[str, object]:
    """Return an object whose finalizer is never removed."""
    metadata = {"name": name, "finalizers": ["kai-py.test/kept"]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


async def create_when_defined(api: Api, document: dict[str, object]) -> None:
    """Create an object whose definition was created just now."""

    async def accepted() -> bool:
        try:
            await api.create(document)
        except LookupError:
            return False
        except ApiError as error:  # listed, and not served yet
            if error.code != 404:
                raise
            return False
        return True

    await eventually(accepted)


async def test_objects_of_every_kind_go_with_their_finalizers(real_control_plane: ControlPlane):
    container = {"name": "main", "image": "none"}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container]},
    }
    deployment = {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template,
    }
    sweep = Sweep(real_control_plane.etcd_url)
    async with Api(real_control_plane.kubeconfig) as api:
        await sweep.remember(api)
        await api.create(definition("kai-py.test", "Gadget"))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "swept"}}
        await api.create(namespace)
        await api.create(held("v1", "ConfigMap", "settings"), namespace="swept")
        await api.create(held("v1", "ConfigMap", "settings"))
        await api.create(held("resource.k8s.io/v1", "ResourceClaim", "claim", spec=CLAIM_SPEC))
        await api.create(held("v1", "Pod", "bound", spec={"nodeName": "n", **template["spec"]}))
        await api.create(held("apps/v1", "Deployment", "web", spec=deployment))

        await create_when_defined(api, held("kai-py.test/v1", "Gadget", "gadget"))
        await sweep.clean(api)

        assert await api.items("/api/v1/pods") == []
        assert await api.items("/apis/apps/v1/deployments") == []
        assert await api.items("/apis/kai-py.test/v1/gadgets") == []
        assert await api.items("/apis/resource.k8s.io/v1/resourceclaims") == []
        names = {c["metadata"]["name"] for c in await api.items("/api/v1/configmaps")}
        assert "settings" not in names
        assert await api.get("/api/v1/namespaces/default/serviceaccounts/default")
        await api.delete(f"{DEFINITIONS}/gadgets.kai-py.test")


async def test_kinds_of_two_groups_may_have_one_name(real_control_plane: ControlPlane):
    """Of the first the sweep knows already when the second is defined."""
    groups = ("kai-py.test", "other.kai-py.test")
    sweep = Sweep(real_control_plane.etcd_url)
    async with Api(real_control_plane.kubeconfig) as api:
        await sweep.remember(api)
        for group in groups:
            await api.create(definition(group, "Gadget"))
            await create_when_defined(api, held(f"{group}/v1", "Gadget", "gadget"))
            await sweep.clean(api)
        left = [await api.items(f"/apis/{group}/v1/gadgets") for group in groups]
        for group in groups:
            await api.delete(f"{DEFINITIONS}/gadgets.{group}")
    assert left == [[], []]


async def test_the_default_namespace_gets_its_marks_back(real_control_plane: ControlPlane):
    sweep, path = Sweep(real_control_plane.etcd_url), "/api/v1/namespaces/default"
    async with Api(real_control_plane.kubeconfig) as api:
        await sweep.remember(api)
        before = (await api.get(path))["metadata"]
        labels = {"kubernetes.io/metadata.name": "default", "team": "a"}
        await api.patch(path, {"metadata": {"labels": labels, "annotations": {"queue": "a"}}})
        await sweep.clean(api)
        after = (await api.get(path))["metadata"]
    assert after["labels"] == before["labels"]
    assert after.get("annotations") == before.get("annotations")


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_gets_an_empty_cluster(cluster: Cluster, turn: int):
    assert await cluster.api.items("/api/v1/nodes") == []
    assert await cluster.api.items("/api/v1/pods") == []
    await cluster.create_namespace(f"turn-{turn}")
    async with cluster.run_nodes(gpu_nodes(2, published_gpus=8)):
        nodes = await cluster.api.items("/api/v1/nodes")
        assert {node["metadata"]["name"] for node in nodes} == {"node-0", "node-1"}
