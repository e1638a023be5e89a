import asyncio
import contextlib

import pytest

from kai_py.commit.statuses.pod import PodStatusWriter, condition_reason, pending_statuses
from kai_py.embedded.resources import PODS
from kai_py.plan.plan import Nomination, Plan, Stage, Unplaced
from tests.commit.cluster import JOB, NAMESPACE, NO_ROLE, Cluster, refuse
from tests.support.scenario import cluster as clustered
from tests.support.scenario import job, node, pod, queue

INTERVAL = 10.0


@pytest.fixture
def cluster():
    cluster = Cluster()
    cluster.transitions = []
    cluster.wakes = []
    return cluster


@contextlib.asynccontextmanager
async def writing(cluster, find_pod):
    writer = PodStatusWriter(
        cluster.access(),
        find_pod,
        message_interval=INTERVAL,
        on_transition=cluster.transitions.append,
        wake=cluster.wakes.append,
    )
    running = asyncio.create_task(writer.run())
    yield writer
    running.cancel()


@pytest.fixture
async def writer(cluster):
    def find_pod(ref):
        return cluster.current(cluster.pod(ref.name), ref.uid)

    async with writing(cluster, find_pod) as writer:
        yield writer


def waits(stage, message, *pods):
    return Plan(unplaced=(Unplaced("team-a/Job/train", JOB, "queue-a", stage, message, pods),))


async def say(writer, plan, now=0.0):
    writer.update(pending_statuses(plan), now)
    await writer.drain(5.0)


def scheduled(cluster, name):
    conditions = cluster.pod(name).status.conditions
    return next((c for c in conditions if c.type == "PodScheduled"), None)


def writes(cluster):
    return cluster.made("patch", "Pod/status")


def test_autoscalers_are_called_only_where_nodes_could_help():
    called = {stage for stage in Stage if condition_reason(stage) == "Unschedulable"}
    assert called == {
        Stage.NODE_FILTERS,
        Stage.RESOURCES,
        Stage.DEVICES,
        Stage.TOPOLOGY,
        Stage.FAIR_SHARE,
        Stage.VICTIMS_PROTECTED,
        Stage.EVICTION_LIMITS,
        Stage.RESERVED,
    }
    assert condition_reason(Stage.QUEUE_MAX) == "QueueMax"
    assert condition_reason(Stage.SCHEDULER_ERROR) == "SchedulerError"


def test_pods_above_the_floor_call_for_nodes_only_if_told_to():
    plan = clustered(node("n", 1), queue("team", 8), *train_of(4, floor=2)).plan()
    assert [each.reason for each in pending_statuses(plan)] == ["Unschedulable"] * 4
    reasons = [each.reason for each in pending_statuses(plan, elastic_calls_for_nodes=False)]
    assert sorted(reasons) == ["ElasticUnschedulable"] * 2 + ["Unschedulable"] * 2
    started = clustered(node("n", 3), queue("team", 8), *train_of(4, floor=2)).plan()
    assert [e.reason for e in pending_statuses(started, elastic_calls_for_nodes=False)] == [
        "ElasticUnschedulable"
    ]


def test_pods_of_which_one_is_enough_call_each_for_itself():
    plan = clustered(node("n", 0), queue("team", 8), *train_of(3, floor=1)).plan()
    reasons = [each.reason for each in pending_statuses(plan, elastic_calls_for_nodes=False)]
    assert reasons == ["Unschedulable"] * 3


def train_of(pods, floor):
    owner = job("train", pods, "team", **{"scheduling.kai.io/min-available": str(floor)})
    return [owner, *(pod(f"train-{i}", owner=owner) for i in range(pods))]


async def test_every_pod_of_the_gang_says_why_it_waits(cluster, writer):
    pods = [cluster.add_pod(f"worker-{i}") for i in range(3)]
    await say(writer, waits(Stage.RESOURCES, "no capacity.", *pods))
    for each in pods:
        condition = scheduled(cluster, each.name)
        assert condition.status == "False"
        assert (condition.reason, condition.message) == ("Unschedulable", "no capacity.")
        assert condition.last_transition_time is not None


async def test_the_same_sentence_is_written_once(cluster, writer):
    pod = cluster.add_pod("worker-0")
    for now in range(100):
        await say(writer, waits(Stage.RESOURCES, "no capacity.", pod), now=float(now))
    assert writes(cluster) == 1
    assert len(cluster.transitions) == 1


