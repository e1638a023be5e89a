"""Pods are asked to save their work once, by an annotation."""

import asyncio

from kai_py.api.queue import CHECKPOINT_BY_KEY
from kai_py.commit.pod_patches import CheckpointRequester
from kai_py.grouping.gang import Owner
from kai_py.plan.observations import CheckpointRequest

OWNER = Owner("batch/v1", "Job", "default", "train", "u")


async def until_written(requester):
    task = asyncio.create_task(requester.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()


async def test_pods_are_asked_once(cluster):
    pod = cluster.add_pod("train-0")
    told = []
    requester = CheckpointRequester(
        cluster.access(), lambda ref: cluster.pod(ref.name), lambda *each: told.append(each)
    )
    first = CheckpointRequest("train", OWNER, (pod,), 1_800_000_060.0, "save your work")
    requester.update((first,))
    await until_written(requester)
    assert cluster.pod("train-0").metadata.annotations[CHECKPOINT_BY_KEY] == "2027-01-15T08:01:00Z"
    again = CheckpointRequest("train", OWNER, (pod,), 1_800_000_061.0, "save your work")
    requester.update((again,))
    await until_written(requester)
    assert cluster.made("patch", "Pod") == 1
    assert told == [(pod, first)]


async def test_a_pod_that_is_gone_is_not_asked(cluster):
    pod = cluster.add_pod("train-0")
    requester = CheckpointRequester(cluster.access(), lambda _ref: None, lambda *_: None)
    requester.update((CheckpointRequest("train", OWNER, (pod,), 1.0, ""),))
    await until_written(requester)
    assert cluster.made("patch", "Pod") == 0
