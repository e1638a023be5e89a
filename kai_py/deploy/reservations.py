"""The objects that reservation pods of shared GPUs need, in their own namespace.

The namespace is KAI-Scheduler's, so that either scheduler finds the reservations of the other. Only
there may the scheduler's account create and delete pods, and the reservation pods' account write
the GPU that each was given on itself.
"""

from kai_py.api.gpu_reservation import RESERVATION_ACCOUNT
from kai_py.api.gpu_share import RESERVATION
from kai_py.deploy.parts import RBAC, Document, named_object
from kai_py.deploy.permissions import gpu_sharing_grants, reservation_grants

SHARING = "kai-py-gpu-sharing"
"""Name of the scheduler's Role there."""


def reservation_objects(account: str, namespace: str) -> list[Document]:
    """The namespace, an account and two Roles; ``account``: the scheduler's, in ``namespace``."""
    version = f"{RBAC}/v1"
    space = named_object(RESERVATION, "v1", "Namespace")
    space["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    rules = {
        SHARING: [each.rule for each in gpu_sharing_grants()],
        RESERVATION_ACCOUNT: [each.rule for each in reservation_grants()],
    }
    return [
        space,
        named_object(RESERVATION_ACCOUNT, "v1", "ServiceAccount", RESERVATION),
        *(named_object(name, version, "Role", RESERVATION, rules=rules[name]) for name in rules),
        _binding(SHARING, account, namespace),
        _binding(RESERVATION_ACCOUNT, RESERVATION_ACCOUNT, RESERVATION),
    ]


def _binding(role: str, account: str, namespace: str) -> Document:
    return named_object(
        role,
        f"{RBAC}/v1",
        "RoleBinding",
        RESERVATION,
        roleRef={"apiGroup": RBAC, "kind": "Role", "name": role},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    )
