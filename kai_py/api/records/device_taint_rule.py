"""Records of DeviceTaintRules (resource.k8s.io): taints that an administrator gives devices."""

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.record import Record
from kai_py.api.records.resource import DeviceTaint


class DeviceTaintSelector(Record, frozen=True, omit_defaults=True):
    """Devices by driver, pool and name; a field left out matches any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Record, frozen=True, omit_defaults=True):
    """Without a selector the rule taints nothing, with an empty one everything."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Record, frozen=True, omit_defaults=True):
    """resource.k8s.io DeviceTaintRule, written by administrators."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
