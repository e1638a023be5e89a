"""What holds for every test.

Properties are judged by their answer, not by the time it takes, and deadlines grow with what the
machine is busy with (``tests.support.patience``). The same commit gives the same verdict;
``HYPOTHESIS_PROFILE=explore`` looks for new examples instead, ``fast`` tries an eighth of them.
"""

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import DEFAULT, FAST, PROFILE, examples
from tests.support.patience import time_limit
from tests.support.skips import NoSkips, strict
from tests.support.totals import Totals
from tests.support.workers import ModuleScheduling, Worker

# Readline, which workers of xdist load, puts its idea of the terminal here, and programs that tests
# start would take it for the size of theirs.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)

# A shell without job control ignores interrupts in what it puts into the background, and programs
# that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(FAST, settings.get_profile("repeatable"), max_examples=examples(DEFAULT))
settings.load_profile(PROFILE)


TEST_SECONDS = 300
"""The longest that a test may take on a quiet machine."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Time limits of this machine unless ``--timeout`` says one, totals, and no skips in CI."""
    if config.option.timeout is None:
        config.option.timeout = time_limit(TEST_SECONDS)
    config.pluginmanager.register(Totals(), "totals")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(config), "worker of the suite")
    if strict():
        config.pluginmanager.register(NoSkips(), "no skips")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays until the end: the garbage collector leaves it alone.

    It looks at the rest less often, as the scheduler has it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ModuleScheduling | None:
    """A module stays in one process (``--dist loadscope``)."""
    return ModuleScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For a test that sets the logging of the process up; others after it have theirs back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
