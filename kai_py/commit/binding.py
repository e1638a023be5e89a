"""Binding of a pod: what is written before it, and what a refusal means.

``POST pods/NAME/binding`` with the pod's uid and version: the server refuses a pod that is bound
already, has changed or been recreated, is being deleted or is gated, all with 409. Reading the pod
tells these cases apart, and shows whether an attempt without an answer succeeded after all. As long
as it can't be read the outcome is unknown, which is no failure: the pod may be on its node.

An attempt without an answer may also arrive later. A binding has therefore failed only once the pod
has a newer version, which refuses all that are under way (``commit.pod_state.fence_pod``).

The nodes of a gang are checked just before its first binding (``node_problem``): making devices
ready may take minutes, and a pod that is bound to a node that has been removed is lost, with the
rest of its gang. Conditions that already existed when the plan was made are not judged again, as a
pod may tolerate them.

A pod that gets a share of a GPU has the GPU written on it first, in labels and annotations in KAI's
format: they are there before it starts, it can read them by the downward API, and a restarted
scheduler finds on every running pod what is allocated to it.

The terms with which the pod was admitted are recorded on it by the binding itself: it takes no
further request, and no pod is bound without them (``grouping.admitted``).

Volume claims with WaitForFirstConsumer get the node written on them, as kube-scheduler does; where
there is no provisioner, the chosen volume is bound to its claim. The kubelet waits for both.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct

from kai_py.api.gpu_reservation import VISIBLE_GPUS
from kai_py.api.gpu_share import shared_gpu_metadata
from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.node import HARD_EFFECTS, Node
from kai_py.api.records.storage import SELECTED_NODE
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.pod_state import (
    PodReading,
    ReadState,
    fence_pod,
    fence_until_known,
    read_pod_state,
)
from kai_py.commit.retry import TRANSIENT
from kai_py.grouping.admitted import ADMITTED_KEY, Terms
from kai_py.plan.plan import Placement
from kai_py.snapshot.nodes import is_ready
from kai_py.watch.errors import ApiError, Conflict, Invalid, NotFound
from kai_py.watch.kinds import VOLUME_CLAIMS, VOLUMES

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a PersistentVolume: its claim was chosen by a controller, not by a user."""

FindNode = Callable[[str], Node | None]
"""A node as the mirror shows it now, None if it does not exist."""


class BindingOutcome(StrEnum):
    """Outcome of a binding; the values are metric labels."""

    BOUND = "bound"
    DELETED = "deleted"
    BOUND_ELSEWHERE = "bound_elsewhere"
    FAILED = "failed"
    """Proven to be on no node, and not to get there by what was sent."""
    UNKNOWN = "unknown"
    """It is not known yet whether the pod is bound; ``settle`` finds out."""


class BindingResult(Struct, frozen=True):
    """The outcome of a binding; ``reason`` is a sentence, empty if the pod was bound."""

    pod: PodRef
    node: str
    outcome: BindingOutcome
    reason: str = ""


async def bind(
    access: ApiAccess,
    placement: Placement,
    known: Pod | None = None,
    terms: Terms | None = None,
    visible_gpus: str = "",
) -> BindingResult:
    """Bind a pod to its node, idempotently, and record its terms; never raises ApiError.

    ``known``: the pod as the mirror has it, read if None. ``visible_gpus``: the environment value
    by which its container gets its shared GPUs.

    Without an answer, and without a read that shows its effect, the outcome is UNKNOWN.
    """
    pod, node = placement.pod, placement.node
    failures, reason = 0, ""
    version = known.metadata.resource_version if known is not None else ""
    record = None if terms is None else {ADMITTED_KEY: terms.text()}
    while failures < access.retry.attempts:
        if not version:
            reading = await read_pod_state(access, pod)
            if (outcome := outcome_of(reading, placement)) is not None:
                return outcome
            version = _version(reading)
        try:
            version = await _prepare(access, placement, visible_gpus) or version
            await _post(access, placement, version, record)
        except (NotFound, Conflict, Invalid) as refusal:
            reading = await read_pod_state(access, pod)
            if (outcome := outcome_of(reading, placement)) is not None:
                return outcome
            failure: ApiError = refusal
            sent, version = version, _version(reading)
            if version != sent:
                failures, reason = failures + 1, str(refusal)
                continue  # the pod was only changed, so there is no need to wait
            if isinstance(refusal, Invalid):
                reason = str(refusal)
                break  # repeated, it would be refused again, and keep the capacity meanwhile
        except TRANSIENT as error:
            failure = error
        except ApiError as error:
            # An earlier attempt may have succeeded: only a read shows that.
            reason = str(error)
            break
        else:
            return BindingResult(pod, node, BindingOutcome.BOUND)
        failures += 1
        reason = str(failure)
        await access.retry.sleep(failures, failure)
    outcome = outcome_of(await fence_pod(access, pod), placement)
    return outcome or BindingResult(pod, node, BindingOutcome.FAILED, reason)


async def settle(access: ApiAccess, placement: Placement, result: BindingResult) -> BindingResult:
    """The certain outcome of a binding: if it is unknown, the pod is read until it is not."""
    if result.outcome is not BindingOutcome.UNKNOWN:
        return result
    reading = await fence_until_known(access, placement.pod, access.settle_pause)
    settled = outcome_of(reading, placement)
    pod, node = placement.pod, placement.node
    return settled or BindingResult(pod, node, BindingOutcome.FAILED, result.reason)


