"""How is a pod bound, and what does a refused binding mean?

``POST pods/NAME/binding`` with the pod's uid: the server refuses a pod that is bound already, is
another incarnation, is being deleted or is gated, all with 409. Reading the pod tells them apart,
and also tells whether an attempt without an answer had succeeded after all.

A pod that gets a part of a GPU is first told of which, in labels and annotations as KAI writes
them. So they are there before it starts, it can read them by the downward API, and a scheduler that
starts afresh finds on every running pod what it holds.

Volume claims that wait for their first consumer are told its node, as kube-scheduler does; where
nobody provisions, the chosen volume is told its claim. The kubelet waits until they are bound.
"""

from dataclasses import dataclass
from enum import StrEnum

from kai_py.api.gpu_share import shared_gpu_metadata
from kai_py.api.records.core import Pod
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.retry import TRANSIENT
from kai_py.plan.plan import Placement
from kai_py.watch.errors import ApiError, Conflict, Invalid, NotFound
from kai_py.watch.kinds import VOLUME_CLAIMS, VOLUMES

FINISHED = ("Succeeded", "Failed")
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a PersistentVolumeClaim: the node its provisioner is to make the volume for."""
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""On a PersistentVolume: no user chose its claim."""


class BindingOutcome(StrEnum):
    """What became of a binding; also the metric label."""

    BOUND = "bound"
    VANISHED = "vanished"
    ELSEWHERE = "elsewhere"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BindingResult:
    """A binding's outcome; ``reason`` is a sentence unless the pod was bound."""

    pod: PodRef
    node: str
    outcome: BindingOutcome
    reason: str = ""


async def bind(access: ApiAccess, placement: Placement) -> BindingResult:
    """Bind a pod to its node, once, whatever happened to earlier attempts."""
    pod, node = placement.pod, placement.node
    failures, reason = 0, ""
    while failures < access.retry.attempts:
        try:
            if placement.gpus:
                await _write_gpu_share(access, placement)
            for claim in placement.provision:
                await _annotate_selected_node(access, claim, placement)
            for holder, volume in placement.volumes:
                await _bind_volume(access, volume, holder)
            await access.call(
                lambda: access.client.bind(
                    namespace=pod.namespace, pod=pod.name, uid=pod.uid, node=node
                )
            )
        except (NotFound, Conflict, Invalid) as refusal:
            settled = await _read_outcome(access, placement)
            if settled is not None:
                return settled
            failure: ApiError = refusal
        except TRANSIENT as error:
            failure = error
        except ApiError as error:
            return BindingResult(pod, node, BindingOutcome.FAILED, str(error))
        else:
            return BindingResult(pod, node, BindingOutcome.BOUND)
        failures += 1
        reason = str(failure)
        await access.retry.sleep(failures, failure)
    settled = await _read_outcome(access, placement)
    return settled or BindingResult(pod, node, BindingOutcome.FAILED, reason)


async def _write_gpu_share(access: ApiAccess, placement: Placement) -> None:
    """Write the pod's parts of GPUs on it, and take away what an earlier attempt wrote."""
    pod = placement.pod
    former, _ = shared_gpu_metadata(placement.former_gpus)
    labels, annotations = shared_gpu_metadata(placement.gpus)
    body = {
        "metadata": {
            "uid": pod.uid,
            "labels": {**dict.fromkeys(former), **labels},
            "annotations": annotations,
        }
    }
    await access.call(
        lambda: access.client.patch(access.pods, pod.name, body, namespace=pod.namespace)
    )


async def _annotate_selected_node(access: ApiAccess, claim: str, placement: Placement) -> None:
    """Have the volume of a claim that waits for its first consumer made for the pod's node."""
    body = {"metadata": {"annotations": {SELECTED_NODE: placement.node}}}
    namespace = placement.pod.namespace
    await access.call(
        lambda: access.client.patch(VOLUME_CLAIMS.at(), claim, body, namespace=namespace)
    )


async def _bind_volume(access: ApiAccess, name: str, claim: ClaimRef) -> None:
    """Give a volume to a claim, unless another has it; Kubernetes' volume controller binds both."""
    volume = await access.call(lambda: access.client.get(VOLUMES.at(), name))
    holder = volume.spec.claim_ref
    if holder is not None and holder.uid == claim.uid:
        return
    if holder is not None:
        raise ApiError(f"volume {name} was given to claim {holder.namespace}/{holder.name}")
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
    }
    body = {
        "metadata": {
            "resourceVersion": volume.metadata.resource_version,
            "annotations": {BOUND_BY_CONTROLLER: "yes"},
        },
        "spec": {"claimRef": reference},
    }
    await access.call(lambda: access.client.patch(VOLUMES.at(), name, body))


async def _read_outcome(access: ApiAccess, placement: Placement) -> BindingResult | None:
    pod, node = placement.pod, placement.node
    try:
        seen = await access.read_pod(pod)
    except NotFound:
        return BindingResult(pod, node, BindingOutcome.VANISHED, f"pod {pod} was deleted")
    except ApiError as error:
        return BindingResult(pod, node, BindingOutcome.FAILED, str(error))
    return observed_outcome(seen, placement)


def observed_outcome(seen: Pod, placement: Placement) -> BindingResult | None:
    """The outcome that the pod as read proves; None when it may still be bound."""
    pod, node = placement.pod, placement.node
    if seen.metadata.uid != pod.uid:
        reason = f"pod {pod} was deleted and made again"
        return BindingResult(pod, node, BindingOutcome.VANISHED, reason)
    if seen.spec.node_name == node:
        return BindingResult(pod, node, BindingOutcome.BOUND)
    if seen.spec.node_name:
        reason = f"pod {pod} was bound to node {seen.spec.node_name} by somebody else"
        return BindingResult(pod, node, BindingOutcome.ELSEWHERE, reason)
    if seen.metadata.deletion_timestamp is not None or seen.status.phase in FINISHED:
        return BindingResult(pod, node, BindingOutcome.VANISHED, f"pod {pod} is ending")
    if seen.spec.scheduling_gates:
        reason = f"pod {pod} has scheduling gates"
        return BindingResult(pod, node, BindingOutcome.FAILED, reason)
    return None


async def is_unbound(access: ApiAccess, pod: PodRef) -> bool:
    """Whether it is certain that this pod is on no node."""
    try:
        seen = await access.read_pod(pod)
    except NotFound:
        return True
    except ApiError:
        return False
    return seen.metadata.uid != pod.uid or not seen.spec.node_name
