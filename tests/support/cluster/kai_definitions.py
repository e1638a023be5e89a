"""The smallest structural definitions of KAI's kinds; fields that are not checked are kept."""

from kai_py.deploy.kai_api import kai_definitions
from tests.support.cluster.api import Api, Document
from tests.support.cluster.scheduling import install

KEPT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KINDS = (
    ("scheduling.run.ai", "v2", "Queue", "queues", "Cluster"),
    ("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", "Namespaced"),
    ("kai.scheduler", "v1alpha1", "Topology", "topologies", "Cluster"),
)


def definition(group: str, version: str, kind: str, plural: str, scope: str) -> Document:
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": KEPT, "status": KEPT}}
        },
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [served]},
    }


async def install_kai_definitions(api: Api) -> None:
    """Define KAI's kinds and wait until they are served."""
    for kind in KINDS:
        await install(api, definition(*kind))


async def install_kai_api(api: Api) -> None:
    """Define KAI's kinds as ``kai-py install --with-kai-api`` does."""
    for each in kai_definitions():
        await install(api, each)
