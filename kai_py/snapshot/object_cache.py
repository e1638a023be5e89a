"""The watched objects that pods and devices are derived from, as they are looked up.

Objects are keyed by (collection name, namespace, name), owners also by ("uid", uid); groups within
composite groups are in ``grouping/composite_groups.py``. Claims are shown as what is being written
will make them. O(1) for each change and each look.

A device that its driver could not make ready would be the first choice again at the next attempt.
It is tainted as by a DeviceTaintRule until some time has passed, so that another one is tried, and
so that the reason is reported for pods that find no other. Such a taint ends with the process, and
when the device is published no more.
Sources: KEP-5007 (binding conditions), KEP-5055 (taints).
"""

import math
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.policy import PriorityClass
from kai_py.api.records.resource import DeviceClass, DeviceTaint, ResourceClaim, ResourceSlice
from kai_py.api.records.resource_admin import (
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from kai_py.api.times import lies_ahead
from kai_py.grouping.composite_groups import CompositeGroups, Key
from kai_py.grouping.owner_chain import OwnerObject
from kai_py.snapshot.device_objects import DeviceObjects
from kai_py.snapshot.extended_resources import classes_by_resource, resource_names

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PRIORITY_CLASS: Key = ("priorityclasses", "", "")
"""The empty name stands for the class of pods that name none."""

CLAIM_KIND = ("resource.k8s.io", "ResourceClaim")
Value = TypeVar("Value")


class ObjectCache:
    """The watched objects that pods are derived from, and those that devices are."""

    def __init__(self) -> None:
        """Start empty."""
        self.composite_groups = CompositeGroups()
        self._by_key: dict[Key, object] = {}
        self._kept: dict[Key, dict[object, Any]] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._taint_rules: dict[str, DeviceTaintRule] = {}
        self._claims: dict[tuple[str, str], ResourceClaim] = {}
        self._overlays: dict[str, ResourceClaim] = {}
        self._assumed_claims: dict[tuple[str, str], ResourceClaim] = {}
        self._class_by_resource: Mapping[str, str] | None = None
        self._namespaces: dict[str, dict[str, str]] = {}
        self._generation = 0
        self._claims_generation = 0
        self._snapshot: DeviceObjects | None = None
        self._reads_claims = True

    def apply(self, kind: str, old: object | None, new: object | None) -> tuple[Key, ...]:
        """Take in one change; returns the keys under which others may have looked it up."""
        touched = self._apply(kind, old, new)
        for key in touched:
            self._kept.pop(key, None)
        return touched

    def kept(self, key: Key) -> dict[object, Any]:
        """What was made of the object or objects that ``key`` stands for, until they change."""
        return self._kept.setdefault(key, {})

    def _apply(self, kind: str, old: object | None, new: object | None) -> tuple[Key, ...]:
        changed = new if new is not None else old
        meta: ObjectMeta | None = getattr(changed, "metadata", None)
        if meta is None:
            return ()
        key = (kind, meta.namespace, meta.name)
        self._store(key, new)
        self._store(("uid", meta.uid), new)
        if _is_default(old) or _is_default(new):
            self._set_default_class(meta.name, new if _is_default(new) else None)
            return key, DEFAULT_PRIORITY_CLASS
        if kind == "namespaces":
            _put(self._namespaces, meta.name, meta.labels if new is not None else None)
        elif kind in ("resourceslices", "deviceclasses", "devicetaintrules"):
            self._store_device_object(meta.name, changed, new)
            named = [each for each in (old, new) if isinstance(each, DeviceClass)]
            served = dict.fromkeys(name for each in named for name in resource_names(each))
            return key, *(("extendedresources", "", name) for name in served)
        elif isinstance(changed, ResourceClaim):
            self._store_claim(changed, present=new is not None)
        return key, ("uid", meta.uid), *self.composite_groups.apply(kind, old, new)

    def set_readable(self, kind: tuple[str, str], *, readable: bool) -> None:
        """Note whether a kind may be read: devices without their claims would all look idle."""
        if kind == CLAIM_KIND and readable != self._reads_claims:
            self._reads_claims = readable
            self._generation += 1
            self._snapshot = None

    def keep_deleted_owner(self, owner: OwnerObject) -> None:
        """Go on to find a deleted owner by uid, for the pods that it leaves behind."""
        self._by_key["uid", owner.metadata.uid] = owner

    def drop_deleted_owner(self, uid: str) -> None:
        """Forget a deleted owner that no pod depends on any more."""
        self._by_key.pop(("uid", uid), None)

    def get(self, kind: str, namespace: str, name: str) -> object | None:
        """A watched object by kind and name."""
        return self._by_key.get((kind, namespace, name))

    def by_uid(self, uid: str) -> object | None:
        """A watched object by uid."""
        return self._by_key.get(("uid", uid))

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim, with the allocation that is being written if there is one."""
        return self._claims.get((namespace, name))

    def claim_by_uid(self, uid: str) -> ResourceClaim | None:
        """The claim as the API has it."""
        found = self.by_uid(uid)
        return found if isinstance(found, ResourceClaim) else None

    def overlay_claim(self, claim: ResourceClaim) -> None:
        """Show ``claim`` instead of what the API has, until the API says otherwise."""
        self._overlays[claim.metadata.uid] = claim
        self._set_claim(claim)

    def drop_overlay(self, uid: str) -> None:
        """Show what the API has again."""
        if self._overlays.pop(uid, None) is None:
            return
        original = self.claim_by_uid(uid)
        if original is not None:
            self._set_claim(original)

    def assume_claim(self, claim: ResourceClaim) -> None:
        """Show a claim that is being made, as it will be, whatever the API has by its name."""
        self._assumed_claims[_name(claim)] = claim
        self._set_claim(claim)

    def forget_assumed_claim(self, claim: ResourceClaim) -> None:
        """Show what the API has by the claim's name again."""
        if self._assumed_claims.pop(_name(claim), None) is None:
            return
        known = self.get("resourceclaims", *_name(claim))
        if isinstance(known, ResourceClaim):
            self._set_claim(known)
        else:
            self._claims.pop(_name(claim), None)
            self._claims_changed()

    def device_class_for(self, resource: str) -> str:
        """The DeviceClass that serves an extended resource, or ""."""
        if self._class_by_resource is None:
            self._class_by_resource = classes_by_resource(self._classes.values())
        return self._class_by_resource.get(resource, "")

    def namespace_labels(self) -> dict[str, dict[str, str]]:
        """Labels of every namespace."""
        return dict(self._namespaces)

    def devices(self) -> DeviceObjects:
        """Everything of resource.k8s.io; the same object while nothing changes."""
        if self._snapshot is None:
            self._snapshot = DeviceObjects(
                slices=dict(self._slices) if self._reads_claims else {},
                classes=dict(self._classes),
                taint_rules=dict(self._taint_rules),
                claims=dict(self._claims),
                generation=self._generation,
                claims_generation=self._claims_generation,
            )
        return self._snapshot

    def _store(self, key: Key, new: object | None) -> None:
        if new is None:
            self._by_key.pop(key, None)
        else:
            self._by_key[key] = new

    def _set_default_class(self, name: str, new: object | None) -> None:
        """Note that the class ``name`` is the default, or with None that it is so no more."""
        known = self._by_key.get(DEFAULT_PRIORITY_CLASS)
        if new is not None or (isinstance(known, PriorityClass) and known.metadata.name == name):
            self._store(DEFAULT_PRIORITY_CLASS, new)

    def _store_device_object(self, name: str, changed: object, new: object | None) -> None:
        self._generation += 1
        self._snapshot = None
        if isinstance(changed, DeviceClass):
            self._class_by_resource = None
        if isinstance(changed, ResourceSlice):
            _put(self._slices, name, changed if new is not None else None)
        elif isinstance(changed, DeviceClass):
            _put(self._classes, name, changed if new is not None else None)
        elif isinstance(changed, DeviceTaintRule):
            _put(self._taint_rules, name, changed if new is not None else None)

    def _store_claim(self, claim: ResourceClaim, *, present: bool) -> None:
        if not present:
            self._overlays.pop(claim.metadata.uid, None)
            if _name(claim) not in self._assumed_claims:
                self._claims.pop(_name(claim), None)
                self._claims_changed()
            return
        if claim.status.allocation is not None:
            self._overlays.pop(claim.metadata.uid, None)
            self._assumed_claims.pop(_name(claim), None)
        if _name(claim) in self._assumed_claims:
            return
        overlaid = self._overlays.get(claim.metadata.uid)
        if overlaid is not None:
            status = msgspec.structs.replace(claim.status, allocation=overlaid.status.allocation)
            claim = msgspec.structs.replace(claim, status=status)
        self._set_claim(claim)

    def _set_claim(self, claim: ResourceClaim) -> None:
        self._claims[_name(claim)] = claim
        self._claims_changed()

    def _claims_changed(self) -> None:
        self._claims_generation += 1
        self._snapshot = None


def _is_default(changed: object | None) -> bool:
    return isinstance(changed, PriorityClass) and changed.global_default


def _name(claim: ResourceClaim) -> tuple[str, str]:
    return claim.metadata.namespace, claim.metadata.name


def _put(table: dict[str, Value], name: str, value: Value | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""

TAINT_KEY = "scheduling.kai.io/binding-failed"
UNHEALTHY_KEY = "scheduling.kai.io/device-unhealthy"
UNHEALTHY_SECONDS = 600.0
"""How long a device that a pod lost is not allocated; a driver that taints it says so itself."""
TAINT_RULES = "devicetaintrules"


class FailedDevices:
    """Taint rules for failed devices, added to the watched ones."""

    def __init__(self, objects: ObjectCache) -> None:
        """No device has failed yet."""
        self._objects = objects
        self._seconds: dict[DeviceKey, float] = {}
        self._rules: dict[DeviceKey, tuple[float, DeviceTaintRule]] = {}
        self._longest = 0.0

    def avoid(self, device: DeviceKey, reason: str, seconds: float, key: str = TAINT_KEY) -> None:
        """Taint a device; the time runs from the next ``expire``: here no clock is known."""
        old = self._rules.get(device)
        rule = _taint_rule(device, reason, key)
        self._objects.apply(TAINT_RULES, old and old[1], rule)
        self._rules[device] = (0.0, rule)
        self._seconds[device] = seconds

    def avoid_unhealthy(self, device: DeviceKey) -> None:
        """Taint a device that a pod reports as unhealthy."""
        self.avoid(device, "Unhealthy", UNHEALTHY_SECONDS, key=UNHEALTHY_KEY)

    def expire(self, now: float) -> None:
        """Start the time of new taints, and end those whose time has passed."""
        for device, seconds in self._seconds.items():
            self._rules[device] = (now + seconds, self._rules[device][1])
            self._longest = max(self._longest, seconds)
        self._seconds.clear()
        ends = [(device, until) for device, (until, _) in self._rules.items()]
        for device, until in ends:
            if not lies_ahead(until, now, self._longest):
                self._forget(device)

    def withdraw(self, old: ResourceSlice, new: ResourceSlice | None) -> None:
        """End the taints of devices that ``old`` listed and ``new`` does not.

        A device of the same name that is published later is another one.
        """
        if not self._rules:
            return
        for device in _devices_of(old) - (_devices_of(new) if new is not None else set()):
            self._forget(device)

    def next_end(self) -> float:
        """When the next taint ends, seconds since the epoch; inf without any, as of ``expire``."""
        return min((until for until, _ in self._rules.values()), default=math.inf)

    def _forget(self, device: DeviceKey) -> None:
        self._seconds.pop(device, None)
        if (tainted := self._rules.pop(device, None)) is not None:
            self._objects.apply(TAINT_RULES, tainted[1], None)


def _devices_of(published: ResourceSlice) -> set[DeviceKey]:
    spec = published.spec
    return {(spec.driver, spec.pool.name, device.name) for device in spec.devices}


def _taint_rule(device: DeviceKey, reason: str, key: str) -> DeviceTaintRule:
    driver, pool, name = device
    return DeviceTaintRule(
        metadata=ObjectMeta(name=f"binding-failed/{'/'.join(device)}"),
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(driver=driver, pool=pool, device=name),
            taint=DeviceTaint(key=key, value=reason, effect="NoSchedule"),
        ),
    )