async def _prepare(access: ApiAccess, placement: Placement, visible_gpus: str) -> str:
    """Write what must be there before the binding; the pod's version if it was written."""
    version = ""
    if placement.gpus:
        version = await _write_gpu_share(access, placement, visible_gpus)
    for claim in placement.provision:
        await _annotate_selected_node(access, claim, placement)
    for holder, volume in placement.volumes:
        await _bind_volume(access, volume, holder)
    return version


async def _post(
    access: ApiAccess, placement: Placement, version: str, record: Mapping[str, str] | None
) -> None:
    pod = placement.pod
    await access.call(
        lambda: access.client.bind(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            node=placement.node,
            version=version,
            annotations=record,
        )
    )


async def _write_gpu_share(access: ApiAccess, placement: Placement, visible: str) -> str:
    """Write the pod's GPU shares on it, and remove those of an earlier attempt; its version."""
    pod = placement.pod
    former, _ = shared_gpu_metadata(placement.former_gpus)
    labels, annotations = shared_gpu_metadata(placement.gpus)
    body = {
        "metadata": {
            "uid": pod.uid,
            # None deletes a label in a merge patch; the pod's own labels override the former ones.
            "labels": {**dict.fromkeys(former), **labels},
            "annotations": {**annotations, VISIBLE_GPUS: visible or None},
        }
    }
    written = await access.patch_pod(pod, body)
    return written.metadata.resource_version


async def _annotate_selected_node(access: ApiAccess, claim: str, placement: Placement) -> None:
    """Ask the provisioner for the volume of a WaitForFirstConsumer claim on the pod's node."""
    body = {"metadata": {"annotations": {SELECTED_NODE: placement.node}}}
    namespace = placement.pod.namespace
    await access.call(
        lambda: access.client.patch(VOLUME_CLAIMS.at(), claim, body, namespace=namespace)
    )


async def _bind_volume(access: ApiAccess, name: str, claim: ClaimRef) -> None:
    """Bind a volume to a claim; raises ApiError when another claim has it.

    The volume controller of Kubernetes completes the binding on the claim's side.
    """
    volume = await access.call(lambda: access.client.get(VOLUMES.at(), name))
    bound_claim = volume.spec.claim_ref
    if bound_claim is not None and bound_claim.uid == claim.uid:
        return
    if bound_claim is not None:
        raise ApiError(
            f"volume {name} was bound to claim {bound_claim.namespace}/{bound_claim.name}"
        )
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
    }
    body = {
        "metadata": {
            # The only guard against two schedulers that choose one volume in the same moment.
            "resourceVersion": volume.metadata.resource_version,
            "annotations": {BOUND_BY_CONTROLLER: "yes"},
        },
        "spec": {"claimRef": reference},
    }
    await access.call(lambda: access.client.patch(VOLUMES.at(), name, body))


def _version(reading: PodReading) -> str:
    return reading.pod.metadata.resource_version if reading.pod is not None else ""


def outcome_of(reading: PodReading, placement: Placement) -> BindingResult | None:
    """The outcome that a reading of the pod proves; None when it may still be bound."""
    pod, node = placement.pod, placement.node
    if reading.state is ReadState.UNKNOWN:
        return BindingResult(pod, node, BindingOutcome.UNKNOWN, reading.problem)
    if reading.pod is None:
        return BindingResult(pod, node, BindingOutcome.DELETED, f"pod {pod} was deleted")
    return observed_outcome(reading.pod, placement)


def observed_outcome(seen: Pod, placement: Placement) -> BindingResult | None:
    """The outcome that the pod as read proves; None when it may still be bound."""
    pod, node = placement.pod, placement.node
    if seen.metadata.uid != pod.uid:
        reason = f"pod {pod} was deleted and recreated"
        return BindingResult(pod, node, BindingOutcome.DELETED, reason)
    if seen.spec.node_name == node:
        return BindingResult(pod, node, BindingOutcome.BOUND)
    if seen.spec.node_name:
        reason = f"pod {pod} was bound to node {seen.spec.node_name} by another scheduler"
        return BindingResult(pod, node, BindingOutcome.BOUND_ELSEWHERE, reason)
    if seen.metadata.deletion_timestamp is not None or is_finished(seen):
        return BindingResult(pod, node, BindingOutcome.DELETED, f"pod {pod} is ending")
    if seen.spec.scheduling_gates:
        reason = f"pod {pod} has scheduling gates"
        return BindingResult(pod, node, BindingOutcome.FAILED, reason)
    return None


def node_problem(name: str, planned: Node | None, current: Node | None) -> str:
    """Why no pod should be bound to the node any more, "" if nothing has changed for the worse."""
    if planned is None or current is None:
        return f"node {name} does not exist any more"
    if current.metadata.uid != planned.metadata.uid:
        return f"node {name} was deleted and recreated"
    if current.metadata.deletion_timestamp is not None:
        return f"node {name} is being deleted"
    if is_ready(planned) and not is_ready(current):
        return f"node {name} is not ready any more"
    if current.spec.unschedulable and not planned.spec.unschedulable:
        return f"node {name} was cordoned"
    added = [
        taint
        for taint in current.spec.taints
        if taint.effect in HARD_EFFECTS and taint not in planned.spec.taints
    ]
    return f"node {name} got the taint {added[0].key}:{added[0].effect}" if added else ""
