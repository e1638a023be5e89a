"""ValidatingAdmissionPolicies: what others may not write, and what the scheduler's account may.

The API server evaluates them itself, so they hold while no webhook and no scheduler runs. RBAC
can't say which fields of a pod may be written; these do, in both directions:

pods             only the scheduler writes its record on a pod, and the shared GPU of a running
                 one; its pods are not created with a node
jobs             only the scheduler marks a Job as suspended by it
reservations     only the scheduler and KAI create pods that keep a GPU open for sharing
claims           only Kubernetes and the scheduler release a claim that pods use: without its
                 finalizer it could be deleted, and its devices would count as free
bindings         the scheduler's account writes its record with a binding, and nothing else
account          the scheduler's account writes its own labels, annotations, gate and conditions,
                 and nothing else of pods, Jobs, volumes and claims
"""

import json
from collections.abc import Mapping, Sequence

from kai_py.api.autoscaling import PROMISED_KEY, PROTECTING_ANNOTATIONS
from kai_py.api.gpu_reservation import VISIBLE_GPUS
from kai_py.api.gpu_share import GPU_GROUP, GPU_GROUP_PREFIX, GPU_INDEX, RECEIVED_TYPE, RESERVATION
from kai_py.api.queue import (
    ADMISSION_GATE,
    CHECKPOINT_BY_KEY,
    WITHDRAWN_BINDINGS,
    WITHDRAWN_RELEASES,
)
from kai_py.api.records.job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.api.records.resource import (
    DELETE_PROTECTION_FINALIZER,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
)
from kai_py.deploy.parts import Document, named_object
from kai_py.grouping.admitted import ADMITTED_KEY

API_VERSION = "admissionregistration.k8s.io/v1"
KAI_NAMESPACES = ("kai-scheduler", RESERVATION)
"""Namespaces whose service accounts create KAI's reservation pods."""

OWN_ANNOTATIONS = {
    "pods": (
        GPU_INDEX,
        RECEIVED_TYPE,
        VISIBLE_GPUS,
        WITHDRAWN_BINDINGS,
        CHECKPOINT_BY_KEY,
        "autoscaling.x-k8s.io/consume-provisioning-request",
        "autoscaling.x-k8s.io/provisioning-class-name",
    ),
    "nodes": (PROMISED_KEY, *PROTECTING_ANNOTATIONS),
    "jobs": (SUSPENDED_BY_KEY, SUSPENDED_AT_KEY),
    "persistentvolumeclaims": ("volume.kubernetes.io/selected-node",),
    "persistentvolumes": ("pv.kubernetes.io/bound-by-controller",),
    "podgroups": (
        "kai.scheduler/stale-podgroup-timestamp",
        "kai.scheduler/last-eviction-timestamp",
    ),
    "resourceclaims": (WITHDRAWN_RELEASES,),
}
"""Annotations that the scheduler writes, by resource."""

OWN_SPEC = {
    "pods": ("schedulingGates",),
    "jobs": ("suspend",),
    "persistentvolumes": ("claimRef",),
}
"""Fields of the spec that the scheduler writes."""

OWN_POD_STATUS = (
    "conditions",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
    "nominatedNodeName",
)
OWN_CONDITIONS = ("DisruptionTarget", "PodScheduled")
POD_WRITES = ("pods", "pods/status", "pods/resize", "pods/ephemeralcontainers")

UNPRIVILEGED = (
    "!('system:masters' in request.userInfo.?groups.orValue([])) && "
    "!(request.userInfo.username in ['system:kube-scheduler', 'system:kube-controller-manager']) "
    "&& !request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"
)
"""Whether the user is neither an administrator nor a part of Kubernetes."""

Validation = tuple[str, str]
"""A CEL expression that must be true, and the message where it is not."""

METADATA = {
    "annotations": "object.metadata.?annotations.orValue({})",
    "oldAnnotations": "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})",
    "labels": "object.metadata.?labels.orValue({})",
    "oldLabels": "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})",
}
"""Variables of metadata before and after; there is nothing before a creation."""

TOPOLOGY = "topology."
"""Prefix of labels that the API server itself copies from a node to a binding (KEP-4742)."""

HAS_METADATA = " || ".join(
    f"size(object.metadata.?{each}.orValue({{}})) > 0" for each in ("annotations", "labels")
)
"""Whether an object has any; bindings mostly have none."""

RESOURCE = "request.resource.resource"
PLACED = "object.spec.?nodeName.orValue('') != ''"
IS_GROUP = f"(k == '{GPU_GROUP}' || k.startsWith('{GPU_GROUP_PREFIX}'))"
"""Whether ``k`` is a label that names a shared GPU."""


