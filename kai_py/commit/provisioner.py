"""Reconciles the ProvisioningRequests of gangs with the last plan, outside the scheduling cycle.

A request is created first, then its pods are annotated, then the PodTemplates that it names, which
it owns, are created. A restarted scheduler finds its requests by label and annotation. Two
annotations assign a pod to its request:

    autoscaling.x-k8s.io/consume-provisioning-request   its name
    autoscaling.x-k8s.io/provisioning-class-name        its class

Cluster Autoscaler adds no nodes for single pods with these annotations, and removes nodes of a
request on which no such pod runs. Pods that still wait when their request is removed lose the
annotations, and request nodes one by one again. Pods that replace others get them in turn.

Cost: one lookup per waiting pod and pass; all pods when a request is removed.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.unstructured import Unstructured, unstructured_decoder
from kai_py.api.times import lies_ahead
from kai_py.commit.provisioning_request import (
    GANG_KEY,
    MANAGED_BY,
    DesiredRequest,
    desired_requests,
    failed_at,
    request_body,
    template_body,
    template_name,
    waiting_for_capacity,
    with_request_states,
)
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.settings import CommitSettings
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.watch.client import Client
from kai_py.watch.errors import AlreadyExists, ApiError, Conflict, InvalidName, NotFound
from kai_py.watch.kinds import PODS, PROVISIONING_REQUESTS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Key, Kind, Resource

REQUEST_KEY = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_KEY = "autoscaling.x-k8s.io/provisioning-class-name"


class ProvisionedPods:
    """Reconciles the annotations of pods with the requests that are made for them."""

    def __init__(self, client: Client, mirror: Mirror) -> None:
        self._client = client
        self._mirror = mirror

    async def annotate(self, desired: DesiredRequest) -> None:
        """Annotate the pods of a desired request."""
        for pod in unannotated_pods(desired, self._mirror.objects(PODS)):
            await self._patch_annotations(
                pod, {REQUEST_KEY: desired.name, CLASS_KEY: desired.class_name}
            )

    async def clear(self, request: Unstructured) -> None:
        """Remove the annotations of a request from pods that still wait."""
        for pod in pods_waiting_for(request, self._mirror.objects(PODS)):
            await self._patch_annotations(pod, {REQUEST_KEY: None, CLASS_KEY: None})

    async def _patch_annotations(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        meta = pod.metadata
        patch: dict[str, Any] = {"metadata": {"uid": meta.uid, "annotations": dict(annotations)}}
        try:
            await self._client.patch(PODS.at(), meta.name, patch, namespace=meta.namespace)
        except (Conflict, NotFound):
            return


def unannotated_pods(desired: DesiredRequest, pods: Mapping[tuple[str, str], Pod]) -> Iterator[Pod]:
    """Pods of a desired request that lack its annotations."""
    for ref in chain.from_iterable(pod_set.pods for pod_set in desired.pod_sets):
        pod = pods.get((ref.namespace, ref.name))
        if pod is None or pod.metadata.uid != ref.uid:
            continue
        annotations = pod.metadata.annotations
        if (annotations.get(REQUEST_KEY), annotations.get(CLASS_KEY)) != (
            desired.name,
            desired.class_name,
        ):
            yield pod


def pods_waiting_for(request: Unstructured, pods: Mapping[tuple[str, str], Pod]) -> list[Pod]:
    """Pods without a node that are annotated with a request."""
    meta = request.metadata
    return [
        pod
        for (namespace, _), pod in pods.items()
        if namespace == meta.namespace
        and not pod.spec.node_name
        and pod.metadata.annotations.get(REQUEST_KEY) == meta.name
    ]


log = logging.getLogger(__name__)

UNTYPED_PODS: Kind[Unstructured] = Kind(
    name="Pod", plural="pods", versions={"v1": unstructured_decoder(("spec",))}
)
POD_TEMPLATES: Kind[Unstructured] = Kind(
    name="PodTemplate", plural="podtemplates", versions={"v1": unstructured_decoder(("metadata",))}
)
RESYNC_SECONDS = 10.0
"""Longest time between two passes: failed requests are created again when their time has come."""
MIN_INTERVAL_SECONDS = 0.2
"""Least time from the end of one pass to the next."""


class Provisioner:
    """Reconciles ProvisioningRequests with the last plan; idle where the kind is not served."""

    def __init__(self, client: Client, mirror: Mirror, settings: CommitSettings) -> None:
        self._client = client
        self._mirror = mirror
        self._manager = settings.scheduler_name
        self._settings = settings.autoscaling.provisioning
        self._backoff = ObjectBackoff(settings.backoff)
        self._withdrawals = ObjectBackoff(settings.backoff)
        """Requests that were deleted since their gangs did not need them any more."""
        self._desired: Mapping[str, DesiredRequest] | None = None
        self._waiting: frozenset[str] = frozenset()
        self._with_templates: set[str] = set()
        self._pods = ProvisionedPods(client, mirror)
        self._changed = asyncio.Event()

    def update(self, plan: Plan, gangs: Collection[Gang]) -> Plan:
        """Record the requests of ``plan``, made of ``gangs``; returns it with their states."""
        if self._mirror.served(PROVISIONING_REQUESTS) is None:
            return plan
        requests = self._mirror.objects(PROVISIONING_REQUESTS)
        by_key = {gang.key: gang for gang in gangs}
        self._desired = desired_requests(plan, by_key, self._settings)
        if self._desired or requests:
            self._waiting = waiting_for_capacity(plan, gangs)
            self._changed.set()
        return with_request_states(plan, self._desired, requests)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            await self._reconcile()
            await asyncio.sleep(MIN_INTERVAL_SECONDS)

    async def _reconcile(self) -> None:
        served = self._mirror.served(PROVISIONING_REQUESTS)
        if served is None or self._desired is None:
            return
        now = asyncio.get_running_loop().time()
        desired = {request_wanted.key: request_wanted for request_wanted in self._desired.values()}
        known = {
            key: request
            for key, request in self._mirror.objects(PROVISIONING_REQUESTS).items()
            if request.metadata.labels.get(MANAGED_BY) == self._manager
        }
        self._with_templates &= {request.metadata.uid for request in known.values()}
        for key, request in known.items():
            request_wanted = desired.get(key)
            unneeded = request_wanted is None and self._is_unneeded(request)
            if unneeded and self._withdrawals.is_ready(_label(key), now):
                self._withdrawals.record_failure(_label(key), now)
            if unneeded or self._should_retry(request):
                await self._run_with_backoff(key, self._remove(served, request))
            elif request_wanted is not None:
                await self._run_with_backoff(
                    key, self._ensure_templates(served, request_wanted, request)
                )
        for key, request_wanted in desired.items():
            if key not in known and self._withdrawals.is_ready(_label(key), now):
                await self._run_with_backoff(key, self._create_request(served, request_wanted))

    def _should_retry(self, request: Unstructured) -> bool:
        """Whether the request failed long enough ago to be created again."""
        ended = failed_at(request)
        pause = self._settings.retry_after
        return ended is not None and not lies_ahead(
            ended + pause, self._client.machine.now(), pause
        )

    def _is_unneeded(self, request: Unstructured) -> bool:
        """Whether its gang no longer waits for capacity, or has another request."""
        gang = request.metadata.annotations.get(GANG_KEY, "")
        return gang not in self._waiting or gang in (self._desired or ())

    async def _run_with_backoff(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        """Await ``work`` unless it is in backoff; failures are logged and tried again."""
        label, now = _label(key), asyncio.get_running_loop().time()
        if not self._backoff.is_ready(label, now):
            work.close()
            return
        try:
            await work
        except ApiError as error:
            self._backoff.record_failure(label, now)
            log.warning("%s: %s", label, error)
        else:
            self._backoff.reset(label)

    async def _create_request(
        self, served: Resource[Unstructured], desired: DesiredRequest
    ) -> None:
        body = request_body(desired, self._settings.parameters, self._manager)
        with suppress(AlreadyExists):
            created = await self._client.create(served, body, namespace=desired.key[0])
            await self._ensure_templates(served, desired, created)

    async def _ensure_templates(
        self, served: Resource[Unstructured], desired: DesiredRequest, request: Unstructured
    ) -> None:
        """Annotate the pods and create the PodTemplates of a request.

        Templates of an earlier request of the same name have to be deleted first.
        """
        await self._pods.annotate(desired)
        meta = request.metadata
        if meta.uid in self._with_templates:
            return
        owner = Owner(served.api_version, served.kind.name, meta.namespace, meta.name, meta.uid)
        for index, pod_set in enumerate(desired.pod_sets):
            pod = await self._client.get(
                UNTYPED_PODS.at(), pod_set.pod.name, namespace=pod_set.pod.namespace
            )
            body = template_body(template_name(desired, index), pod, owner)
            if not await self._ensure_template(body, owner):
                return
        self._with_templates.add(meta.uid)

    async def _ensure_template(self, body: dict[str, Any], owner: Owner) -> bool:
        try:
            await self._client.create(POD_TEMPLATES.at(), body, namespace=owner.namespace)
        except AlreadyExists:
            name = body["metadata"]["name"]
            found = await self._client.get(POD_TEMPLATES.at(), name, namespace=owner.namespace)
            return _is_owned(found, owner.uid)
        return True

    async def _remove(self, served: Resource[Unstructured], request: Unstructured) -> None:
        """Delete a request and its templates, for which the garbage collector may take long."""
        meta = request.metadata
        for name in request.all_at("spec.podSets.*.podTemplateRef.name"):
            await self._remove_template(str(name), meta)
        with suppress(NotFound):
            await self._client.delete(served, meta.name, namespace=meta.namespace, uid=meta.uid)
        await self._pods.clear(request)

    async def _remove_template(self, name: str, request: ObjectMeta) -> None:
        """Delete a PodTemplate that a request names, if the request owns it."""
        templates, namespace = POD_TEMPLATES.at(), request.namespace
        with suppress(NotFound, InvalidName, Conflict):
            found = await self._client.get(templates, name, namespace=namespace)
            if _is_owned(found, request.uid):
                await self._client.delete(
                    templates, name, namespace=namespace, uid=found.metadata.uid
                )


def _label(key: Key) -> str:
    return f"ProvisioningRequest {key[0]}/{key[1]}"


def _is_owned(template: Unstructured, uid: str) -> bool:
    return any(each.uid == uid for each in template.metadata.owner_references)
