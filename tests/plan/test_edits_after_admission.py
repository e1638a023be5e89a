"""What tenants edit on running work, and on all that it refers to, gains them nothing.

A tenant runs a gang of two in each way to form one, most of it above its queue's share. Then it
edits what an API server lets it edit. The scheduler that saw the edits, and one that starts after
them, charge its queue as before and take all of the capacity back once its owner wants it.
"""

import copy
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai_py.grouping.admitted import ADMITTED_KEY, Terms, read_terms
from tests.support.cluster.api import Document
from tests.support.poison.document import QUEUE, document
from tests.support.poison.process import Process

QUEUES = "scheduling.kai.io/v1alpha1"
GROUP, MIN = "scheduling.kai.io/pod-group", "scheduling.kai.io/min-available"
TASKS = "yunikorn.apache.org/task-groups"
WAYS = ("job", "ours", "kai", "plugin", "volcano", "yunikorn", "native")
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
    }[way]


def groups() -> list[Document]:
    annotations = {"annotations": {QUEUE: TENANT}}
    of = lambda version, name, **spec: document(  # noqa: E731
        version, "PodGroup", name, TENANT, meta=copy.deepcopy(annotations), spec=spec
    )
    return [
        document(
            "batch/v1",
            "Job",
            "job",
            TENANT,
            meta=copy.deepcopy(annotations),
            spec={"parallelism": 2, "completions": 2, "template": {"spec": {}}},
        ),
        of("scheduling.run.ai/v2alpha2", "kai", minMember=2, queue=TENANT),
        of("scheduling.x-k8s.io/v1alpha1", "plugin", minMember=2),
        of("scheduling.volcano.sh/v1beta1", "volcano", minMember=2),
        of(
            "scheduling.k8s.io/v1alpha3",
            "native",
            schedulingPolicy={"gang": {"minCount": 2}},
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


@pytest.fixture(scope="module")
def admitted() -> list[Document]:
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


@st.composite
def edit(draw: Callable) -> tuple[str, str, str, object]:
    """What is edited: the kind, the prefix of the names, the field, and its value."""
    kind = draw(st.sampled_from(sorted(EDITS)))
    path = draw(st.sampled_from(sorted(EDITS[kind])))
    value = draw(st.sampled_from(EDITS[kind][path]))
    return kind, draw(st.sampled_from(("", *WAYS, "ours-0"))), path, value


def priorities(documents: list[Document]) -> dict[str, int]:
    """By pod, the priority with which it was admitted."""
    named = {
        each["metadata"]["name"]: each["metadata"]["annotations"]
        for each in documents
        if each["kind"] == "Pod"
    }
    return {name: read_terms(notes).priority for name, notes in named.items()}


def gains_nothing(process: Process, admitted: list[Document], deserved: int) -> None:
    """The queue is charged as before, and its owner can have all that is his."""
    process.cycle()
    snapshot = process.planner.freeze(process.now)
    assert snapshot.queue_allocated[TENANT]["gpu"] == GPUS
    assert not snapshot.queue_allocated.get(OWNER, {}).get("gpu")
    assert not snapshot.queue_non_preemptible.get(TENANT, {}).get("gpu")
    known = priorities(admitted)
    for gang in snapshot.gangs.values():
        assert gang.priority <= min(known[each.pod.name] for each in gang.bound)
    due = [pod(f"due-{n}", OWNER) for n in range(GPUS - deserved)]
    late = [pod(f"late-{n}", TENANT) for n in range(2)]
    process.put(*due, *late)
    plan = process.cycle()
    assert not plan.placements
    assert not [told for told in plan.set_aside if told.error], plan.set_aside
    given = {each.pod.name for each in plan.nominations}
    assert given == {each["metadata"]["name"] for each in due}, plan.unplaced
    assert len({each.pod.name for each in plan.evictions}) == GPUS - deserved


JOB_OF_2_TO_THE_31 = [
    ("Job", "", "spec.backoffLimit", 0),
    ("Job", "", "spec.completions", None),
    ("Job", "", "spec.parallelism", 2**31 - 1),
]
OWNED_BY_A_JOB = [
    ("Job", "", "spec.backoffLimit", 0),
    ("Pod", "", "metadata.ownerReferences", owned_by("batch/v1", "Job", "job")["ownerReferences"]),
]
IN_A_LARGE_GROUP = [
    *(
        ("Pod", "", f"metadata.annotations|{key}", value)
        for key, value in {
            "yunikorn.apache.org/task-group-name": "b",
            "applicationId": "app",
            TASKS: '[{"name": "b", "minMember": 14}]',
            "kai.scheduler/ignore-workload-api": "true",
            **dict.fromkeys((GROUP, "pod-group-name", "scheduling.k8s.io/group-name")),
        }.items()
    ),
    ("Pod", "", "metadata.labels", {}),
]


@settings(max_examples=25, deadline=None)
@given(
    edits=st.lists(edit(), min_size=1, max_size=4),
    deleted=st.sampled_from(("", *WAYS)),
    deserved=st.sampled_from((0, 2)),
)
@example(JOB_OF_2_TO_THE_31, "", 0)
@example(OWNED_BY_A_JOB, "", 0)
@example(IN_A_LARGE_GROUP, "", 2)
def test_no_edit_gains_capacity_priority_or_protection(admitted, edits, deleted, deserved):
    seen = Process()
    seen.put(*world(deserved), *copy.deepcopy(admitted))
    seen.cycle()
    after = copy.deepcopy(admitted)
    for kind, prefix, path, value in edits:
        for each in after:
            if each["kind"] == kind and each["metadata"]["name"].startswith(prefix):
                write(each, path, value)
    gone = [each for each in after if each["kind"] != "Pod" and each["metadata"]["name"] == deleted]
    seen.put(*after)
    seen.remove(*gone)
    gains_nothing(seen, admitted, deserved)
    restarted = Process()
    restarted.put(*world(deserved), *(each for each in after if each not in gone))
    gains_nothing(restarted, admitted, deserved)


GPU_CLASS = "gpu.nvidia.com"


def claim(name: str, pod_name: str, *, device: str = "") -> Document:
    """A claim for a GPU, of a pod by a template; allocated if ``device`` is named."""
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU_CLASS, "count": 1}}
    made = document(
        "resource.k8s.io/v1",
        "ResourceClaim",
        name,
        TENANT,
        meta=owned_by("v1", "Pod", pod_name),
        spec={"devices": {"requests": [request]}},
    )
    if device:
        result = {"request": "gpu", "driver": GPU_CLASS, "pool": "n0", "device": device}
        user = {"resource": "pods", "name": pod_name, "uid": f"uid-Pod-{pod_name}"}
        made["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    return made


def claiming(each: Document, name: str) -> Document:
    each["spec"]["containers"] = [{"name": "main"}]
    each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    each["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]
    return each


def devices(count: int) -> list[Document]:
    selector = {"cel": {"expression": f"device.driver == '{GPU_CLASS}'"}}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    return [
        document("v1", "Node", "n0", status={"allocatable": amounts, "conditions": ready}),
        document("resource.k8s.io/v1", "DeviceClass", GPU_CLASS, spec={"selectors": [selector]}),
        document(
            "resource.k8s.io/v1",
            "ResourceSlice",
            "n0",
            spec={
                "driver": GPU_CLASS,
                "nodeName": "n0",
                "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}}}
                    for n in range(count)
                ],
            },
        ),
        document(QUEUES, "Queue", TENANT, spec={"deservedGPUs": 2, "maxGPUs": 2}),
        document(QUEUES, "Queue", OWNER, spec={"deservedGPUs": 2}),
    ]


CLAIM_EDITS = {
    "no owner": ("metadata.ownerReferences", None),
    "another pod": ("metadata.ownerReferences", owned_by("v1", "Pod", "c-1")["ownerReferences"]),
    "owner of no kind": (
        "metadata.ownerReferences",
        owned_by("v1", "ConfigMap", "x")["ownerReferences"],
    ),
    "finalizer": ("metadata.finalizers", ["example.com/keep"]),
    "label": ("metadata.labels", {"kai.scheduler/queue": OWNER}),
    "annotation": (f"metadata.annotations|{QUEUE}", OWNER),
    "leaving": ("metadata.deletionTimestamp", "2027-01-01T00:00:00Z"),
}


@pytest.mark.parametrize("name", CLAIM_EDITS)
@pytest.mark.parametrize("restart", [False, True])
def test_no_edit_of_a_claim_gains_devices(name, restart):
    pods = [claiming(pod(f"c-{n}", TENANT, nodeName="n0"), f"claim-{n}") for n in range(2)]
    for each in pods:
        terms = Terms(queue=TENANT, floors={"": 1}, fragile=False)
        each["metadata"]["annotations"][ADMITTED_KEY] = terms.text()
        each["status"]["phase"] = "Running"
    claims = [claim(f"claim-{n}", f"c-{n}", device=f"gpu-{n}") for n in range(2)]
    process = Process()
    process.put(*devices(3), *pods, *claims)
    if not restart:
        process.cycle()
    write(claims[0], *CLAIM_EDITS[name])
    process.put(claims[0])
    late = claiming(pod("late", TENANT), "claim-late")
    due = [claiming(pod(f"due-{n}", OWNER), f"claim-due-{n}") for n in range(2)]
    theirs = [claim(f"claim-due-{n}", f"due-{n}") for n in range(2)]
    for each in theirs:
        each["metadata"]["namespace"] = OWNER
    process.put(late, claim("claim-late", "late"), *due, *theirs)
    plan = process.cycle()
    snapshot = process.planner.freeze(process.now)
    assert snapshot.queue_allocated[TENANT]["gpu"] == 2
    given = [
        result.device
        for gang in plan.placements
        for each in gang.pods
        for allocation in each.allocate
        for result in allocation.allocation.devices.results
    ]
    assert given == ["gpu-2"]
