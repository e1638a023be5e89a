"""Every object that the parts of a real cluster write can be read."""

import json

import msgspec

from kai_py.watch.kinds import CSI_NODES, WATCHED
from tests.node.conftest import NAMES
from tests.node.workloads import pod_spec, request, template
from tests.support.cluster.api import ApiError
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job


async def test_every_object_of_every_kind_is_read(cluster, nodes, scheduler, view):
    await cluster.submit(
        template("gpu", request()), job("train", 2, pod_spec(templates={"gpu": "gpu"}))
    )
    await eventually(lambda: view.bound("train"))
    read = {}
    for kind in WATCHED:
        for version, decode in kind.versions.items():
            resource = kind.at(version)
            try:
                items = await cluster.api.items(resource.collection())
            except ApiError as error:
                if error.code == 404:
                    continue
                raise
            for item in items:
                decode(msgspec.Raw(json.dumps(item).encode()))
            read[kind.name] = len(items)
    for name in ("Node", "Pod", "Job", "CSINode", "ResourceSlice", "ResourceClaim", "Queue"):
        assert read[name], f"no {name}: {read}"


async def test_nodes_without_csi_drivers(cluster, nodes):
    items = await cluster.api.items(CSI_NODES.at().collection())
    assert {each["metadata"]["name"] for each in items} == set(NAMES)
    assert [each["spec"]["drivers"] for each in items] == [None, None]
