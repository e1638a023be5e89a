"""Answers are kept for a minute, however many questions are asked."""

import asyncio

from kai_py.config import Configuration
from kai_py.simulate import advisor
from kai_py.simulate.advisor import CACHE_SECONDS, Advisor
from tests.watch import virtual_time


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
