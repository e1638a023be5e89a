"""Which devices could their drivers not make ready, and are therefore given to nobody for a while?

A device whose binding condition failed would be the first choice again at the next attempt. It is
tainted as by a DeviceTaintRule until some time has passed, so that another one is tried, and so
that pods that find no other are told why. What is remembered ends with the process.

Source: KEP 5007 (binding conditions), KEP 5055 (taints).
"""

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.resource import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from kai_py.snapshot.object_cache import ObjectCache

DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""

TAINT_KEY = "scheduling.kai.io/binding-failed"
TAINT_RULES = "devicetaintrules"


class FailedDevices:
    """Taint rules in ``objects`` that are of our own making."""

    def __init__(self, objects: ObjectCache) -> None:
        """No device has failed yet."""
        self._objects = objects
        self._seconds: dict[DeviceKey, float] = {}
        self._rules: dict[DeviceKey, tuple[float, DeviceTaintRule]] = {}

    def avoid(self, device: DeviceKey, reason: str, seconds: float) -> None:
        """Taint a device; the time runs from the next ``tick``."""
        old = self._rules.get(device)
        rule = _taint_rule(device, reason)
        self._objects.apply(TAINT_RULES, old and old[1], rule)
        self._rules[device] = (0.0, rule)
        self._seconds[device] = seconds

    def expire(self, now: float) -> None:
        """Start the time of new taints, and end those whose time has passed."""
        for device, seconds in self._seconds.items():
            self._rules[device] = (now + seconds, self._rules[device][1])
        self._seconds.clear()
        for device, (until, rule) in list(self._rules.items()):
            if until <= now:
                del self._rules[device]
                self._objects.apply(TAINT_RULES, rule, None)


def _taint_rule(device: DeviceKey, reason: str) -> DeviceTaintRule:
    driver, pool, name = device
    return DeviceTaintRule(
        metadata=ObjectMeta(name=f"binding-failed/{'/'.join(device)}"),
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(driver=driver, pool=pool, device=name),
            taint=DeviceTaint(key=TAINT_KEY, value=reason, effect="NoSchedule"),
        ),
    )
