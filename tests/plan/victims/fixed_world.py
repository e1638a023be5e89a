"""A world whose plan evicts, for processes that need nothing else of the tests."""

from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.worlds import World, gang

QUEUES = ("x", "y", "z")


def fixed_world() -> World:
    running = [
        gang(f"r{i}", node=f"n{i % 4}", pods=2, floor=1, queue=QUEUES[i % 2], created=i)
        for i in range(8)
    ]
    waiting = [
        gang("big", pods=2, gpus=3, queue="z", created=50),
        gang("high", pods=1, gpus=2, queue="x", priority=3, created=51),
    ]
    queues = [QueueInfo(name=name, deserved={"gpu": 5.0}) for name in QUEUES]
    return World({f"n{i}": 4 for i in range(4)}, (*running, *waiting), tuple(queues))
