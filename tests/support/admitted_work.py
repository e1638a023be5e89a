"""Work that a tenant has on nodes, formed into gangs in every way, and what it may edit of it."""

import copy

from kai_py.grouping.admitted import ADMITTED_KEY
from tests.support.cluster.api import Document
from tests.support.poison.document import QUEUE, document
from tests.support.poison.process import Process

QUEUES = "scheduling.kai.io/v1alpha1"
GROUP, MIN = "scheduling.kai.io/pod-group", "scheduling.kai.io/min-available"
NATIVE = "scheduling.k8s.io/v1alpha3"
TASKS = "yunikorn.apache.org/task-groups"
WAYS = (
    "job",
    "ours",
    "kai",
    "plugin",
    "volcano",
    "yunikorn",
    "native",
    "composite",
    "template",
    "grove",
    "kueue",
    "queued",
)
"""``template``: a Workload of 1.35; ``kueue``: plain pods; ``queued``: a Job that Kueue manages."""
GPUS = 2 * len(WAYS)
TENANT, OWNER = "mine", "owner"


def pod(name: str, queue: str, *, labels=None, annotations=None, meta=None, **spec) -> Document:
    metadata = {
        "annotations": {QUEUE: queue, **(annotations or {})},
        "labels": labels or {},
        **(meta or {}),
    }
    gpu = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    whole = {"schedulerName": "kai-scheduler", "containers": [gpu], **spec}
    return document(
        "v1", "Pod", name, queue, meta=metadata, spec=whole, status={"phase": "Pending"}
    )


def owned_by(api_version: str, kind: str, name: str) -> Document:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "controller": True}
    return {"ownerReferences": [{**reference, "uid": f"uid-{kind}-{name}"}]}


