"""Recorded sessions whose objects KAI's users would write, fed as such and not as our own state."""

import pytest

from tests.corpus import test_kai_cases
from tests.corpus.kai_objects import snapshot_of_objects
from tests.corpus.kai_session import play, sessions_of

pytestmark = pytest.mark.slow

TABLE = "kai-object-cases"
read_cases = test_kai_cases.read_cases


def test_case(case):
    play(case, sessions_of(case, snapshot_of_objects))