async def test_a_mirror_that_lags_causes_no_second_write(cluster):
    pod = cluster.add_pod("worker-0")
    old = cluster.pod("worker-0")
    async with writing(cluster, lambda _ref: old) as writer:
        for now in range(5):
            await say(writer, waits(Stage.RESOURCES, "no capacity.", pod), now=float(now))
    assert writes(cluster) == 1


async def test_a_new_sentence_waits_for_its_turn_and_a_new_reason_does_not(cluster, writer):
    pod = cluster.add_pod("worker-0")
    for now in range(30):
        await say(writer, waits(Stage.RESOURCES, f"{now} nodes are full.", pod), now=float(now))
    assert writes(cluster) == 3
    assert scheduled(cluster, "worker-0").message == "20 nodes are full."
    since = scheduled(cluster, "worker-0").last_transition_time
    await say(writer, waits(Stage.QUEUE_MAX, "the queue is full.", pod), now=30.0)
    assert writes(cluster) == 4
    assert scheduled(cluster, "worker-0").reason == "QueueMax"
    assert scheduled(cluster, "worker-0").last_transition_time == since


async def test_a_new_sentence_waits_for_its_turn_though_the_mirror_lags(cluster):
    pod = cluster.add_pod("worker-0")
    pod_before = cluster.pod("worker-0")
    async with writing(cluster, lambda _ref: pod_before) as writer:
        for now in range(12):
            message = f"{now} nodes are full."
            await say(writer, waits(Stage.RESOURCES, message, pod), now=float(now))
    assert [each.message[:2] for each in cluster.transitions] == ["0 ", "10"]
    assert writes(cluster) == 2


async def test_a_nominated_pod_names_its_node_until_it_loses_it(cluster, writer):
    pod = cluster.add_pod("worker-0")
    waiting = waits(Stage.NOMINATED, "capacity is being freed.", pod)
    nominated = Plan(
        unplaced=waiting.unplaced, nominations=(Nomination("team-a/Job/train", pod, "node-a"),)
    )
    await say(writer, nominated)
    assert cluster.pod("worker-0").status.nominated_node_name == "node-a"
    assert scheduled(cluster, "worker-0").reason == "Nominated"
    await say(writer, waits(Stage.RESOURCES, "no capacity.", pod), now=1.0)
    assert cluster.pod("worker-0").status.nominated_node_name == ""


@pytest.mark.parametrize("stage", [Stage.BELOW_MIN_MEMBER, Stage.SCHEDULING_GATED])
async def test_pods_of_half_a_gang_keep_what_they_say_and_events_tell(cluster, writer, stage):
    pod = cluster.add_pod("worker-0")
    for now in range(30):
        message = f"minMember is 40; existing pods: {now}."
        await say(writer, waits(stage, message, pod), now=float(now))
    assert writes(cluster) == 0
    assert scheduled(cluster, "worker-0") is None
    told = [each.message for each in cluster.transitions]
    assert told == [f"minMember is 40; existing pods: {now}." for now in (0, 10, 20)]


async def test_half_a_gang_takes_back_the_call_that_the_whole_gang_made(cluster, writer):
    pod = cluster.add_pod("worker-0")
    await say(writer, waits(Stage.RESOURCES, "no capacity.", pod))
    await say(writer, waits(Stage.BELOW_MIN_MEMBER, "1 of 2 exist.", pod), now=1.0)
    assert scheduled(cluster, "worker-0").reason == "BelowMinMember"
    await say(writer, waits(Stage.BELOW_MIN_MEMBER, "0 of 2 exist.", pod), now=20.0)
    assert scheduled(cluster, "worker-0").message == "0 of 2 exist."


async def test_a_pod_of_half_a_gang_whose_gate_is_gone_keeps_what_the_server_said(cluster, writer):
    pod = cluster.add_pod("worker-0")
    document = cluster.api.find(PODS, "worker-0", NAMESPACE)
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "x"}
    cluster.api.patch_status(PODS, document, {"conditions": [gated]})
    await say(writer, waits(Stage.BELOW_MIN_MEMBER, "1 of 2 exist.", pod))
    assert writes(cluster) == 0


async def test_a_gated_pod_keeps_what_the_server_says(cluster, writer):
    pod = cluster.add_pod("worker-0", schedulingGates=[{"name": "wait"}])
    before = scheduled(cluster, "worker-0")
    await say(writer, waits(Stage.SCHEDULING_GATED, "1 pod is gated.", pod))
    assert writes(cluster) == 0
    assert scheduled(cluster, "worker-0") == before


