"""Phases of pods (``v1.PodPhase``), and whether a pod has ended in one of them."""

from kai_py.api.records.core import Pod

SUCCEEDED, FAILED = "Succeeded", "Failed"
FINISHED_PHASES = (SUCCEEDED, FAILED)
"""Phases that a pod never leaves, as ``IsPodPhaseTerminal`` of Kubernetes has them."""


def is_finished(pod: Pod) -> bool:
    """Whether all containers of the pod have ended and will not be restarted."""
    return pod.status.phase in FINISHED_PHASES
