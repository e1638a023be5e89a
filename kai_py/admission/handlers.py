"""Handlers of the admission webhooks, registered under their paths.

A refusal has code 422. An internal error is not a refusal: the failure policy Ignore would not
apply to an answer, so it is logged, and the object is admitted unchanged.

New pods get defaults:

- in a namespace with the label ``scheduling.kai.io/admission: enabled``, this scheduler instead of
  the default one, unless they belong to a DaemonSet or name a node; and the namespace's queue,
  unless they or one of their owners name one;
- in a queue with ``admissionGate``, the scheduling gate, if they name this scheduler;
- if they name this scheduler and request a part of a GPU, the environment entries by which one
  container sees that GPU.

``default-scheduler`` counts as unset, as the API server writes it where no scheduler was given.
"""

import logging
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

import kopf
import msgspec
from msgspec import Struct

from kai_py.admission.owner_lookup import OwnerLookup
from kai_py.admission.rules import AdmissionVerdict, judge_deletion, judge_pod_group, judge_queue
from kai_py.api.admission import (
    KAI_POD_GROUP_RULES,
    KAI_QUEUE_RULES,
    POD_DEFAULTS,
    POD_GATE,
    POD_SHARED_GPU,
    QUEUE_RULES,
)
from kai_py.api.gpu_reservation import GPU_CONTAINER, gpu_container, gpu_environment
from kai_py.api.gpu_share import readable_share
from kai_py.api.queue import ADMISSION_GATE
from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata, Pod
from kai_py.api.texts import MAX_NAMED
from kai_py.config import Configuration, GpuIsolation
from kai_py.grouping.owner_chain import OwnerChain, controlling_owner
from kai_py.grouping.queue_choice import Defaults, QueueKey
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.planner import addressing, spec_of_queue
from kai_py.snapshot.tables.queues import QueueInfo
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError
from kai_py.watch.kinds import KAI_POD_GROUPS, KAI_QUEUES, NAMESPACES, PODS, QUEUES
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Identified, Kind

DEFAULT_SCHEDULERS = ("", "default-scheduler")
EXEMPT_OWNERS = ("DaemonSet", "Node")


class QueueReference(Struct, frozen=True):
    """A label or annotation that names a queue."""

    field: Literal["labels", "annotations"]
    key: str
    value: str


def gets_scheduler(pod: Pod) -> bool:
    """Whether a pod of an enabled namespace gets our scheduler."""
    owner = controlling_owner(pod.metadata)
    return (
        pod.spec.scheduler_name in DEFAULT_SCHEDULERS
        and not pod.spec.node_name
        and (owner is None or owner.kind not in EXEMPT_OWNERS)
    )


def queue_reference(
    chain: OwnerChain, namespace: ObjectMeta, keys: tuple[QueueKey, ...]
) -> QueueReference | None:
    """The namespace's label or annotation for the queue, if pod and owners name none."""
    if chain.unknown is not None or chain.nearest(*(each.key for each in keys)):
        return None
    for each in keys:
        if value := namespace.annotations.get(each.key):
            return QueueReference("annotations", each.key, value)
        if value := namespace.labels.get(each.key):
            return QueueReference("labels", each.key, value)
    return None


def gets_gate(pod: Pod, scheduler_names: Container[str]) -> bool:
    """Whether a pod of a gated queue gets our gate."""
    return (
        pod.spec.scheduler_name in scheduler_names
        and not pod.spec.node_name
        and all(gate.name != ADMISSION_GATE for gate in pod.spec.scheduling_gates)
    )


def gets_gpu_environment(pod: Pod, scheduler_names: Container[str]) -> bool:
    """Whether a pod gets environment entries for shared GPUs; invalid shares are reported later."""
    if pod.spec.scheduler_name not in scheduler_names or pod.spec.node_name:
        return False
    return readable_share(pod) is not None


log = logging.getLogger(__name__)
REFUSED_CODE = 422
MIRRORED = (NAMESPACES, QUEUES, KAI_QUEUES)

Body = Mapping[str, Any]
P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Identified)