async def test_a_pod_bound_meanwhile_is_left_alone(cluster, writer):
    pod = cluster.add_pod("worker-0")
    await cluster.access().client.bind(
        namespace=NAMESPACE, pod=pod.name, uid=pod.uid, node="node-a"
    )
    await say(writer, waits(Stage.RESOURCES, "no capacity.", pod))
    assert writes(cluster) == 0


async def test_w24_a_failed_write_is_repeated_by_the_next_cycle(cluster, writer):
    pod = cluster.add_pod("worker-0")
    cluster.fail_once("patch", "Pod/status", refuse(500))
    await say(writer, waits(Stage.RESOURCES, "no capacity.", pod))
    assert scheduled(cluster, "worker-0") is None
    assert cluster.wakes == [INTERVAL]
    await say(writer, waits(Stage.RESOURCES, "no capacity.", pod), now=1.0)
    assert scheduled(cluster, "worker-0").message == "no capacity."


async def test_what_is_refused_is_tried_at_intervals_and_warned_of_once(cluster, writer, caplog):
    pods = [cluster.add_pod(f"worker-{i}") for i in range(3)]
    for now in range(100):
        for _ in pods:
            cluster.fail_once("patch", "Pod/status", refuse(403, "Forbidden", message=NO_ROLE))
        await say(writer, waits(Stage.RESOURCES, f"no capacity at {now}.", *pods), now=now / 10)
        cluster.faults.clear()
    assert writes(cluster) == len(pods)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    await say(writer, waits(Stage.RESOURCES, "no capacity.", *pods), now=INTERVAL)
    assert {scheduled(cluster, pod.name).message for pod in pods} == {"no capacity."}


async def test_another_writer_that_overwrites_us_is_answered_but_not_at_once(cluster, writer):
    pod = cluster.add_pod("worker-0")
    await say(writer, waits(Stage.RESOURCES, "no capacity.", pod))
    document = cluster.api.find(PODS, "worker-0", NAMESPACE)
    other = {"type": "PodScheduled", "status": "False", "reason": "Other", "message": "x"}
    cluster.api.patch_status(PODS, document, {"conditions": [other]})
    for now in range(1, 12):
        await say(writer, waits(Stage.RESOURCES, "no capacity.", pod), now=float(now))
    assert writes(cluster) == 2
    assert cluster.wakes == [INTERVAL - 1], "a cycle is asked for when it may be written"


async def test_only_the_newest_wish_is_written(cluster):
    pod = cluster.add_pod("worker-0")
    writer = PodStatusWriter(
        cluster.access(),
        lambda ref: cluster.pod(ref.name),
        message_interval=INTERVAL,
        on_transition=cluster.transitions.append,
        wake=cluster.wakes.append,
    )
    for stage in (Stage.RESOURCES, Stage.DEVICES, Stage.QUEUE_MAX):
        writer.update(pending_statuses(waits(stage, stage.value, pod)), 0.0)
    running = asyncio.create_task(writer.run())
    await writer.drain(5.0)
    running.cancel()
    assert writes(cluster) == 1
    assert scheduled(cluster, "worker-0").reason == "QueueMax"


async def test_the_newest_sentence_arrives_last_though_lanes_write_side_by_side(cluster, writer):
    pod = cluster.add_pod("worker-0")
    on_its_way = asyncio.Event()

    async def late(_call, serve):
        await on_its_way.wait()
        return await serve()

    cluster.fail_once("patch", "Pod/status", late)
    second_lane = asyncio.create_task(writer.run())
    writer.update(pending_statuses(waits(Stage.CLAIMS_NOT_READY, "no claim.", pod)), 0.0)
    await asyncio.sleep(0)
    writer.update(pending_statuses(waits(Stage.RESOURCES, "no capacity.", pod)), 0.1)
    for _ in range(20):
        await asyncio.sleep(0)
    on_its_way.set()
    await writer.drain(5.0)
    second_lane.cancel()
    assert scheduled(cluster, "worker-0").reason == "Unschedulable"
    assert writes(cluster) == 2


async def test_only_pods_that_still_wait_are_written_to(cluster):
    first, second = cluster.add_pod("worker-0"), cluster.add_pod("worker-1")
    async with writing(cluster, lambda ref: cluster.pod(ref.name)) as writer:
        writer.update(pending_statuses(waits(Stage.RESOURCES, "no capacity.", first, second)), 0.0)
        writer.update(pending_statuses(waits(Stage.RESOURCES, "no capacity.", second)), 1.0)
        await writer.drain(5.0)
    assert [bool(scheduled(cluster, f"worker-{n}")) for n in range(2)] == [False, True]
