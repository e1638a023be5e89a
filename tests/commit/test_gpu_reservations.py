"""Reservation pods: made once, believed only with a GPU of their own, deleted only when unused."""

import asyncio
import contextlib

import msgspec
import pytest

from kai_py.api.gpu_reservation import (
    GPU_CONTAINER,
    RESERVED_GPU,
    VISIBLE_GPUS,
    GpuGroup,
    ReservationTemplate,
)
from kai_py.api.gpu_share import RESERVATION, GpuShare, SharedGpu
from kai_py.api.references import PodRef
from kai_py.commit.gpu_reservations import (
    GpuDelivery,
    GpuReservations,
    SharedGpuGroups,
    has_shared_gpus,
)
from kai_py.commit.upkeep.reservation_pods import GpuUpkeep
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import NAMESPACES, PODS
from kai_py.plan.plan import Placement
from kai_py.watch import kinds
from tests.commit.cluster import (
    NAMESPACE,
    SCHEDULER,
    Crashed,
    first,
    gang_of,
    lose_answer,
    transaction,
)
from tests.commit.test_crash import Mortal
from tests.support.records import replace


def decoded(document):
    return kinds.PODS.at().decode(msgspec.json.encode(document))


@pytest.fixture
def groups(cluster):
    """The index of shared GPUs, fed by the cluster's pods."""
    index = SharedGpuGroups()

    def show(change):
        if change.storage == PODS.storage:
            old = decoded(change.previous) if change.previous else None
            new = None if change.type.value == "DELETED" else decoded(change.object)
            index.apply(old, new)

    cluster.api.store.subscribe(show)
    cluster.api.create(NAMESPACES, {"metadata": {"name": RESERVATION}})
    return index


def reservations(cluster, groups, *, image="kai-py", timeout=30.0, prefix=""):
    template = ReservationTemplate(image=image) if image else None
    return GpuReservations(
        access=cluster.access(),
        groups=groups,
        find_pod=lambda ref: cluster.pod(ref.name),
        delivery=GpuDelivery(template=template, timeout=timeout, device_prefix=prefix),
    )


def sharing(cluster, name="a", group="g", **annotations):
    """A placement of a pod that shares GPU ``group`` of node-a."""
    ref = cluster.add_pod(name)
    document = cluster.api.find(PODS, name, NAMESPACE)
    notes = {"gpu-fraction": "0.5", GPU_CONTAINER: "main", **annotations}
    mark(cluster, document, annotations=notes)
    share = GpuShare(fraction=0.5)
    return Placement(ref, "node-a", gpus=(SharedGpu(group, 0),), gpu_share=share)


def mark(cluster, document, **metadata):
    meta = document["metadata"]

    def change(present):
        return {**present, "metadata": {**present["metadata"], **metadata}}

    cluster.api.edit(PODS, meta["name"], meta["namespace"], change)


def reserved(cluster):
    return [p for p in cluster.api.list(PODS) if p["metadata"]["namespace"] == RESERVATION]


async def report(cluster, *uuids):
    """The reservation pods, in the order of their making, tell their GPUs."""
    for uuid in uuids:
        waiting = await until(lambda: [p for p in reserved(cluster) if not told(p)])
        mark(cluster, waiting[0], annotations={RESERVED_GPU: uuid})


async def until(probe):
    for _ in range(2000):
        if found := probe():
            return found
        await asyncio.sleep(0.001)
    raise TimeoutError


def node_of(cluster, name="a"):
    return cluster.pod(name).spec.node_name


def kept(cluster):
    """The reservation pods that are not being deleted."""
    return [pod for pod in reserved(cluster) if "deletionTimestamp" not in pod["metadata"]]


def told(document):
    return (document["metadata"].get("annotations") or {}).get(RESERVED_GPU)


async def bind(cluster, groups, *placements, uuids=("GPU-1",), **options):
    made = reservations(cluster, groups, **options)
    begun = transaction(cluster, gang_of(*placements), gpu_reservations=made)
    telling = asyncio.create_task(report(cluster, *uuids))
    try:
        return await begun.run()
    finally:
        telling.cancel()


async def test_the_gpu_is_reserved_before_the_pod_is_bound_and_written_on_it(cluster, groups):
    cluster.fail_once("create", "Pod", lose_answer)
    outcome = await bind(cluster, groups, sharing(cluster), prefix="nvidia.com/gpu=")
    assert outcome.reason == ""
    assert node_of(cluster) == "node-a"
    assert cluster.pod("a").metadata.annotations[VISIBLE_GPUS] == "nvidia.com/gpu=GPU-1"
    [pod] = reserved(cluster)
    assert pod["spec"]["nodeName"] == "node-a"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    # The next pod of the group finds it.
    assert (await bind(cluster, groups, sharing(cluster, "b"), uuids=())).reason == ""
    assert len(kept(cluster)) == 1


