"""Device taints that DeviceTaintRules add (KEP-5055).

A taint with effect NoSchedule or NoExecute must be tolerated, also by requests with admin access;
other effects do not matter. A rule without a selector taints nothing; a field that a selector
leaves out matches any value. A device on which an expression of a rule has no result is not tainted
by it, nor is any by a rule whose class does not exist.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, product
from operator import itemgetter

import msgspec

from kai_py.api.groups import grouped
from kai_py.api.records.resource import DeviceClass, DeviceSelector, DeviceTaint
from kai_py.api.records.resource_admin import DeviceTaintRule
from kai_py.cel.expression import CompileError
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.identity import DeviceID, PoolID
from kai_py.dra.selectors.device import CELDevice
from kai_py.dra.selectors.selector import compile_selector

NO_EXECUTE = "NoExecute"


def with_class_selectors(
    rules: Iterable[DeviceTaintRule], classes: Mapping[str, DeviceClass]
) -> Iterator[DeviceTaintRule]:
    """The rules that may taint something, with the selectors of the classes that they name."""
    for rule in rules:
        selector = rule.spec.device_selector
        if selector is None or not selector.device_class_name:
            yield rule
            continue
        device_class = classes.get(selector.device_class_name)
        if device_class is not None:
            selectors = (*device_class.spec.selectors, *selector.selectors)
            selector = msgspec.structs.replace(selector, selectors=selectors)
            spec = msgspec.structs.replace(rule.spec, device_selector=selector)
            yield msgspec.structs.replace(rule, spec=spec)


class TaintRules:
    """Taint rules by the drivers and pools that they name."""

    def __init__(self, rules: Iterable[DeviceTaintRule] = ()) -> None:
        """``rules``: in the order in which their taints are listed."""
        self.rules = tuple(rules)
        named = ((n, rule) for n, rule in enumerate(self.rules) if rule.spec.device_selector)
        self._named = grouped(named, lambda numbered: _pool_of(numbered[1]))

    def of_pool(self, pool: PoolID) -> tuple[DeviceTaintRule, ...]:
        """The rules that may taint devices of ``pool``, in order."""
        keys = product((pool.driver, None), (pool.pool, None))
        found = sorted(chain.from_iterable(self._named.get(key, ()) for key in keys), key=_number)
        return tuple(rule for _, rule in found)


def _pool_of(rule: DeviceTaintRule) -> tuple[str | None, str | None]:
    selector = rule.spec.device_selector
    return (None, None) if selector is None else (selector.driver, selector.pool)


_number: Callable[[tuple[int, DeviceTaintRule]], int] = itemgetter(0)


def rule_taints(
    rules: Iterable[DeviceTaintRule], device: DeviceID, cel: Callable[[], CELDevice]
) -> tuple[DeviceTaint, ...]:
    """The taints that ``rules`` add to ``device``, in the order of the rules.

    ``cel``: the device as the expressions of a rule see it.
    """
    return tuple(rule.spec.taint for rule in rules if _applies_to(rule, device, cel))


def _applies_to(rule: DeviceTaintRule, device: DeviceID, cel: Callable[[], CELDevice]) -> bool:
    selector = rule.spec.device_selector
    if selector is None:
        return False
    return (
        selector.driver in (None, device.driver)
        and selector.pool in (None, device.pool)
        and selector.device in (None, device.device)
        and all(_matches(each, cel()) for each in selector.selectors)
    )


def _matches(selector: DeviceSelector, device: CELDevice) -> bool:
    compiled = None if selector.cel is None else compile_selector(selector.cel.expression)
    if compiled is None or isinstance(compiled, CompileError):
        return False
    try:
        return compiled.matches(device)
    except CELRuntimeError:
        return False
