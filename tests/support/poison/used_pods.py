"""Pods that run, and pods that want to, with what kubelets report of them."""

from tests.support.cluster.api import Document
from tests.support.poison.document import QUEUE, document

STARTED = "2027-01-15T07:00:00Z"
"""An hour before ``process.NOW``."""
OWN = "scheduling.kai.io"


def used_pod(
    name: str,
    queue: str,
    node: str,
    *,
    runs: bool = False,
    resources: Document | None = None,
    notes: Document | None = None,
    meta: Document | None = None,
    status: Document | None = None,
    **spec: object,
) -> Document:
    """A pod of a queue that runs on a node, or has to."""
    limits = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "main", "resources": limits if resources is None else resources}
    running: Document = {
        "phase": "Running",
        "startTime": STARTED,
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": STARTED},
            {"type": "Ready", "status": "True", "lastTransitionTime": STARTED},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "started": True,
                "restartCount": 1,
                "state": {"running": {"startedAt": STARTED}},
                "resources": {"requests": {"cpu": "2", "memory": "2Gi"}},
                "allocatedResources": {"cpu": "2", "memory": "3Gi"},
            }
        ],
    }
    return document(
        "v1",
        "Pod",
        name,
        "tenant",
        meta={"annotations": {QUEUE: queue} | (notes or {}), "creationTimestamp": STARTED}
        | (meta or {}),
        spec={
            "schedulerName": "kai-scheduler",
            "containers": [container],
            "nodeSelector": {} if runs else {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 30,
        }
        | ({"nodeName": node} if runs else {})
        | spec,
        status=(running if runs else {"phase": "Pending"}) | (status or {}),
    )


def gang_notes(name: str, pods: int, **more: str) -> Document:
    """Annotations of a gang of so many pods; keys are written with underscores."""
    settings = {f"{OWN}/{key.replace('_', '-')}": text for key, text in more.items()}
    return {f"{OWN}/pod-group": name, f"{OWN}/min-available": str(pods)} | settings
