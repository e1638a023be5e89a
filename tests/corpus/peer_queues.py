"""Queues of the peer tables as our specs and arrays."""

import math

import numpy as np

from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo

RESOURCES = ("gpu", "cpu", "memory")


def unlimited(amount):
    return math.inf if amount == -1 else amount


def spec(queue):
    def row(key):
        return {name: unlimited((queue.get(name) or {}).get(key, 0)) for name in RESOURCES}

    return QueueInfo(
        name=queue["uid"],
        parent=queue.get("parent", ""),
        deserved=row("deserved"),
        max=row("max_allowed"),
        weights=row("over_quota_weight"),
        priority=queue.get("priority", 0),
        created=queue.get("creation_rank", 0),
        preempt_min_runtime=queue.get("preempt_seconds"),
        reclaim_min_runtime=queue.get("reclaim_seconds"),
    )


def table(queues):
    built, problems = build_queue_table(map(spec, queues), RESOURCES)
    assert problems == ()
    return built


def amounts(built, queues, key):
    """(resources, queues) of ``key`` in the order of the table; -1 stands for unlimited."""
    by_name = {queue["uid"]: queue for queue in queues}
    return np.array(
        [
            [unlimited((by_name[name].get(resource) or {}).get(key, 0.0)) for name in built.names]
            for resource in RESOURCES
        ],
        np.float64,
    )


def vector(quantities):
    return np.array([(quantities or {}).get(name, 0.0) for name in RESOURCES], np.float64)
