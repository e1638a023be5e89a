"""Evicts pods from devices with a NoExecute taint (KEP-5055).

The taints of a device are those in its ResourceSlice and those of the DeviceTaintRules that select
it. A pod that reserves a claim with such a device is deleted unless the allocation result tolerates
the taint; tolerationSeconds delay that.

Source: pkg/controller/devicetainteviction of k8s.io/kubernetes.
"""

from collections.abc import Iterable, Sequence

from kai_py.api.records.node import covers
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import DeviceTaint, DeviceToleration
from kai_py.api.records.unstructured import value_at
from kai_py.api.times import format_time
from kai_py.dra.taints import NO_EXECUTE
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.runtime import Controller, Key, Work, key_of
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import (
    Json,
    is_active,
    name_of,
    seconds_of,
    uid_of,
)
from kai_py.embedded.resources import CLAIMS, PODS, SLICES, TAINT_RULES
from kai_py.embedded.store import Change
from kai_py.embedded.subresources import mark_disrupted


def reconcile(work: Work) -> None:
    """Evict the consumers of one claim if a taint requires it."""
    namespace, name = work.key
    claim = work.api.find(CLAIMS, name, namespace)
    results = value_at(claim, "status.allocation.devices.results") or ()
    evict_at = min((_eviction_time(work, result) for result in results), default=float("inf"))
    if evict_at == float("inf") or claim is None:
        return
    if evict_at > work.now:
        work.requeue_after(evict_at - work.now)
        return
    for consumer in claim["status"].get("reservedFor") or ():
        pod = work.api.find(PODS, consumer["name"], namespace)
        if pod and uid_of(pod) == consumer["uid"] and is_active(pod):
            _evict(work, pod)


def _eviction_time(work: Work, result: Json) -> float:
    times = [
        _toleration_end(taint, result.get("tolerations") or (), work.now)
        for taint in _taints(work.api, result)
        if taint["effect"] == NO_EXECUTE
    ]
    return min(times, default=float("inf"))


def _taints(api: ApiServer, result: Json) -> Iterable[Json]:
    device = {field: result[field] for field in ("driver", "pool", "device")}
    for each in api.list(SLICES):
        spec = each["spec"]
        if (spec["driver"], spec["pool"]["name"]) != (device["driver"], device["pool"]):
            continue
        for entry in spec.get("devices") or ():
            if entry["name"] == device["device"]:
                yield from entry.get("taints") or ()
    for rule in api.list(TAINT_RULES):
        selector = rule["spec"].get("deviceSelector")
        if selector is not None and all(device.get(key) == each for key, each in selector.items()):
            added = {"timeAdded": rule["metadata"].get("creationTimestamp")}
            yield added | rule["spec"]["taint"]


def _toleration_end(taint: Json, tolerations: Sequence[Json], now: float) -> float:
    since = seconds_of(taint["timeAdded"]) if taint.get("timeAdded") else now
    record = convert_record(taint, DeviceTaint)
    matching = [e for e in tolerations if covers(convert_record(e, DeviceToleration), record)]
    if not matching:
        return now
    bounded = [each["tolerationSeconds"] for each in matching if "tolerationSeconds" in each]
    return since + min(bounded) if bounded else float("inf")


def _evict(work: Work, pod: Json) -> None:
    message = f"Device taint: deleting due to NoExecute at {format_time(work.now)}"
    mark_disrupted(work.api, pod, "DeletionByDeviceTaintManager", message)
    options = DeleteOptions(preconditions={"uid": uid_of(pod)})
    delete(work.api, PODS, name_of(pod), pod["metadata"]["namespace"], options)


def _keys(api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == CLAIMS.storage:
        yield key_of(change.object)
    elif change.storage == TAINT_RULES.storage or _has_taints(change.object):
        for claim in api.list(CLAIMS):
            if (claim.get("status") or {}).get("allocation"):
                yield key_of(claim)


def _has_taints(resource_slice: Json) -> bool:
    return any(device.get("taints") for device in resource_slice["spec"].get("devices") or ())


DEVICE_TAINT_CONTROLLER = Controller(
    name="device-taints",
    reconcile=reconcile,
    keys=_keys,
    storages=frozenset({CLAIMS.storage, SLICES.storage, TAINT_RULES.storage}),
)
