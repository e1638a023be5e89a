"""Pods are asked to save their work once, by an annotation."""

import asyncio

import pytest

from kai_py.api.queue import CHECKPOINT_BY_KEY
from kai_py.commit.pod_patches import ASK_AGAIN, CheckpointRequester
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import PODS
from kai_py.grouping.gang import Owner
from kai_py.plan.observations import CheckpointRequest
from tests.commit.cluster import NAMESPACE, first, refuse

OWNER = Owner("batch/v1", "Job", "default", "train", "u")


async def until_written(requester):
    task = asyncio.create_task(requester.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()


@pytest.mark.parametrize(("later", "asked"), [(1, 1), (ASK_AGAIN, 1), (ASK_AGAIN + 1, 2)])
async def test_pods_are_asked_once_for_one_departure(cluster, later, asked):
    pod = cluster.add_pod("train-0")
    told = []
    requester = CheckpointRequester(
        cluster.access(), lambda ref: cluster.pod(ref.name), lambda *each: told.append(each)
    )
    first = CheckpointRequest("train", OWNER, (pod,), 1_800_000_060.0, "save your work")
    requester.update((first,))
    await until_written(requester)
    assert cluster.pod("train-0").metadata.annotations[CHECKPOINT_BY_KEY] == "2027-01-15T08:01:00Z"
    again = CheckpointRequest("train", OWNER, (pod,), 1_800_000_060.0 + later, "save your work")
    requester.update((again,))
    await until_written(requester)
    assert cluster.made("patch", "Pod") == asked
    assert told == [(pod, first), (pod, again)][:asked]


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_pod_that_cannot_be_asked_is_told_of_unless_it_is_gone(cluster, is_gone, caplog):
    pod = cluster.add_pod("train-0")
    gone = DeleteOptions(grace_seconds=0)
    fault = first(lambda: delete(cluster.api, PODS, "train-0", NAMESPACE, gone))
    cluster.fail_once("patch", "Pod", fault if is_gone else refuse(403, "Forbidden"))
    told = []
    requester = CheckpointRequester(
        cluster.access(), lambda ref: cluster.pod(ref.name), lambda *each: told.append(each)
    )
    requester.update((CheckpointRequest("train", OWNER, (pod,), 1.0, ""),))
    await until_written(requester)
    assert (cluster.made("patch", "Pod"), told) == (1, [])
    assert ("cannot ask pod" in caplog.text) is not is_gone


async def test_a_pod_that_is_gone_is_not_asked(cluster):
    pod = cluster.add_pod("train-0")
    requester = CheckpointRequester(cluster.access(), lambda _ref: None, lambda *_: None)
    requester.update((CheckpointRequest("train", OWNER, (pod,), 1.0, ""),))
    await until_written(requester)
    assert cluster.made("patch", "Pod") == 0
