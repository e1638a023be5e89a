"""Printer columns of each kind, as in `kubectl get`.

A column's cell is a function of an object and the time; ages are relative to the clock. Custom
resources bring their own columns as JSON paths, of which the subset `.a.b`, `['a']`, `[0]` and
`[?(@.key=="value")]` is supported.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from kai_py.api.records.unstructured import value_at
from kai_py.embedded.documents import Json, seconds_of

Cell: TypeAlias = Callable[[Json, float], Any]


class Column(Struct, frozen=True):
    """One column of a table; `priority` above 0 shows with `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def at(path: str, default: Any = "<none>") -> Cell:
    """The cell that shows the value at a dotted path."""

    def cell(document: Json, _now: float) -> Any:
        value = value_at(document, path)
        return default if value is None or value == "" else value

    return cell


def count(path: str) -> Cell:
    """The cell that shows the length of the list or map at a dotted path."""
    return lambda document, _now: len(value_at(document, path) or ())


def age_since(path: str) -> Cell:
    """The cell that shows how long ago the time at a dotted path was."""

    def cell(document: Json, now: float) -> str:
        text = value_at(document, path)
        return duration(now - seconds_of(text)) if text else "<unknown>"

    return cell


def duration(seconds: float) -> str:
    """Format a duration as kubectl does: 45s, 3m20s, 25m, 5h, 3d."""
    total = max(int(seconds), 0)
    if total < 120:
        return f"{total}s"
    minutes, rest = divmod(total, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


NAME = Column("Name", at("metadata.name"), format="name")
AGE = Column("Age", age_since("metadata.creationTimestamp"))
NAME_AND_AGE = (NAME, AGE)

_PATH_STEP = re.compile(
    r"\.(?P<field>(?:[^.\[\\]|\\.)+)|\['(?P<quoted>[^']*)'\]|\[(?P<index>\d+)\]"
    r"|\[\?\(@\.(?P<key>[^=]+?)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
)


def json_path(text: str) -> Cell:
    """The cell for a custom resource column; raises ValueError if unsupported."""
    steps, position = [], 0
    while position < len(text):
        match = _PATH_STEP.match(text, position)
        if match is None:
            raise ValueError(f"JSONPath {text!r} is beyond what the embedded cluster understands")
        steps.append(match)
        position = match.end()

    def cell(document: Json, _now: float) -> Any:
        value: Any = document
        for step in steps:
            value = _step(value, step)
        return value

    return cell


def _step(value: Any, step: re.Match[str]) -> Any:
    if step["index"] is not None:
        index = int(step["index"])
        return value[index] if isinstance(value, list) and index < len(value) else None
    if step["key"] is not None:
        entries = value if isinstance(value, list) else ()
        return next((each for each in entries if each.get(step["key"]) == step["value"]), None)
    field = step["quoted"] if step["quoted"] is not None else step["field"].replace("\\.", ".")
    return value.get(field) if isinstance(value, dict) else None


def _pod_ready(pod: Json, _now: float) -> str:
    ready = sum(bool(each.get("ready")) for each in value_at(pod, "status.containerStatuses") or ())
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Json, _now: float) -> str:
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    if status.get("reason"):
        return str(status["reason"])
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    phase = status.get("phase", "Unknown")
    if phase == "Pending" and pod["spec"].get("nodeName"):
        return "ContainerCreating"
    return {"Succeeded": "Completed", "Failed": "Error"}.get(phase, str(phase))


def _pod_restarts(pod: Json, _now: float) -> str:
    statuses = value_at(pod, "status.containerStatuses") or ()
    return str(sum(each.get("restartCount", 0) for each in statuses))


def _pod_gates(pod: Json, _now: float) -> str:
    gates = pod["spec"].get("readinessGates")
    return f"0/{len(gates)}" if gates else "<none>"


POD = (
    NAME,
    Column("Ready", _pod_ready),
    Column("Status", _pod_status),
    Column("Restarts", _pod_restarts),
    AGE,
    Column("IP", at("status.podIP"), priority=1),
    Column("Node", at("spec.nodeName"), priority=1),
    Column("Nominated Node", at("status.nominatedNodeName"), priority=1),
    Column("Readiness Gates", _pod_gates, priority=1),
)


def _node_status(node: Json, _now: float) -> str:
    conditions = {
        each["type"]: each["status"] for each in value_at(node, "status.conditions") or ()
    }
    words = {"True": "Ready", "False": "NotReady"}
    status = words.get(conditions.get("Ready", ""), "Unknown")
    return f"{status},SchedulingDisabled" if value_at(node, "spec.unschedulable") else status


def _node_roles(node: Json, _now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = [key.removeprefix(prefix) for key in sorted(labels) if key.startswith(prefix)]
    return ",".join(roles) or "<none>"


NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    Column("Version", at("status.nodeInfo.kubeletVersion", "")),
)
NAMESPACE = (NAME, Column("Status", at("status.phase")), AGE)


def _job_status(job: Json, _now: float) -> str:
    for condition in value_at(job, "status.conditions") or ():
        if condition["status"] == "True" and condition["type"] in (
            "Complete",
            "Failed",
            "Suspended",
        ):
            return str(condition["type"])
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def _job_completions(job: Json, _now: float) -> str:
    succeeded = value_at(job, "status.succeeded") or 0
    completions = job["spec"].get("completions")
    return f"{succeeded}/{completions if completions is not None else 1}"


def _job_duration(job: Json, now: float) -> str:
    started, ended = value_at(job, "status.startTime"), value_at(job, "status.completionTime")
    if not started:
        return ""
    return duration((seconds_of(ended) if ended else now) - seconds_of(started))


JOB = (
    NAME,
    Column("Status", _job_status),
    Column("Completions", _job_completions),
    Column("Duration", _job_duration),
    AGE,
)


def _ready_of_desired(document: Json, _now: float) -> str:
    ready = value_at(document, "status.readyReplicas") or 0
    return f"{ready}/{document['spec'].get('replicas', 1)}"


DEPLOYMENT = (
    NAME,
    Column("Ready", _ready_of_desired),
    Column("Up-to-date", at("status.updatedReplicas", 0), "integer"),
    Column("Available", at("status.availableReplicas", 0), "integer"),
    AGE,
)
REPLICA_SET = (
    NAME,
    Column("Desired", at("spec.replicas", 0), "integer"),
    Column("Current", at("status.replicas", 0), "integer"),
    Column("Ready", at("status.readyReplicas", 0), "integer"),
    AGE,
)
STATEFUL_SET = (NAME, Column("Ready", _ready_of_desired), AGE)


def _claim_state(claim: Json, _now: float) -> str:
    status = claim.get("status") or {}
    words = ["deleted"] if "deletionTimestamp" in claim["metadata"] else []
    words.append("allocated" if status.get("allocation") else "pending")
    if status.get("reservedFor"):
        words.append("reserved")
    return ",".join(words)


CLAIM = (NAME, Column("State", _claim_state), AGE)
SLICE = (
    NAME,
    Column("Node", at("spec.nodeName", "")),
    Column("Driver", at("spec.driver")),
    Column("Pool", at("spec.pool.name")),
    AGE,
)
PRIORITY_CLASS = (
    NAME,
    Column("Value", at("value"), "integer"),
    Column("Global-Default", at("globalDefault", default=False), "boolean"),
    AGE,
    Column("PreemptionPolicy", at("preemptionPolicy")),
)
BUDGET = (
    NAME,
    Column("Min Available", at("spec.minAvailable", "N/A")),
    Column("Max Unavailable", at("spec.maxUnavailable", "N/A")),
    Column("Allowed Disruptions", at("status.disruptionsAllowed", 0), "integer"),
    AGE,
)
LEASE = (NAME, Column("Holder", at("spec.holderIdentity", "")), AGE)
CONFIG_MAP = (NAME, Column("Data", count("data"), "integer"), AGE)
SECRET = (
    NAME,
    Column("Type", at("type", "Opaque")),
    Column("Data", count("data"), "integer"),
    AGE,
)
CRD = (NAME, Column("Created At", at("metadata.creationTimestamp")))


def _last_seen(event: Json, now: float) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    latest = next((each for each in times if each), None)
    return duration(now - seconds_of(latest)) if latest else "<unknown>"


def _event_object(event: Json, _now: float) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


EVENT = (
    Column("Last Seen", _last_seen),
    Column("Type", at("type", "")),
    Column("Reason", at("reason", "")),
    Column("Object", _event_object),
    Column("Message", at("message", "")),
    Column("Name", at("metadata.name"), priority=1, format="name"),
)
