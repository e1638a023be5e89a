"""Records of DeviceTaintRules (resource.k8s.io): taints that an administrator gives devices."""

from kai_py.api.records.core import ObjectMeta
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
