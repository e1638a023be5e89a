"""On a machine that checks changes (``CI=true``) nothing is left out for want of a program.

There a test that would be skipped fails instead, with the reason. Shared data and the history of
the project are the exceptions: a clone may have neither.
"""

import os
from collections.abc import Generator

import pytest

from tests.support.repository import NO_DATA, NO_HISTORY

ALLOWED = (NO_DATA, NO_HISTORY)
"""How reasons begin that are good anywhere."""


class NoSkips:
    """Turns skips into failures, but for those that are allowed."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge the report of one phase of a test."""
        report = yield
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = _reason(report)
            if not reason.startswith(ALLOWED):
                report.outcome = "failed"
                report.longrepr = f"skipped, which CI=true does not allow: {reason}"
        return report


def _reason(report: pytest.TestReport) -> str:
    _, _, reason = report.longrepr
    return reason.removeprefix("Skipped: ")


def strict() -> bool:
    """Whether skips fail."""
    return os.environ.get("CI", "").lower() in ("1", "true")
