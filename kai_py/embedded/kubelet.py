"""The fake kubelet of all nodes: runs the pods that are bound.

A bound pod is admitted (or Failed: OutOfcpu, …), waits until its claims are usable, runs, and ends
after `kai-py.demo/run-seconds` (never, without the annotation) with `kai-py.demo/exit-code`;
containers are restarted by its restartPolicy. A deleted pod stops within its grace period and is
removed.
"""

from collections.abc import Iterable

from msgspec import Struct

from kai_py.api.gpu_reservation import RESERVED_GPU
from kai_py.api.gpu_share import RESERVATION
from kai_py.api.times import format_time
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.runtime import Controller, Key, Work, key_of, record_warning
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import (
    Json,
    is_deleting,
    is_finished,
    name_of,
    namespace_of,
    uid_of,
    with_condition,
)
from kai_py.embedded.node_admission import NodeAdmission, claim_names
from kai_py.embedded.resources import CLAIMS, NODES, PODS
from kai_py.embedded.store import Change, ChangeType

RUN_SECONDS = "kai-py.demo/run-seconds"
EXIT_CODE = "kai-py.demo/exit-code"
KILLED_EXIT_CODE = 137
PREPARE_RETRY_SECONDS = 5.0


RESOLUTION = 1e-6
"""Seconds below which times since the epoch cannot be told apart: waiting for less never ends."""


class PodTiming(Struct, frozen=True, kw_only=True):
    """Time to start and to stop a pod, in seconds; stopping never exceeds the grace period."""

    start: float = 1.0
    stop: float = 1.0


