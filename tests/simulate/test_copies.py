import os
import signal

import pytest

from kai_py.simulate.changes import ChangeError
from kai_py.simulate.fork import ForkFailedError, run_in_fork


def test_what_a_copy_does_is_not_seen_here():
    kept = [1]
    assert run_in_fork(lambda: (kept.append(2), len(kept))[1]) == 2
    assert kept == [1]
    assert run_in_fork(os.getpid) != os.getpid()


def test_what_it_raises_is_raised_here():
    def refuse():
        raise ChangeError("node n1: not found")

    with pytest.raises(ChangeError, match="node n1"):
        run_in_fork(refuse)


def test_a_large_answer_comes_whole():
    assert run_in_fork(lambda: b"x" * 10_000_000) == b"x" * 10_000_000


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: lambda: 0])
def test_a_copy_without_an_answer_is_an_error(end):
    with pytest.raises(ForkFailedError):
        run_in_fork(end)