@pytest.mark.parametrize(
    ("labels", "annotations", "has_gpus"),
    [
        ({}, {}, False),
        ({"runai-gpu-group": "g"}, {}, True),
        ({}, {VISIBLE_GPUS: "GPU-1"}, True),
        ({"other": "g"}, {"other": "GPU-1"}, False),
    ],
)
def test_what_an_attempt_wrote_of_gpus_is_known_by_its_label_or_annotation(
    labels, annotations, has_gpus
):
    meta = {"name": "p", "labels": labels, "annotations": annotations}
    assert has_shared_gpus(decoded({"metadata": meta})) is has_gpus


@pytest.mark.parametrize(
    ("options", "annotations", "reason"),
    [
        ({"uuids": (), "timeout": 0.1}, {}, "did not report a GPU within 0.1 s"),
        ({"image": ""}, {}, "gpuSharing.image"),
        ({}, {GPU_CONTAINER: "other"}, "no admission webhook"),
    ],
)
async def test_a_pod_that_cannot_get_its_gpu_is_not_bound(
    cluster, groups, options, annotations, reason
):
    outcome = await bind(cluster, groups, sharing(cluster, **annotations), **options)
    assert reason in outcome.reason
    assert not node_of(cluster)


async def test_a_gpu_that_two_reservations_got_is_given_to_no_pod(cluster, groups):
    pair = sharing(cluster), sharing(cluster, "b", "h")
    outcome = await bind(cluster, groups, *pair, uuids=("GPU-1", "GPU-1"))
    assert "time-slicing" in outcome.reason
    assert not node_of(cluster)


async def test_a_reservation_that_its_node_refused_is_told_and_deleted(cluster, groups):
    binding = asyncio.create_task(bind(cluster, groups, sharing(cluster), uuids=()))
    [pod] = await until(lambda: reserved(cluster))
    cluster.api.patch_status(PODS, pod, {"phase": "Failed"})
    assert "node node-a refused reservation pod" in (await binding).reason
    await passes(upkeep(cluster, groups), 2)
    assert kept(cluster) == []


@pytest.mark.slow
async def test_no_reservation_is_made_after_another_of_the_pod_has_failed(cluster, groups):
    both = msgspec.structs.replace(sharing(cluster), gpus=(SharedGpu("g", 0), SharedGpu("h", 1)))
    binding = asyncio.create_task(bind(cluster, groups, both, uuids=(), timeout=0.3))
    refused, other = await until(lambda: len(made := reserved(cluster)) == 2 and made)
    cluster.api.patch_status(PODS, refused, {"phase": "Failed"})
    assert "refused reservation pod" in (await binding).reason
    delete(
        cluster.api, PODS, other["metadata"]["name"], RESERVATION, DeleteOptions(grace_seconds=0)
    )
    await asyncio.sleep(0.05)
    assert [pod["metadata"]["name"] for pod in kept(cluster)] == [refused["metadata"]["name"]]


def upkeep(
    cluster, groups, *, in_use=(), events=None, stale="", evictions=None, scheduler=SCHEDULER
):
    async def catch_up():
        return stale

    return GpuUpkeep(
        groups=groups,
        reservations=reservations(cluster, groups),
        in_use=lambda: in_use,
        releasing=set(),
        catch_up=catch_up,
        event_writer=events or Told(),
        evictions=evictions or cluster.evictions(),
        count=lambda _outcome: None,
        scheduler_names={scheduler},
    )


class Told:
    def __init__(self):
        self.notes = []

    def report_gpu_lost(self, pod, note):
        self.notes.append((pod.name, note))


async def passes(keeper, count, at=0.0):
    for number in range(count):
        await keeper.run_once(at + number)


def end(cluster, name):
    cluster.api.patch_status(PODS, cluster.api.find(PODS, name, NAMESPACE), {"phase": "Succeeded"})


async def test_a_reservation_stays_while_it_is_used_and_goes_afterwards(cluster, groups):
    await bind(cluster, groups, sharing(cluster))
    await passes(upkeep(cluster, groups), 3)
    assert len(kept(cluster)) == 1
    end(cluster, "a")
    busy = upkeep(cluster, groups, in_use={GpuGroup("node-a", "g")})
    await passes(busy, 3)
    await passes(upkeep(cluster, groups, stale="the watch is behind"), 3)
    assert len(kept(cluster)) == 1
    await passes(upkeep(cluster, groups), 2)
    assert kept(cluster) == []


async def test_a_label_that_was_removed_frees_no_gpu(cluster, groups):
    await bind(cluster, groups, sharing(cluster))
    mark(cluster, cluster.api.find(PODS, "a", NAMESPACE), labels={})
    await passes(upkeep(cluster, groups), 3)
    assert len(kept(cluster)) == 1
    # A scheduler that starts now knows only what was recorded at the binding.
    again = SharedGpuGroups()
    for document in cluster.api.list(PODS):
        again.apply(None, decoded(document))
    assert [pod.metadata.name for pod in again.sharers(GpuGroup("node-a", "g"))] == ["a"]
    blind = SharedGpuGroups()
    blind.apply(None, decoded(reserved(cluster)[0]))
    refusal = await reservations(cluster, blind).release(
        GpuGroup("node-a", "g"), PodRef.of(decoded(reserved(cluster)[0]).metadata)
    )
    assert refusal == f"pod {NAMESPACE}/a shares the GPU"


