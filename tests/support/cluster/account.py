"""As whom does a client of a test reach a real API server?"""

import json
from pathlib import Path

from kai_py.deploy.objects import reservation_objects
from kai_py.deploy.parts import permissions
from kai_py.deploy.permissions import cluster_rules, lease_rules
from kai_py.deploy.policies import admission_policies
from tests.support import yaml_text
from tests.support.cluster.api import Api, Document

NAME = "scheduler-under-test"
NAMESPACE = "kube-system"
DAY = 86_400


async def scheduler_account(api: Api) -> Path:
    """A kubeconfig of an account that may do what an installed scheduler may; made once.

    The admission policies of an installation hold for it and for all others, too.
    """
    path = api.kubeconfig.with_name(f"{NAME}.kubeconfig")
    if path.exists():
        return path
    for document in (
        *permissions(NAME, NAMESPACE, cluster_rules(), NAMESPACE, lease_rules()),
        *reservation_objects(NAME, NAMESPACE),
        *admission_policies(NAME, NAMESPACE, ("kai-scheduler",), "kai.scheduler/node-pool"),
    ):
        await api.create(document)
    return await kubeconfig_of(api, NAMESPACE, NAME, path)


async def kubeconfig_of(api: Api, namespace: str, name: str, path: Path) -> Path:
    """The kubeconfig of a service account, with a token that lasts as long as any test."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    spec = {"expirationSeconds": DAY}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    issued = await api.post(accounts, body)
    document = yaml_text.read(api.kubeconfig.read_text())
    document["users"] = [{"name": "admin", "user": {"token": issued["status"]["token"]}}]
    _write(path, document)
    return path


def _write(path: Path, document: Document) -> None:
    path.write_text(json.dumps(document))
