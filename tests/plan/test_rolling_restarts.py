"""Pods that are replaced one after the other do not renew the min runtime of their gang."""

import copy
import json
from datetime import UTC, datetime

import pytest

from kai_py.grouping.admitted import ADMITTED_KEY
from tests.support.admitted_work import QUEUES, bind, marks, pod
from tests.support.poison.document import document
from tests.support.poison.process import NOW, Process

MINUTE = 60.0


def world(**limits):
    """A node with two GPUs; ``mine`` deserves none of them, and ``owner`` both."""
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "2"}
    ready = [{"type": "Ready", "status": "True"}]
    limits = limits or {"reclaimMinRuntime": "1h"}
    return [
        document("v1", "Node", "n0", status={"allocatable": amounts, "conditions": ready}),
        document(QUEUES, "Queue", "mine", spec={"deservedGPUs": 0, **limits}),
        document(QUEUES, "Queue", "owner", spec={"deservedGPUs": 2}),
    ]


class Running:
    """A gang of two pods that started an hour and ten minutes before ``reclaim``."""

    def __init__(self):
        self.process = Process()
        self.process.put(*world())
        self.pods = self.start(0, "a-0", "a-1")

    def start(self, minutes, *names):
        self.process.now = NOW + minutes * MINUTE
        at = datetime.fromtimestamp(self.process.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = {"creationTimestamp": at}
        pods = [pod(name, "mine", meta=copy.deepcopy(meta), **marks("ours")) for name in names]
        for each in bind(self.process, pods):
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
            each["status"]["conditions"] = [scheduled]
            self.process.put(each)
        return pods

    def replace(self, minutes, *names):
        """Delete the first pods of the gang, and start others."""
        gone, self.pods = self.pods[: len(names)], self.pods[len(names) :]
        self.process.remove(*gone)
        self.pods += self.start(minutes, *names)

    def restart_scheduler(self):
        self.process = Process()
        self.process.put(*world(), *self.pods)

    def reclaim(self):
        self.process.now = NOW + 70 * MINUTE
        self.process.put(pod("due-0", "owner"), pod("due-1", "owner"))
        return {each.pod.name for each in self.process.cycle().evictions}


def rolled():
    running = Running()
    running.replace(50, "b-0")
    running.replace(55, "b-1")
    running.replace(60, "c-0")
    return running


@pytest.mark.parametrize("restart", [False, True])
def test_a_gang_whose_pods_were_replaced_one_by_one_is_past_its_min_runtime(restart):
    running = rolled()
    if restart:
        running.restart_scheduler()
    assert running.reclaim() == {"b-1", "c-0"}


def test_a_gang_that_was_replaced_as_a_whole_starts_again():
    running = Running()
    running.replace(50, "b-0", "b-1")
    assert not running.reclaim()


def test_a_gang_that_started_once_is_protected_from_then_on():
    running = Running()
    running.process.put(*world(reclaimMinRuntime="75m"))
    running.replace(50, "b-0")
    assert not running.reclaim()


@pytest.mark.parametrize("started", [1e12, -5.0, 0, None, "soon"])
def test_no_record_makes_a_gang_younger_than_its_pods(started):
    running = Running()
    for each in running.pods:
        annotations = each["metadata"]["annotations"]
        record = {**json.loads(annotations[ADMITTED_KEY]), "started": started}
        annotations[ADMITTED_KEY] = json.dumps(record)
    running.restart_scheduler()
    assert running.reclaim() == {"a-0", "a-1"}


def test_only_pods_that_join_running_ones_record_a_start():
    records = [json.loads(each["metadata"]["annotations"][ADMITTED_KEY]) for each in Running().pods]
    assert not any("started" in each for each in records)
    joined = json.loads(rolled().pods[-1]["metadata"]["annotations"][ADMITTED_KEY])
    assert joined["started"] == NOW
