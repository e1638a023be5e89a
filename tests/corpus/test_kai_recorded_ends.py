"""What the peer's sessions did beyond what their tables ask for: where every task ended."""

from tests.corpus import test_kai_cases
from tests.corpus.kai_cluster import snapshot_of
from tests.corpus.kai_objects import snapshot_of_objects
from tests.corpus.kai_session import play_beside

TABLE = "kai-recorded-ends"
read_cases = test_kai_cases.read_cases


def test_case(case):
    by_objects = test_kai_cases.CLAIMS in case["features"]
    play_beside(case, snapshot_of_objects if by_objects else snapshot_of)