class Kubelet:
    """Runs the pods of every node of the cluster."""

    def __init__(self, timing: PodTiming | None = None) -> None:
        self._timing = timing or PodTiming()
        self.admission = NodeAdmission()
        self._step_times: dict[tuple[str, str], float] = {}
        self._nodes: dict[Key, tuple[str, str]] = {}

    def controller(self) -> Controller:
        """The controller to run."""
        return Controller(
            name="kubelet",
            reconcile=self.reconcile,
            keys=_keys,
            storages=frozenset({PODS.storage, CLAIMS.storage}),
        )

    def reconcile(self, work: Work) -> None:
        """Take one pod one step further in its lifecycle."""
        namespace, name = work.key
        pod = work.api.find(PODS, name, namespace)
        self._forget_replaced(work.key, pod)
        if pod is None or not pod["spec"].get("nodeName"):
            return
        self._nodes[work.key] = (uid_of(pod), pod["spec"]["nodeName"])
        if is_deleting(pod):
            self._stop(work, pod)
        elif is_finished(pod):
            self.admission.release(uid_of(pod), pod["spec"]["nodeName"])
        elif pod["status"].get("phase") == "Running":
            self._run(work, pod)
        else:
            self._start(work, pod)

    def _forget_replaced(self, key: Key, pod: Json | None) -> None:
        known = self._nodes.get(key)
        if known and (pod is None or uid_of(pod) != known[0]):
            self.admission.release(*known)
            del self._nodes[key]
            for step in ("start", "run", "stop"):
                self._step_times.pop((known[0], step), None)

    def _elapsed(self, work: Work, pod: Json, step: str) -> float:
        return work.now - self._step_times.setdefault((uid_of(pod), step), work.now)

    def _start(self, work: Work, pod: Json) -> None:
        node = work.api.find(NODES, pod["spec"]["nodeName"])
        if node is None:
            return
        if resource := self.admission.admit_resources(pod, node):
            message = f"Node didn't have enough resource: {resource}"
            status = {"phase": "Failed", "reason": f"OutOf{resource}", "message": message}
            work.api.patch_status(PODS, pod, status)
            return
        if reason := self.admission.admit_devices(work.api, pod):
            message = f"Failed to prepare dynamic resources: {reason}"
            record_warning(
                work.api,
                pod,
                "FailedPrepareDynamicResources",
                message,
                component="kubelet",
            )
            work.requeue_after(PREPARE_RETRY_SECONDS)
            return
        remaining = self._timing.start - self._elapsed(work, pod, "start")
        if remaining > RESOLUTION:
            work.requeue_after(remaining)
            return
        self._elapsed(work, pod, "run")
        work.api.patch_status(PODS, pod, _running(pod, node, work.now))
        self._report_gpu(work, pod)

    def _report_gpu(self, work: Work, pod: Json) -> None:
        """Do what the program of a reservation pod does: report the GPU that it was given."""
        gpus = self.admission.plugin_gpus(uid_of(pod), pod["spec"]["nodeName"])
        is_reservation = (pod["metadata"].get("labels") or {}).get("app") == RESERVATION
        if namespace_of(pod) != RESERVATION or not is_reservation or len(gpus) != 1:
            return

        def reported(present: Json) -> Json:
            meta = present["metadata"]
            annotations = {**(meta.get("annotations") or {}), RESERVED_GPU: gpus[0]}
            return {**present, "metadata": {**meta, "annotations": annotations}}

        work.api.edit(PODS, name_of(pod), RESERVATION, reported)

    def _run(self, work: Work, pod: Json) -> None:
        annotations = pod["metadata"].get("annotations") or {}
        seconds = _number(annotations.get(RUN_SECONDS))
        if seconds is None:
            return
        remaining = seconds - self._elapsed(work, pod, "run")
        if remaining > RESOLUTION:
            work.requeue_after(remaining)
            return
        code = int(_number(annotations.get(EXIT_CODE)) or 0)
        policy = pod["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and code != 0):
            self._step_times[uid_of(pod), "run"] = work.now
            statuses = [_restarted(each, work.now) for each in pod["status"]["containerStatuses"]]
            work.api.patch_status(PODS, pod, {"containerStatuses": statuses})
            work.requeue_after(seconds)
            return
        work.api.patch_status(PODS, pod, _finished(pod, code, work.now))

    def _stop(self, work: Work, pod: Json) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        remaining = min(self._timing.stop, grace) - self._elapsed(work, pod, "stop")
        if remaining > RESOLUTION:
            work.requeue_after(remaining)
            return
        if not is_finished(pod):  # even one that never started: a Job waits for the final phase
            pod = work.api.patch_status(PODS, pod, _finished(pod, KILLED_EXIT_CODE, work.now))
        self.admission.release(uid_of(pod), pod["spec"]["nodeName"])
        if pod["metadata"].get("deletionGracePeriodSeconds", 0) > 0:
            options = DeleteOptions(grace_seconds=0, preconditions={"uid": uid_of(pod)})
            delete(work.api, PODS, name_of(pod), namespace_of(pod), options)


def _keys(api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == PODS.storage:
        if change.object["spec"].get("nodeName"):
            yield key_of(change.object)
        return
    if change.type is ChangeType.DELETED:
        return
    for consumer in (change.object.get("status") or {}).get("reservedFor") or ():
        pod = api.find(PODS, consumer["name"], namespace_of(change.object))
        if pod and pod["spec"].get("nodeName") and name_of(change.object) in claim_names(pod):
            yield key_of(pod)


def _running(pod: Json, node: Json, now: float) -> Json:
    status = pod["status"]
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
        status = with_condition(status, {"type": kind, "status": "True"}, now=now)
    addresses = (node.get("status") or {}).get("addresses") or ()
    internal = (each for each in addresses if each.get("type") == "InternalIP")
    host = next((each.get("address") or "" for each in internal), "")
    changed: Json = {
        "phase": "Running",
        "startTime": format_time(now),
        "conditions": status["conditions"],
        "containerStatuses": [_container_running(each, now) for each in pod["spec"]["containers"]],
    }
    if host:
        changed |= {"hostIP": host, "hostIPs": [{"ip": host}]}
    return changed


def _container_running(container: Json, now: float) -> Json:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": format_time(now)}},
    }


def _restarted(status: Json, now: float) -> Json:
    running = {"running": {"startedAt": format_time(now)}}
    return {**status, "restartCount": (status.get("restartCount") or 0) + 1, "state": running}


def _finished(pod: Json, code: int, now: float) -> Json:
    status = pod["status"]
    reason = "PodCompleted" if code == 0 else "PodFailed"
    for kind in ("Ready", "ContainersReady"):
        condition = {"type": kind, "status": "False", "reason": reason}
        status = with_condition(status, condition, now=now)
    terminated = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "finishedAt": format_time(now),
    }
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": status["conditions"],
        "containerStatuses": [
            {**each, "ready": False, "started": False, "state": {"terminated": terminated}}
            for each in status.get("containerStatuses") or ()
        ],
    }


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
