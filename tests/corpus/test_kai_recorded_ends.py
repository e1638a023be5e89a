"""What the peer's sessions did beyond what their tables ask for: where every task ended."""

from tests.corpus import test_kai_cases
from tests.corpus.kai_session import play_beside

TABLE = "kai-recorded-ends"
read_cases = test_kai_cases.read_cases


def test_case(case):
    play_beside(case, test_kai_cases.reader_of(case))