def admission_policies(
    name: str, namespace: str, schedulers: Sequence[str], pool_label: str
) -> list[Document]:
    """The policies and their bindings.

    ``name``: of the scheduler's service account in ``namespace``; ``schedulers``: the names under
    which pods are its; ``pool_label``: the label that names the node pool of a pod.
    """
    account = f"system:serviceaccount:{namespace}:{name}"
    others = f"request.userInfo.username != '{account}'"
    itself = f"request.userInfo.username == '{account}'"
    pods = [_rule("", POD_WRITES, "CREATE", "UPDATE")]
    jobs = [_rule("batch", ("jobs", "jobs/status"), "CREATE", "UPDATE")]
    return [
        *_policy(f"{name}-pods", pods, others, METADATA, _pod_validations(schedulers, pool_label)),
        *_policy(f"{name}-jobs", jobs, others, METADATA, _job_validations()),
        *_policy(
            f"{name}-bindings",
            [_rule("", ("pods/binding", "bindings"), "CREATE")],
            f"{itself} && ({HAS_METADATA})",
            METADATA,
            _binding_validations(),
        ),
        *_policy(
            f"{name}-reservations", pods, others, METADATA, [_no_posing()], namespace=RESERVATION
        ),
        *_policy(
            f"{name}-claims",
            [_rule("resource.k8s.io", ("resourceclaims",), "UPDATE")],
            f"{others} && {UNPRIVILEGED}",
            {},
            [_kept_protection()],
        ),
        *_policy(
            f"{name}-account", _account_rules(), itself, ACCOUNT_VARIABLES, _account_validations()
        ),
    ]


def _policy(
    name: str,
    rules: list[Document],
    condition: str,
    variables: Mapping[str, str],
    validations: list[Validation],
    *,
    namespace: str = "",
) -> list[Document]:
    """``namespace``: the only one whose objects it is about; elsewhere nothing is evaluated."""
    own = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": rules,
            **({"namespaceSelector": own} if namespace else {}),
        },
        "matchConditions": [{"name": "user", "expression": condition}],
        "variables": [{"name": key, "expression": text} for key, text in variables.items()],
        "validations": [
            {"expression": text, "message": message, "reason": "Forbidden"}
            for text, message in validations
        ],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return [
        named_object(name, API_VERSION, "ValidatingAdmissionPolicy", spec=spec),
        named_object(name, API_VERSION, "ValidatingAdmissionPolicyBinding", spec=bound),
    ]


def _rule(group: str, resources: Sequence[str], *operations: str) -> Document:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": list(resources),
    }


def _pod_validations(schedulers: Sequence[str], pool_label: str) -> list[Validation]:
    kept = " && ".join(map(_kept, (GPU_INDEX, RECEIVED_TYPE, VISIBLE_GPUS)))
    same_group = _equal("variables.labels", "variables.oldLabels", but=f"!{IS_GROUP}")
    same_gpu = f"{kept} && {same_group}"
    names = json.dumps(schedulers)
    preset = f"{PLACED} && object.spec.?schedulerName.orValue('') in {names}"
    same_pool = f"variables.labels[?'{pool_label}'] == variables.oldLabels[?'{pool_label}']"
    return [
        (
            f"!({PLACED}) || {_kept(ADMITTED_KEY)}",
            f"annotation {ADMITTED_KEY} is written by the scheduler when it binds the pod, and "
            "cannot be changed",
        ),
        (
            f"oldObject == null || !({PLACED}) || ({same_gpu})",
            f"the GPU that a running pod shares is written by the scheduler: labels {GPU_GROUP}, "
            f"annotations {GPU_INDEX}, {RECEIVED_TYPE} and {VISIBLE_GPUS} cannot be changed",
        ),
        (
            f"oldObject == null || !({preset}) || {same_pool}",
            "the label of the node pool of a bound pod cannot be changed: it keeps its node",
        ),
        (
            f"oldObject != null || !({preset})",
            "spec.nodeName is chosen by the scheduler that spec.schedulerName names: leave it out",
        ),
    ]


def _binding_validations() -> list[Validation]:
    """A binding writes its labels and annotations on its pod."""
    return [
        (
            f"variables.labels.all(k, k.startsWith('{TOPOLOGY}')) && "
            f"variables.annotations.all(k, k == '{ADMITTED_KEY}')",
            f"the scheduler's account may write nothing with a binding but {ADMITTED_KEY}",
        ),
    ]


def _job_validations() -> list[Validation]:
    keys = json.dumps([SUSPENDED_BY_KEY, SUSPENDED_AT_KEY])
    kept = (
        "!(k in variables.annotations) || variables.annotations[?k] == variables.oldAnnotations[?k]"
    )
    return [
        (
            f"{keys}.all(k, {kept})",
            f"annotation {SUSPENDED_BY_KEY} is written by the scheduler; it may only be removed",
        )
    ]


def _no_posing() -> Validation:
    app = "variables.{}[?'app'].orValue('') == '" + RESERVATION + "'"
    poses = f"{app.format('labels')} && !({app.format('oldLabels')})"
    creators = " || ".join(
        f"request.userInfo.username.startsWith('system:serviceaccount:{each}:')"
        for each in KAI_NAMESPACES
    )
    return (
        f"!({poses}) || {creators}",
        f"only kai-py and KAI-Scheduler create pods with label app: {RESERVATION} in this "
        "namespace",
    )


