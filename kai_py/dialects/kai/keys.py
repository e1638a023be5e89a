"""Labels and annotations of KAI's API, and how durations and points in time are written in them."""

from kai_py.api import times
from kai_py.api.times import DurationError, parse_duration

QUEUE = "kai.scheduler/queue"
PROJECT = "project"
POD_GROUP = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
PRIORITY_CLASS = "priorityClassName"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
STALENESS_GRACE = "kai.scheduler/staleness-grace-period"
TASK_PRIORITY = "kai.scheduler/task-priority"
TOPOLOGY = "kai.scheduler/topology"
STALE_SINCE = "kai.scheduler/stale-podgroup-timestamp"
LAST_EVICTION = "kai.scheduler/last-eviction-timestamp"
KUBEFLOW_ROLE = "training.kubeflow.org/job-role"
RAY_NODE_TYPE = "ray.io/node-type"
NODE_POOL = "kai.scheduler/node-pool"
DEFAULT_POOL = "default"
RAY_PRIORITY_CLASS = "ray.io/priority-class-name"


def signed_duration(text: str) -> float:
    """Seconds of a Go duration that may be negative; raises DurationError."""
    if text.startswith("-"):
        return -parse_duration(text[1:])
    return parse_duration(text)


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for any other text."""
    moment = times.parse_time(text)
    return None if moment is None else moment.timestamp()


def first_duration(*written: tuple[str, str | None]) -> tuple[float | None, str]:
    """The first duration that is set, and what is wrong with it; each with its field."""
    for field, text in written:
        if text is not None and text != "":
            try:
                return signed_duration(text), ""
            except DurationError as error:
                return None, f"{field}: {error}"
    return None, ""
