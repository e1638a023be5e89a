"""What holds for every test.

Properties are judged by their answer, not by the time it takes, and deadlines grow with what the
machine is busy with (``tests.support.patience``). The same commit gives the same verdict;
``HYPOTHESIS_PROFILE=explore`` looks for new examples instead.
"""

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.patience import patience
from tests.support.skips import NoSkips, strict
from tests.support.totals import Totals

# Readline, which workers of xdist load, puts its idea of the terminal here, and programs that tests
# start would take it for the size of theirs.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


TEST_SECONDS = 300
"""The longest that a test may take on a quiet machine."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Time limits of this machine unless ``--timeout`` says one, totals, and no skips in CI."""
    if config.option.timeout is None:
        config.option.timeout = patience(TEST_SECONDS)
    config.pluginmanager.register(Totals(), "totals")
    if strict():
        config.pluginmanager.register(NoSkips(), "no skips")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays until the end: the garbage collector leaves it alone."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For a test that sets the logging of the process up; others after it have theirs back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
