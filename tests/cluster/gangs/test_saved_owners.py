"""What is saved of a cluster: owners of kinds that are known only from references to them."""

from kai_py.cli.connection import cluster_client
from kai_py.simulate.files.objects import read_objects
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.frameworks import FRAMEWORKS, Framework, owned, owner, served
from tests.support.cluster.manifests import queue

ABOVE = Framework("example.com", "v1", "Campaign", {}, ())


async def test_owners_and_theirs_are_saved_and_nothing_else_of_their_kinds(
    cluster: Cluster, definitions: None
):
    framework = FRAMEWORKS[0]
    async with served(cluster, framework), served(cluster, ABOVE):
        top = await cluster.api.create(owner(ABOVE, "top"))
        mine = owner(framework, "mine")
        mine["metadata"]["ownerReferences"] = [
            {key: top[key] for key in ("apiVersion", "kind")}
            | {key: top["metadata"][key] for key in ("name", "uid")}
        ]
        kept = await cluster.api.create(mine)
        await cluster.api.create(owner(framework, "without-pods"))
        await cluster.submit(queue(), *owned(framework, kept)[:1])
        async with cluster_client(str(cluster.kubeconfig), "") as client:
            saved = await read_objects(client)
    kinds = (framework.kind, ABOVE.kind)
    names = [(d["kind"], d["metadata"]["name"]) for d in saved if d["kind"] in kinds]
    assert names == [(framework.kind, "mine"), (ABOVE.kind, "top")]
    assert next(d for d in saved if d["kind"] == framework.kind)["spec"] == framework.spec
