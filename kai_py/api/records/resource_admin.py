"""Records of resource.k8s.io that administrators write.

DeviceTaintRules give devices taints. ResourcePoolStatusRequests ask for counts of pools, once:
kube-controller-manager writes them into the status (KEP-5677, alpha from Kubernetes 1.36 on).
"""

from kai_py.api.records.core import Condition, ObjectMeta
from kai_py.api.records.record import Record
from kai_py.api.records.resource import DeviceSelector, DeviceTaint


class DeviceTaintSelector(Record, frozen=True, omit_defaults=True):
    """Devices by driver, pool and name; a field left out matches any.

    Up to Kubernetes 1.34, v1alpha3 selects devices by class and by CEL, too.
    """

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    selectors: tuple[DeviceSelector, ...] = ()


class DeviceTaintRuleSpec(Record, frozen=True, omit_defaults=True):
    """Without a selector the rule taints nothing, with an empty one everything."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Record, frozen=True, omit_defaults=True):
    """resource.k8s.io DeviceTaintRule, written by administrators."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


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