@pytest.mark.parametrize("start", [0.0, 1000.0])
async def test_a_reservation_of_kai_is_left_alone_for_longer(cluster, groups, start):
    await bind(cluster, groups, sharing(cluster))
    [pod] = reserved(cluster)
    labels = {"app": RESERVATION, "runai-gpu-group": "g"}
    mark(cluster, pod, labels=labels)
    end(cluster, "a")
    keeper = upkeep(cluster, groups)
    await passes(keeper, 3, at=start)
    assert len(kept(cluster)) == 1
    await passes(keeper, 1, at=start + 130.0)
    assert kept(cluster) == []


@pytest.mark.parametrize("change", ["deleted", "another GPU"])
async def test_pods_whose_gpu_is_not_reserved_any_more_are_evicted(cluster, groups, change):
    await bind(cluster, groups, sharing(cluster))
    [pod] = reserved(cluster)
    if change == "deleted":
        delete(
            cluster.api, PODS, pod["metadata"]["name"], RESERVATION, DeleteOptions(grace_seconds=0)
        )
    else:
        mark(cluster, pod, annotations={RESERVED_GPU: "GPU-2"})
    events = Told()
    keeper = upkeep(cluster, groups, events=events)
    await passes(keeper, 1)
    assert events.notes == []
    await passes(keeper, 1)
    [(name, note)] = events.notes
    assert name == "a"
    assert "the pod is evicted" in note
    left = cluster.pod("a")
    assert left is None or left.metadata.deletion_timestamp is not None


@pytest.mark.parametrize("change", ["ended", "made again"])
async def test_a_pod_that_has_changed_when_it_is_read_is_not_evicted(cluster, groups, change):
    await bind(cluster, groups, sharing(cluster))
    [pod] = reserved(cluster)
    now = DeleteOptions(grace_seconds=0)
    delete(cluster.api, PODS, pod["metadata"]["name"], RESERVATION, now)

    def end():
        if change == "ended":
            ended = {"phase": "Succeeded"}
            cluster.api.patch_status(PODS, cluster.api.find(PODS, "a", NAMESPACE), ended)
        else:
            delete(cluster.api, PODS, "a", NAMESPACE, now)
            cluster.add_pod("a")

    cluster.fail_once("get", "Pod", first(end))
    events = Told()
    await passes(upkeep(cluster, groups, events=events), 2)
    assert cluster.faults == []
    assert events.notes == []
    assert cluster.pod("a").metadata.deletion_timestamp is None


@pytest.mark.parametrize("why", ["of another scheduler", "never told its GPU", "terminating"])
async def test_other_pods_are_not_evicted_for_their_gpu(cluster, groups, why):
    await bind(cluster, groups, sharing(cluster))
    [pod] = reserved(cluster)
    now = DeleteOptions(grace_seconds=0)
    delete(cluster.api, PODS, pod["metadata"]["name"], RESERVATION, now)
    if why == "never told its GPU":
        mark(cluster, cluster.api.find(PODS, "a", NAMESPACE), annotations={})
    if why == "terminating":
        delete(cluster.api, PODS, "a", NAMESPACE, DeleteOptions(grace_seconds=30))
    events = Told()
    scheduler = "other" if why == "of another scheduler" else SCHEDULER
    await passes(upkeep(cluster, groups, events=events, scheduler=scheduler), 3)
    assert events.notes == []
    assert (cluster.pod("a").metadata.deletion_timestamp is None) is (why != "terminating")


CALLS = 8
"""More than a transaction of two pods on one GPU makes."""


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("calls", range(1, CALLS + 1))
async def test_a_crash_leaves_no_pod_without_its_gpu_and_no_gpu_without_a_pod(
    cluster, groups, calls, arrives
):
    gang = gang_of(sharing(cluster, "a"), sharing(cluster, "b"))
    mortal = Mortal(cluster, calls, last_arrives=arrives)
    made = reservations(cluster, groups)
    reserving = replace(made, access=cluster.access(mortal))
    dying = transaction(cluster, gang, transport=mortal, gpu_reservations=reserving)
    telling = asyncio.create_task(report(cluster, "GPU-1"))
    with contextlib.suppress(Crashed):
        await dying.run()
    telling.cancel()
    # The next process knows what the API shows, and nothing else.
    again = SharedGpuGroups()
    for document in cluster.api.list(PODS):
        again.apply(None, decoded(document))
    events = Told()
    await passes(upkeep(cluster, again, events=events), 3)
    bound = [name for name in ("a", "b") if node_of(cluster, name)]
    assert len(kept(cluster)) == bool(bound)
    assert events.notes == []
    for name in bound:
        [pod] = kept(cluster)
        assert cluster.pod(name).metadata.annotations[VISIBLE_GPUS] == told(pod)
