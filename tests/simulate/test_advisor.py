"""Suggestions for a cluster that is served: simulated in another process, kept for a while.

Answers are kept for a minute, however many questions are asked.
"""

import asyncio
import contextlib
import multiprocessing
import os
import time
from functools import partial

import pytest

from kai_py.api.crd import crds
from kai_py.cli.connection import cluster_client
from kai_py.config import Configuration
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes
from kai_py.observe.suggestion import InvalidQuestionError, NoAnswerError
from kai_py.simulate import advisor
from kai_py.simulate.advisor import CACHE_SECONDS, Advisor
from kai_py.simulate.fork import started_in_fork
from kai_py.simulate.what_if import NodesNeeded
from tests.simulate.clusters import job, queue, template
from tests.support.cluster.eventually import eventually
from tests.support.patience import patience
from tests.watch import virtual_time

pytestmark = pytest.mark.cluster


@contextlib.asynccontextmanager
async def asking(tmp_path):
    async with EmbeddedCluster() as cluster:
        cluster.create_all([*crds().values(), *nvidia_device_classes(), template()])
        cluster.create(h100_node("node-0", gpus=4))
        cluster.create_all([*h100_slices("node-0", gpus=4), queue("team", 4, 4)])
        cluster.create(job("six", 6, "team"))
        kubeconfig = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        async with cluster_client(str(kubeconfig), "") as client:
            asked = Advisor(client, Configuration())
            try:
                yield asked
            finally:
                asked.close()


async def test_an_answer_comes_from_another_process_and_is_kept(tmp_path, monkeypatch):
    async with asking(tmp_path) as asked:
        found = await asked.suggestions("default/Job/six")
        assert found.found[0].text == "let it start with 4 of its 6 pods (min-available)"
        monkeypatch.setattr(advisor, "read_objects", None)
        assert await asked.suggestions("default/Job/six") is found


async def test_a_change_is_tried_in_another_process(tmp_path):
    async with asking(tmp_path) as asked:
        raised = ("set", "team.maxGPUs=8")
        given = await asked.what_if((("add-nodes", "node-0=1"), raised))
        assert [each.gang for each in given.starts] == ["default/Job/six"]
        needed = await asked.what_if((raised, ("until-placed", "node-0")))
        assert needed == NodesNeeded("node-0", 1, most=16)


async def test_what_cannot_be_tried_is_told(tmp_path):
    async with asking(tmp_path) as asked:
        for pair, message in (
            (("drain", "nowhere"), "node nowhere"),
            (("set", "team"), "--set team: is not of the form"),
            (("explode", "node-0"), "explode: no such change"),
        ):
            with pytest.raises(InvalidQuestionError, match=message):
                await asked.what_if((pair,))


async def test_whoever_ends_does_not_wait_for_an_answer(tmp_path):
    async with asking(tmp_path) as asked:
        answer = asyncio.create_task(asked.suggestions("default/Job/six"))

        async def begun():
            return asked._process is not None and asked._process.is_alive()

        await eventually(begun, what="the other process")
        asked.close()
        async with asyncio.timeout(patience(30)):
            with pytest.raises(NoAnswerError, match="ended without a result"):
                await answer


def fork_and_sleep(fifo, _documents, _configuration, _now, on_partial):
    os.open(fifo, os.O_WRONLY)
    with started_in_fork(lambda: time.sleep(3600)) as answer:
        on_partial("begun")
        return answer()


def test_simulations_end_with_the_process_that_has_forked_them(tmp_path):
    asked, fifo = Advisor(None, Configuration()), tmp_path / "fifo"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(NoAnswerError, match="ended without a result"):
        asked._run_in_process([], partial(fork_and_sleep, fifo), lambda _: asked.close())
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b"", "no process has the other end open"
    os.close(reading)


class ClosesAsItIsSent:
    """A query that is sent to a process while the advisor is closed."""

    def __init__(self, asked):
        self._asked = asked

    def __reduce__(self):
        self._asked.close()
        return ClosesAsItIsSent, (None,)

    def __call__(self, *_):
        return "too late"


def test_a_process_that_is_being_started_ends_too():
    asked = Advisor(None, Configuration())
    with pytest.raises(NoAnswerError, match="the scheduler has been stopped"):
        asked._run_in_process([], ClosesAsItIsSent(asked), lambda _: None)
    assert not asked._process.is_alive()


def test_an_answer_after_the_end_of_the_asking_process_is_no_error(monkeypatch):
    monkeypatch.setattr(os, "setpgid", lambda *_: None)
    monkeypatch.setattr(os, "nice", lambda _: None)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    receiver.close()
    advisor._run_query(sender, [], Configuration(), 0.0, lambda *_: "an answer")
    advisor._run_query(sender, [], Configuration(), 0.0, lambda *parts: parts[-1]("a part"))


def test_answers_are_dropped_once_they_are_old(monkeypatch):
    async def read_objects(*_):
        return []

    async def main():
        asked = Advisor(None, Configuration())
        answers = iter(range(100))
        monkeypatch.setattr(asked, "_run_in_process", lambda *_: next(answers))
        for number in range(10):
            assert await asked.what_if((("drain", f"n{number}"),)) == number
            assert await asked.what_if((("drain", "n0"),)) == 0
        assert len(asked._cache) == 10
        await asyncio.sleep(CACHE_SECONDS)
        assert await asked.what_if((("drain", "n1"),)) == 10
        assert len(asked._cache) == 1

    monkeypatch.setattr(advisor, "read_objects", read_objects)
    virtual_time.run(main())
