"""How does a test install what `kai-py install` prints, and act as its accounts?"""

import itertools
from pathlib import Path

from kai_py.api.gpu_share import RESERVATION
from kai_py.config import Configuration
from kai_py.deploy.objects import Installation, manifests
from tests.support.cluster.account import kubeconfig_of
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.scheduling import install_definitions
from tests.support.records import replace

SPACES = (f"gpu-scheduling-{number}" for number in itertools.count())
STRICT = {"fieldValidation": "Strict"}


async def install(
    real: Cluster, space: str, configuration: Configuration, *, webhook: bool = False
) -> None:
    """Create everything in the namespace `space`; the CRDs may be there."""
    await install_definitions(real.api)
    wanted = Installation(
        image="none", namespace=space, replicas=2, configuration=configuration, webhook=webhook
    )
    for document in manifests(wanted):
        if document["kind"] == "CustomResourceDefinition":
            continue
        if RESERVATION in document["metadata"].values():
            continue  # every account of the tests has it
        if document["kind"] == "Namespace":
            await real.create_namespace(space)
            labels = {"metadata": {"labels": document["metadata"]["labels"]}}
            await real.api.patch(f"/api/v1/namespaces/{space}", labels)
            continue
        kinds = await real.api.types(document["apiVersion"])
        path = kinds[document["kind"]].path(namespace=document["metadata"].get("namespace", ""))
        await real.api.request("POST", path, document, parameters=STRICT)


async def as_account(real: Cluster, space: str, name: str, path: Path) -> Cluster:
    """The cluster as a service account of the installation reaches it."""
    kubeconfig = await kubeconfig_of(real.api, space, name, path)
    return replace(real, kubeconfig=kubeconfig, scheduler_kubeconfig=kubeconfig)
