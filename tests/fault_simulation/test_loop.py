"""The loop under the simulation: virtual time, dead and frozen processes."""

import asyncio
import random

import pytest

from tests.fault_simulation.loop import Process, SimulatedLoop


@pytest.fixture
def running():
    made = SimulatedLoop(random.Random(1), shuffled=False)
    yield made
    made.close()


async def ticks(seen, name, seconds=1.0):
    try:
        while True:
            await asyncio.sleep(seconds)
            seen.append((asyncio.get_running_loop().time(), name))
    finally:
        seen.append("finally")
        await asyncio.sleep(seconds)
        seen.append("after")


def test_time_jumps_to_the_next_timer(running):
    seen = []
    running.start(Process("a"), ticks(seen, "a", 3600.0))
    running.run_until(4 * 3600.0)
    assert seen == [(3600.0 * n, "a") for n in (1, 2, 3, 4)]


def test_a_killed_process_runs_nothing_more(running):
    seen = []
    first, second = Process("a"), Process("b")
    running.start(first, ticks(seen, "a"))
    running.start(second, ticks(seen, "b"))
    running.run_until(1.5)
    running.kill(first)
    running.run_until(3.5)
    assert seen == [(1.0, "a"), (1.0, "b"), "finally", (2.0, "b"), (3.0, "b")]


def test_a_frozen_process_goes_on_late(running):
    seen = []
    process = Process("a")
    running.start(process, ticks(seen, "a"))
    running.run_until(1.5)
    running.freeze(process)
    running.run_until(10.5)
    running.thaw(process)
    running.run_until(12.0)
    assert seen == [(1.0, "a"), (10.5, "a"), (11.5, "a")]


def test_what_is_shuffled_depends_on_the_seed_alone():
    def order(seed):
        running, seen = SimulatedLoop(random.Random(seed), shuffled=True), []
        for name in "abcdef":
            running.start(Process(name), ticks(seen, name))
        running.run_until(5.0)
        found = list(seen)
        running.close()
        return found

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))


def test_work_for_threads_is_done_and_answers_later(running):
    seen = []

    async def work():
        seen.append(await asyncio.to_thread(lambda: 7))
        seen.append(running.time() > 0)

    running.start(Process("a"), work())
    running.run_until(1.0)
    assert seen == [7, True]
