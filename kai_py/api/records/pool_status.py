"""Records of ResourcePoolStatusRequests (resource.k8s.io): counts of pools, made once on request.

kube-controller-manager writes the status (KEP-5677, alpha from Kubernetes 1.36 on).
"""

from kai_py.api.records.core import Condition, ObjectMeta
from kai_py.api.records.record import Record


class ReportedPool(Record, frozen=True, omit_defaults=True):
    """One pool; counts are missing where it is not complete, and ``validation_error`` says why.

    ``allocated_devices``: results of claims, those of shares and of admin access as well.
    """

    driver: str = ""
    pool_name: str = ""
    total_devices: int | None = None
    allocated_devices: int | None = None
    validation_error: str = ""


class ResourcePoolStatusRequestStatus(Record, frozen=True, omit_defaults=True):
    """Does not change any more once it is written."""

    pools: tuple[ReportedPool, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ResourcePoolStatusRequest(Record, frozen=True, omit_defaults=True):
    """A request of a user, answered once."""

    metadata: ObjectMeta = ObjectMeta()
    status: ResourcePoolStatusRequestStatus = ResourcePoolStatusRequestStatus()