def _kept_protection() -> Validation:
    finalizers = "{}.metadata.?finalizers.orValue([])"
    protected = f"'{DELETE_PROTECTION_FINALIZER}' in {finalizers}"
    return (
        "size(oldObject.?status.reservedFor.orValue([])) == 0 || "
        f"!({protected.format('oldObject')}) || {protected.format('object')}",
        f"finalizer {DELETE_PROTECTION_FINALIZER} cannot be removed while pods use the claim",
    )


def _account_rules() -> list[Document]:
    return [
        _rule("", ("pods", "pods/status"), "UPDATE"),
        _rule("", ("nodes", "persistentvolumeclaims", "persistentvolumes"), "UPDATE"),
        _rule("batch", ("jobs",), "UPDATE"),
        _rule("scheduling.run.ai", ("podgroups",), "UPDATE"),
        _rule("resource.k8s.io", ("resourceclaims",), "UPDATE", "DELETE"),
    ]


ACCOUNT_VARIABLES = {
    **{key: f"object == null ? {{}} : ({text})" for key, text in METADATA.items()},
    "ownAnnotations": f"{json.dumps(OWN_ANNOTATIONS)}[?{RESOURCE}].orValue([])",
    "ownFields": f"{json.dumps(OWN_SPEC)}[?{RESOURCE}].orValue([])",
    "spec": "object == null ? {} : dyn(object.?spec.orValue({}))",
    "oldSpec": "object == null ? {} : dyn(oldObject.?spec.orValue({}))",
    "isPodStatus": "request.?subResource.orValue('') == 'status'",
    "status": "variables.isPodStatus ? dyn(object.?status.orValue({})) : {}",
    "oldStatus": "variables.isPodStatus ? dyn(oldObject.?status.orValue({})) : {}",
}
"""What the validations of the account read; on deletion there is no object, only an old one."""


def _account_validations() -> list[Validation]:
    return [
        *_metadata_validations(),
        *_spec_validations(),
        *_status_validations(),
        _own_deletions(),
    ]


def _metadata_validations() -> list[Validation]:
    return [
        (
            _equal(
                "variables.labels",
                "variables.oldLabels",
                but=f"({RESOURCE} == 'pods' && {IS_GROUP})",
            ),
            f"the scheduler's account may write no labels but {GPU_GROUP} of pods",
        ),
        (
            _equal(
                "variables.annotations",
                "variables.oldAnnotations",
                but="k in variables.ownAnnotations",
            ),
            "the scheduler's account may write no annotations but its own",
        ),
        (
            "object == null || object.metadata.?ownerReferences == "
            "oldObject.metadata.?ownerReferences",
            "the scheduler's account may not change owners",
        ),
        (
            f"object == null || {RESOURCE} == 'resourceclaims' || "
            "object.metadata.?finalizers == oldObject.metadata.?finalizers",
            "the scheduler's account may write no finalizers but those of claims",
        ),
    ]


def _spec_validations() -> list[Validation]:
    gates = "{}[?'schedulingGates'].orValue([]).filter(g, g.name != '" + ADMISSION_GATE + "')"
    return [
        (
            _equal("variables.spec", "variables.oldSpec", but="k in variables.ownFields"),
            "the scheduler's account may change no spec but scheduling gates of pods, "
            "whether a Job is suspended, and the claim of an unclaimed volume",
        ),
        (
            f"{RESOURCE} != 'pods' || "
            f"{gates.format('variables.spec')} == {gates.format('variables.oldSpec')}",
            f"the scheduler's account may remove no scheduling gate but {ADMISSION_GATE}",
        ),
        (
            f"{RESOURCE} != 'persistentvolumes' || !('claimRef' in variables.oldSpec) || "
            "variables.spec[?'claimRef'] == variables.oldSpec[?'claimRef']",
            "the scheduler's account may not take a volume from its claim",
        ),
    ]


def _status_validations() -> list[Validation]:
    theirs = f"c.type in {json.dumps(OWN_CONDITIONS)}"
    new, old = (f"variables.{each}[?'conditions'].orValue([])" for each in ("status", "oldStatus"))
    return [
        (
            _equal(
                "variables.status", "variables.oldStatus", but=f"k in {json.dumps(OWN_POD_STATUS)}"
            ),
            f"the scheduler's account may write no status of pods but {', '.join(OWN_POD_STATUS)}",
        ),
        (
            f"{new}.all(c, {theirs} || c in {old}) && {old}.all(c, {theirs} || c in {new})",
            f"the scheduler's account may write no conditions but {' and '.join(OWN_CONDITIONS)}",
        ),
    ]


def _own_deletions() -> Validation:
    return (
        "object != null || '" + EXTENDED_RESOURCE_CLAIM_ANNOTATION + "' in "
        "oldObject.metadata.?annotations.orValue({})",
        "the scheduler's account may delete no claims but those that it created",
    )


def _kept(key: str) -> str:
    """Whether an annotation is as before."""
    return f"variables.annotations[?'{key}'] == variables.oldAnnotations[?'{key}']"


def _equal(new: str, old: str, *, but: str) -> str:
    """Whether two maps are equal; keys ``k`` for which ``but`` holds are not compared."""
    return f"{new}.all(k, {but} || {new}[?k] == {old}[?k]) && {old}.all(k, {but} || k in {new})"
