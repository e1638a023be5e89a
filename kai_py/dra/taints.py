"""Device taints: those that block a request, and those that DeviceTaintRules add (KEP-5055).

A taint with effect NoSchedule or NoExecute must be tolerated, also by requests with admin access;
other effects do not matter. A rule without a selector taints nothing; a field that a selector
leaves out matches any value.
"""

from collections.abc import Iterable, Sequence

from kai_py.api.records.device_taint_rule import DeviceTaintRule
from kai_py.api.records.resource import DeviceTaint, DeviceToleration
from kai_py.api.taints import covers
from kai_py.dra.identity import DeviceID

NO_EXECUTE = "NoExecute"
BLOCKING_EFFECTS = ("NoSchedule", NO_EXECUTE)


def untolerated_taint(
    taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]
) -> DeviceTaint | None:
    """The first taint that blocks a request with these tolerations."""
    for taint in taints:
        if taint.effect in BLOCKING_EFFECTS and not any(
            covers(toleration, taint) for toleration in tolerations
        ):
            return taint
    return None


def rule_taints(rules: Iterable[DeviceTaintRule], device: DeviceID) -> tuple[DeviceTaint, ...]:
    """The taints that ``rules`` add to ``device``, in the order of the rules."""
    return tuple(rule.spec.taint for rule in rules if _applies_to(rule, device))


def _applies_to(rule: DeviceTaintRule, device: DeviceID) -> bool:
    selector = rule.spec.device_selector
    if selector is None:
        return False
    return (
        selector.driver in (None, device.driver)
        and selector.pool in (None, device.pool)
        and selector.device in (None, device.device)
    )