@dataclass
class AdmissionContext:
    """The sources that the handlers look things up in."""

    client: Client
    mirror: Mirror
    configuration: Configuration

    def __post_init__(self) -> None:
        self._owners = OwnerLookup(self.client)
        table = RuleTable(self.configuration.grouping, shipped_rules())
        kai = QueueKey(self.configuration.kai.queue_label, Defaults.KAI)
        self._keys = tuple(dict.fromkeys((*table.queue_keys, kai)))
        configured = self.configuration
        self._schedulers = (configured.scheduler_name, *configured.scheduler_aliases)

    async def pod_defaults(self, body: Body, patch: kopf.Patch) -> None:
        """Set our scheduler and the namespace's queue on a pod of an enabled namespace."""
        pod = _decode(PODS, body)
        if gets_scheduler(pod):
            patch.spec["schedulerName"] = self.configuration.scheduler_name
        elif pod.spec.scheduler_name not in self._schedulers:
            return
        namespace = self._namespace(pod)
        if namespace is None:
            return
        reference = queue_reference(
            await self._owners.chain_of(pod), namespace.metadata, self._keys
        )
        if reference is not None:
            patch.metadata[reference.field] = {reference.key: reference.value}

    async def pod_gate(self, body: Body, patch: kopf.Patch) -> None:
        """Add our scheduling gate to a pod of ours whose queue requires it."""
        pod = _decode(PODS, body)
        if gets_gate(pod, self._schedulers) and self._is_gated(await self._owners.chain_of(pod)):
            gates = [*body["spec"].get("schedulingGates", ()), {"name": ADMISSION_GATE}]
            patch.spec["schedulingGates"] = gates

    async def pod_shared_gpu(self, body: Body, patch: kopf.Patch) -> None:
        """Give the container that shares GPUs an environment entry for them, others none."""
        sharing, pod = self.configuration.gpu_sharing, _decode(PODS, body)
        if sharing.isolation is GpuIsolation.NONE or not gets_gpu_environment(
            pod, self._schedulers
        ):
            return
        container = gpu_container(pod)
        for containers, entries in gpu_environment(body, container).items():
            patch.spec[containers] = entries
        patch.metadata["annotations"] = {GPU_CONTAINER: container}
        if sharing.runtime_class and not body["spec"].get("runtimeClassName"):
            patch.spec["runtimeClassName"] = sharing.runtime_class

    def _is_gated(self, chain: OwnerChain) -> bool:
        # An owner that could not be read may name another queue: leave the pod alone.
        if chain.unknown is not None:
            return False
        queue = chain.nearest(*(each.key for each in self._keys))
        if not queue and (namespace := self._namespace(chain.pod)) is not None:
            reference = queue_reference(chain, namespace.metadata, self._keys)
            queue = reference.value if reference else ""
        queue = queue or addressing(self.configuration).default_queue
        found = self.mirror.objects(QUEUES).get(("", queue))
        return found is not None and found.queue.spec.admission_gate

    def _namespace(self, pod: Pod) -> PartialObjectMetadata | None:
        return self.mirror.objects(NAMESPACES).get(("", pod.metadata.namespace))

    async def queue(
        self, kind: Kind[Any], operation: str, new: Body | None, old: Body | None
    ) -> AdmissionVerdict:
        """The verdict on an edit of a Queue, of the given API, given all present queues."""
        before = None if old is None else _spec(kind, old)
        others = await self._queues()
        if operation == "DELETE" or new is None:
            return judge_deletion(before.name, others) if before else AdmissionVerdict()
        return judge_queue(_spec(kind, new), before, others)

    async def _queues(self) -> Sequence[QueueInfo]:
        """Listed from the API: of two edits in a row the second must see the first."""
        served = [self.mirror.served(kind) for kind in (QUEUES, KAI_QUEUES)]
        listed = [await self.client.list(resource) for resource in served if resource is not None]
        return [spec_of_queue(each) for listing in listed for each in listing.items]


def registry(context: AdmissionContext) -> kopf.OperatorRegistry:
    """All handlers, ready to be served."""
    operator_registry = kopf.OperatorRegistry()
    _register_pods(operator_registry, context)
    _register_queues(operator_registry, context, QUEUES, QUEUE_RULES)
    _register_queues(operator_registry, context, KAI_QUEUES, KAI_QUEUE_RULES)
    _register_pod_groups(operator_registry)
    return operator_registry


def _register_pods(found: kopf.OperatorRegistry, context: AdmissionContext) -> None:
    @kopf.on.mutate("", "v1", "pods", id=POD_DEFAULTS, registry=found)
    async def defaults(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        await _allow_on_error(context.pod_defaults, body, patch)

    @kopf.on.mutate("", "v1", "pods", id=POD_GATE, registry=found)
    async def gate(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        await _allow_on_error(context.pod_gate, body, patch)

    @kopf.on.mutate("", "v1", "pods", id=POD_SHARED_GPU, registry=found)
    async def shared_gpu(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        await _allow_on_error(context.pod_shared_gpu, body, patch)


def _register_queues(
    found: kopf.OperatorRegistry, context: AdmissionContext, kind: Kind[Any], path: str
) -> None:
    version = next(iter(kind.versions))

    @kopf.on.validate(kind.group, version, kind.plural, id=path, registry=found)
    async def judge(warnings: list[str], **request: Any) -> None:
        edit = (request["operation"], request["new"], request["old"])
        _raise_refusals(await _allow_on_error(context.queue, kind, *edit), warnings)


def _register_pod_groups(found: kopf.OperatorRegistry) -> None:
    kind = KAI_POD_GROUPS
    version = next(iter(kind.versions))

    @kopf.on.validate(kind.group, version, kind.plural, id=KAI_POD_GROUP_RULES, registry=found)
    async def judge(warnings: list[str], **request: Any) -> None:
        if request["new"] is not None:
            edit = (request["new"], request["old"])
            _raise_refusals(await _allow_on_error(_judge_pod_group, *edit), warnings)


async def _judge_pod_group(new: Body, old: Body | None) -> AdmissionVerdict:
    before = None if old is None else _decode(KAI_POD_GROUPS, old)
    return judge_pod_group(_decode(KAI_POD_GROUPS, new), before)


async def _allow_on_error(
    handle: Callable[P, Awaitable[T]], *given: P.args, **named: P.kwargs
) -> T | None:
    """The result of ``handle``; None on an error, which admits the object."""
    try:
        return await handle(*given, **named)
    except (ApiError, ValueError) as error:
        log.warning("admitted without review: %s", error)
    except Exception:  # kopf would refuse the object for it
        log.exception("admitted without review: internal error")
    return None


def _raise_refusals(verdict: AdmissionVerdict | None, warnings: list[str]) -> None:
    if verdict is None:
        return
    warnings.extend(_first(verdict.warnings))
    if verdict.refusals:
        text = "; ".join(_first(verdict.refusals))
        log.info("refused: %s", text)
        raise kopf.AdmissionError(text, code=REFUSED_CODE)


def _first(texts: Sequence[str]) -> Iterator[str]:
    yield from texts[:MAX_NAMED]
    if len(texts) > MAX_NAMED:
        yield f"and {len(texts) - MAX_NAMED} more"


def _spec(kind: Kind[Any], body: Body) -> QueueInfo:
    return spec_of_queue(_decode(kind, body))


def _decode(kind: Kind[K], body: Body) -> K:
    return kind.at().decode(msgspec.json.encode(dict(body)))
