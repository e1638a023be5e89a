"""Recorded sessions whose objects KAI's users would write, fed as such and not as our own state."""

from tests.corpus import test_kai_cases
from tests.corpus.kai_objects import snapshot_of_objects
from tests.corpus.kai_session import play

TABLE = "kai-object-cases"
NOT_BUILT_YET = frozenset({"legacy MIG task"})
"""Cases whose start state depends on more than objects say, beside those left out everywhere."""
OTHER_START = (
    "allocate-allocateFractionalGpu[6]",
    "allocate-allocateFractionalGpu[9]",
    "reclaim-reclaim[2]",
)
"""Cases that do not start from these objects as recorded: a shared GPU that is half released, a
promise that only KAI's memory holds, a node with more GPUs in use than it has."""


def read_cases(data):
    cases = test_kai_cases.read_cases(data)
    return {name: case for name, case in cases.items() if not name.startswith(OTHER_START)}


def test_case(case):
    play(case, see=snapshot_of_objects)
