"""Recorded sessions whose objects KAI's users would write, fed as such and not as our own state."""

from tests.corpus import test_kai_cases
from tests.corpus.kai_objects import snapshot_of_objects
from tests.corpus.kai_session import play

TABLE = "kai-object-cases"
NOT_BUILT_YET = test_kai_cases.NOT_BUILT_YET | {
    "GPU fraction",
    "GPU memory request",
    "MIG request",
    "initial status StuckInReleasing",
    "multi-device fraction",
}
"""Cases whose start state depends on more than objects say, beside those left out everywhere."""


def read_cases(data):
    return test_kai_cases.read_cases(data)


def test_case(case):
    play(case, see=snapshot_of_objects)
