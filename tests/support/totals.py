"""One line per table of cases at the end of the run, however many processes ran the cases.

A test says how a case ended by the user property ``TOTALS``: (table, case, outcome). Reports carry
it to the process that prints the summary. Several tests of one case count as the worst of them.
"""

from collections import Counter

import pytest

TOTALS = "totals"
WORST_FIRST = ("failing", "deviating", "passed")


class Totals:
    """What became of each case of each table."""

    def __init__(self) -> None:
        self._outcomes: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of a test that has run."""
        for name, value in report.user_properties if report.when == "call" else ():
            if name == TOTALS:
                table, case, outcome = value
                outcomes = self._outcomes.setdefault(table, {})
                seen = outcomes.get(case, outcome)
                outcomes[case] = min(seen, outcome, key=WORST_FIRST.index)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the lines."""
        for table, outcomes in sorted(self._outcomes.items()):
            count = Counter(outcomes.values())
            terminalreporter.write_line(
                f"{table}: {count['passed']} passed, {count['deviating']} deviating on purpose, "
                f"{count['failing']} failing"
            )