def marks(way: str) -> Document:
    """What of a pod makes it one of the gang that is formed in this way."""
    return {
        "job": {"meta": owned_by("batch/v1", "Job", "job")},
        "ours": {"annotations": {GROUP: "ours", MIN: "2"}},
        "kai": {"annotations": {"pod-group-name": "kai"}},
        "plugin": {"labels": {"scheduling.x-k8s.io/pod-group": "plugin"}},
        "volcano": {"annotations": {"scheduling.k8s.io/group-name": "volcano"}},
        "yunikorn": {
            "annotations": {
                "yunikorn.apache.org/task-group-name": "a",
                "applicationId": "app",
                TASKS: '[{"name": "a", "minMember": 2}]',
            }
        },
        "native": {"schedulingGroup": {"podGroupName": "native"}},
        "composite": {"schedulingGroup": {"podGroupName": "composite"}},
        "template": {"workloadRef": {"name": "template", "podGroup": "a"}},
        "grove": {"labels": {"grove.io/podgang": "grove", "grove.io/podclique": "grove-a"}},
        "kueue": {
            "labels": {"kueue.x-k8s.io/pod-group-name": "kueue"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
        },
        "queued": {
            "meta": owned_by("batch/v1", "Job", "queued"),
            "labels": {"kueue.x-k8s.io/managed": "true"},
        },
    }[way]


def groups() -> list[Document]:
    annotations = {"annotations": {QUEUE: TENANT}}
    of = lambda version, name, **spec: document(  # noqa: E731
        version, "PodGroup", name, TENANT, meta=copy.deepcopy(annotations), spec=spec
    )
    job = lambda name, labels: document(  # noqa: E731
        "batch/v1",
        "Job",
        name,
        TENANT,
        meta=copy.deepcopy(annotations) | {"labels": labels},
        spec={"parallelism": 2, "completions": 2, "template": {"spec": {}}},
    )
    gang = {"gang": {"minCount": 2}}
    below = {"parentCompositePodGroupName": "above"}
    return [
        job("job", {}),
        job("queued", {"kueue.x-k8s.io/queue-name": "theirs"}),
        of("scheduling.run.ai/v2alpha2", "kai", minMember=2, queue=TENANT),
        of("scheduling.x-k8s.io/v1alpha1", "plugin", minMember=2),
        of("scheduling.volcano.sh/v1beta1", "volcano", minMember=2),
        of(NATIVE, "native", schedulingPolicy=gang),
        of(NATIVE, "composite", schedulingPolicy=gang, **below),
        document(
            NATIVE,
            "CompositePodGroup",
            "above",
            TENANT,
            meta=copy.deepcopy(annotations),
            spec={"schedulingPolicy": {"gang": {"minGroupCount": 1}}},
        ),
        document(
            "scheduling.k8s.io/v1alpha1",
            "Workload",
            "template",
            TENANT,
            meta=copy.deepcopy(annotations),
            spec={"podGroups": [{"name": "a", "policy": gang}]},
        ),
        document(
            "scheduler.grove.io/v1alpha1",
            "PodGang",
            "grove",
            TENANT,
            meta=copy.deepcopy(annotations),
            spec={"podgroups": [{"name": "grove-a", "minReplicas": 2}]},
        ),
    ]


def world(deserved: int = 0) -> list[Document]:
    """A full node, of which the tenant deserves some GPUs and the owner the rest."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    ready = [{"type": "Ready", "status": "True"}]
    return [
        document("v1", "Node", "n0", status={"allocatable": amounts, "conditions": ready}),
        document(QUEUES, "Queue", TENANT, spec={"deservedGPUs": deserved, "maxGPUs": GPUS}),
        document(QUEUES, "Queue", OWNER, spec={"deservedGPUs": GPUS - deserved}),
        document("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000),
    ]


def bind(process: Process, pods: list[Document]) -> list[Document]:
    """The pods as they are on their nodes, with their records."""
    process.put(*pods)
    plan = process.cycle()
    placed = {p.pod.name: (p.node, gang.terms(p)) for gang in plan.placements for p in gang.pods}
    assert len(placed) == len(pods), plan.unplaced
    for each in pods:
        node, terms = placed[each["metadata"]["name"]]
        each["spec"]["nodeName"] = node
        each["metadata"]["annotations"][ADMITTED_KEY] = terms.text()
        each["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    process.put(*pods)
    return pods


def admitted_work() -> list[Document]:
    """All that the tenant has, with its pods on the node."""
    process = Process()
    process.put(*world(), *groups())
    pods = [pod(f"{way}-{n}", TENANT, **marks(way)) for way in WAYS for n in range(2)]
    return [*groups(), *bind(process, pods)]


PATHS: dict[str, tuple[object, ...]] = {
    "metadata.ownerReferences": (
        None,
        *(
            owned_by(version, kind, name)["ownerReferences"]
            for version, kind, name in (
                ("batch/v1", "Job", "job"),
                ("batch/v1", "Job", "missing"),
                ("jobset.x-k8s.io/v1alpha2", "JobSet", "missing"),
                ("kubeflow.org/v1", "TFJob", "missing"),
                ("scheduling.x-k8s.io/v1alpha1", "PodGroup", "plugin"),
                ("v1", "Pod", "ours-0"),
                ("apps/v1", "ReplicaSet", "missing"),
            )
        ),
    ),
    "metadata.finalizers": (["example.com/keep"],),
    "metadata.labels": (
        marks("plugin")["labels"],
        {},
        {"priorityClassName": "high"},
        {"kai.scheduler/queue": OWNER},
        {"kai.scheduler/subgroup-name": "a"},
        marks("grove")["labels"],
        {"grove.io/podgang": "missing", "grove.io/podclique": "grove-a"},
        {"grove.io/podgang": "grove", "grove.io/podclique": "grove-b"},
        marks("kueue")["labels"],
        {"kueue.x-k8s.io/queue-name": "theirs", "kueue.x-k8s.io/managed": "true"},
        {"kueue.x-k8s.io/tas": "true"},
    ),
}
EDITS: dict[str, dict[str, tuple[object, ...]]] = {
    "Pod": {
        "spec.tolerations": ([{"operator": "Exists"}],),
        "spec.activeDeadlineSeconds": (1, 2**31 - 1),
        "spec.terminationGracePeriodSeconds": (1, 2**31 - 1),
        **{
            f"metadata.annotations|{key}": values
            for key, values in {
                GROUP: ("ours", "new"),
                MIN: (None, "0", str(GPUS)),
                "pod-group-name": (None, "kai", "missing"),
                "scheduling.k8s.io/group-name": (None, "volcano", "missing"),
                "yunikorn.apache.org/task-group-name": (None, "a", "b"),
                "applicationId": ("app", "other"),
                TASKS: (
                    None,
                    "[]",
                    '[{"name": "b", "minMember": 14}]',
                    '[{"name": "a", "minMember": 7}, {"name": "b", "minMember": 7}]',
                ),
                "kai.scheduler/ignore-workload-api": ("true",),
                "kueue.x-k8s.io/pod-group-total-count": (None, "0", "1", str(GPUS), "x"),
                "volcano.sh/task-spec": ("a",),
            }.items()
        },
    },
    "Job": {
        "spec.parallelism": (0, 1, GPUS, 1001, 2**31 - 1),
        "spec.completions": (1, GPUS, 2**31 - 1),
        "spec.suspend": (True,),
        "spec.backoffLimit": (0,),
        "spec.activeDeadlineSeconds": (1, 2**31 - 1),
        "spec.podFailurePolicy": ({"rules": [{"action": "FailJob"}]},),
    },
    "PodGroup": {
        "spec.minMember": (0, 1, GPUS, 2**31 - 1),
        "spec.queue": (OWNER, "missing", ""),
        "spec.priorityClassName": ("high", "missing"),
        "spec.priority": (1000, -1),
        "spec.preemptionPolicy": ("PreemptLowerPriority", "Never"),
        "spec.preemptibility": ("non-preemptible", "semi-preemptible"),
        "spec.stalenessGracePeriod": ("-1s", "100000h"),
        "spec.preemptionDelay": ("0s", "100000h"),
        "spec.disruptionMode": ({"all": {}}, "PodGroup", {"single": {}}),
        "spec.schedulingPolicy": (
            {"basic": {}},
            {"gang": {"minCount": GPUS}},
            {"gang": {"minCount": 2**31 - 1}},
        ),
        "spec.parentCompositePodGroupName": ("missing", "native"),
        "spec.schedulingConstraints": ({"topology": [{"key": "zone"}]},),
        "spec.subGroups": (
            [{"name": "a", "minMember": GPUS}],
            [{"name": "a", "minMember": 7}, {"name": "b", "minMember": 7}],
        ),
        "spec.minTaskMember": ({"a": 7, "b": 7}, {"a": GPUS}),
        "spec.networkTopology": ({"mode": "hard", "highestTierAllowed": 1},),
        "status": ({"phase": "Running"}, {}),
    },
    "CompositePodGroup": {
        "spec.schedulingPolicy": (
            {"basic": {}},
            {"gang": {"minGroupCount": 7}},
            {"gang": {"minGroupCount": 2**31 - 1}},
        ),
        "spec.parentCompositePodGroupName": ("missing", "above"),
        "spec.priorityClassName": ("high", "missing"),
        "spec.priority": (1000, -1),
        "spec.disruptionMode": ({"all": {}}, {"single": {}}),
        "spec.schedulingConstraints": ({"topology": [{"key": "zone"}]},),
    },
    "Workload": {
        "spec.podGroups": (
            [],
            [{"name": "a", "policy": {"basic": {}}}],
            [{"name": "a", "policy": {"gang": {"minCount": GPUS}}}],
            [{"name": "a", "policy": {"gang": {"minCount": 2**31 - 1}}}],
            [{"name": "b", "policy": {"gang": {"minCount": 1}}}],
        ),
        "spec.controllerRef": ({"apiGroup": "batch", "kind": "Job", "name": "job"},),
    },
    "PodGang": {
        "spec.podgroups": (
            [],
            [{"name": "grove-a", "minReplicas": 0}],
            [{"name": "grove-a", "minReplicas": GPUS}],
            [{"name": "grove-a", "minReplicas": 2**31 - 1}],
            [{"name": "grove-a", "minReplicas": 1}, {"name": "grove-b", "minReplicas": 7}],
        ),
        "spec.priorityClassName": ("high", "missing"),
        "spec.terminationDelay": ("0s", "100000h"),
        "spec.topologyConstraint": ({"packConstraint": {"required": "zone"}},),
        "spec.topologyConstraintGroupConfigs": (
            [{"name": "g", "podGroupNames": ["grove-a", "grove-b"]}],
        ),
        "spec.reuseReservationRef": ({"name": "missing", "namespace": OWNER},),
    },
}
NOTES = {
    "scheduling.kai.io/preemptibility": ("non-preemptible", "semi-preemptible"),
    "scheduling.kai.io/on-eviction": ("suspend", "evict"),
    "scheduling.kai.io/expected-runtime": ("1s", "100h"),
    "scheduling.kai.io/on-pod-loss": ("restart", "replace"),
    QUEUE: (OWNER, "missing", None),
}
for _of in EDITS.values():
    _of |= PATHS | {f"metadata.annotations|{key}": values for key, values in NOTES.items()}


def write(each: Document, path: str, value: object) -> None:
    """Set the field, or remove it."""
    path, _, key = path.partition("|")
    *above, last = [*path.split("."), *([key] if key else [])]
    holder = each
    for step in above:
        holder = holder.setdefault(step, {})
    if value is None:
        holder.pop(last, None)
    else:
        holder[last] = copy.deepcopy(value)
