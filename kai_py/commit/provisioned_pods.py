"""Which pods is a ProvisioningRequest for? Two annotations on them say so.

    autoscaling.x-k8s.io/consume-provisioning-request   its name
    autoscaling.x-k8s.io/provisioning-class-name        its class

An autoscaler adds no nodes for single pods that have them, and takes the nodes of a request away
that no such pod runs on. Pods whose request is removed while they wait lose them: they call for
nodes again. Pods that come later, in place of others, get them in turn.

Cost: one lookup per waiting pod and look; all pods when a request is removed.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.document import Document
from kai_py.commit.provisioning import Wish
from kai_py.watch.client import Client
from kai_py.watch.errors import Conflict, NotFound
from kai_py.watch.kinds import PODS
from kai_py.watch.mirror import Mirror

REQUEST_KEY = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_KEY = "autoscaling.x-k8s.io/provisioning-class-name"


class ProvisionedPods:
    """Brings the annotations of pods in line with the requests that are made for them."""

    def __init__(self, client: Client, mirror: Mirror) -> None:
        self._client = client
        self._mirror = mirror

    async def claim(self, wish: Wish) -> None:
        """Say of the pods of a wish which request is theirs."""
        for pod in unclaimed(wish, self._mirror.objects(PODS)):
            await self._annotate(pod, {REQUEST_KEY: wish.name, CLASS_KEY: wish.class_name})

    async def release(self, request: Document) -> None:
        """Take the annotations of a request from the pods that still wait."""
        for pod in waiting_for(request, self._mirror.objects(PODS)):
            await self._annotate(pod, {REQUEST_KEY: None, CLASS_KEY: None})

    async def _annotate(self, pod: Pod, marks: Mapping[str, str | None]) -> None:
        meta = pod.metadata
        patch: dict[str, Any] = {"metadata": {"uid": meta.uid, "annotations": dict(marks)}}
        try:
            await self._client.patch(PODS.at(), meta.name, patch, namespace=meta.namespace)
        except (Conflict, NotFound):
            return


def unclaimed(wish: Wish, pods: Mapping[tuple[str, str], Pod]) -> Iterator[Pod]:
    """Pods of a wish that do not say so yet."""
    for ref in chain.from_iterable(pod_set.pods for pod_set in wish.pod_sets):
        pod = pods.get((ref.namespace, ref.name))
        if pod is None or pod.metadata.uid != ref.uid:
            continue
        marks = pod.metadata.annotations
        if (marks.get(REQUEST_KEY), marks.get(CLASS_KEY)) != (wish.name, wish.class_name):
            yield pod


def waiting_for(request: Document, pods: Mapping[tuple[str, str], Pod]) -> list[Pod]:
    """Pods without a node that say that a request is theirs."""
    meta = request.metadata
    return [
        pod
        for (namespace, _), pod in pods.items()
        if namespace == meta.namespace
        and not pod.spec.node_name
        and pod.metadata.annotations.get(REQUEST_KEY) == meta.name
    ]
