"""Pods that share GPUs as the admission webhook leaves them, and a scheduler that reserves GPUs."""

from kai_py.api.gpu_reservation import GPU_CONTAINER, gpu_environment
from kai_py.config import GpuIsolation, GpuSharingConfig
from tests.support.cluster.api import Document
from tests.support.cluster.manifests import IN_TEAM_A, pod, pod_spec
from tests.support.cluster.scheduling import EAGER

RESERVATION = "kai-resource-reservation"
RESERVATIONS = f"/api/v1/namespaces/{RESERVATION}/pods"
SHARING = EAGER.model_copy(
    update={
        "gpu_sharing": GpuSharingConfig(
            isolation=GpuIsolation.RESERVATION_PODS, image="kai-py", reservation_timeout=10.0
        )
    }
)


def sharing(name: str, container: str = "main", **asked: str) -> Document:
    """A pod that asks for parts of GPUs, as the admission webhook leaves it."""
    made = pod(name, pod_spec(), annotations=IN_TEAM_A)
    second = {"name": "other", "image": "cuda"}
    made["spec"]["containers"] = [*made["spec"]["containers"], second]
    made["spec"] |= gpu_environment(made, container)
    keys = {f"gpu-{key.replace('_', '-')}": value for key, value in asked.items()}
    made["metadata"]["annotations"] |= keys | {GPU_CONTAINER: container}
    return made
