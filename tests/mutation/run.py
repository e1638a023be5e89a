"""Judges mutants by the tests that execute them, as a contributor runs tests: without outside data.

One process imports and collects everything once, with all mutants compiled in and none active. A
fork of it runs every test: which ones execute a mutant's place, and that they pass. Then each
mutant is judged in a fork by those tests alone, the nearest and quickest first, until one fails.
That counts once the same tests have passed in a fork without the mutant.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.switch import COLLECTION, REPOSITORY, Switch, compile_in, nearest_first

MARKERS = "not cluster and not nightly and not node"
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0", "-m", MARKERS)
LIMITS = ((signal.ITIMER_PROF, 20.0), (signal.ITIMER_REAL, 120.0))
"""Seconds (of the processor, of the clock) beyond ten times what a test took without a mutant."""
MEMORY = 6 * 2**30
"""Bytes of address space of a fork."""
BUDGET = 60.0
"""Seconds; tests beyond it are left out."""
ASKED = (
    *("policy", "plan", "snapshot", "dra", "grouping", "commit", "dialects", "mutation"),
    *("simulate", "observe", "corpus", "test_planner.py", "test_scheduler.py"),
)
"""Tests that run what is mutated in their own process."""


class BaselineError(RuntimeError):
    """Tests fail without any mutant, so that they prove nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``killer``: the test that notices the mutant, if any; ``tests``: how many were asked."""

    mutant: Mutant
    tests: int
    killer: str | None

    def __str__(self) -> str:
        if self.killer is not None:
            return f"killed: {self.mutant} by {self.killer}"
        return f"survived: {self.mutant} ({self.tests} tests)"


@dataclass(slots=True, eq=False)
class Judge:
    """A plugin of pytest that asks tests about ``mutants`` instead of running them.

    ``recording``: a file for what tests execute, of the same mutants; written if there is none.
    ``budget``: seconds of the processor that the tests of a mutant took without it.
    ``unsound``: tests that execute a mutant's place and fail without any mutant.
    """

    mutants: Sequence[Mutant]
    switch: Switch
    recording: Path | None = None
    budget: float = BUDGET
    verdicts: list[Verdict] = field(default_factory=list)
    unsound: set[str] = field(default_factory=set)
    _seconds: dict[str, float] = field(default_factory=dict)
    _fails: bool = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        self._fails |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once, then those of each mutant."""
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        items = {item.nodeid: item for item in session.items}
        self._record(list(items.values()))
        for number, mutant in enumerate(self.mutants):
            if self.unsound:
                break
            asked = self.tests_for(items, number)
            verdict = Verdict(mutant, 0, None)
            if asked:
                verdict = self._judge(items, number, asked)
            self.verdicts.append(verdict)
            print(verdict, file=sys.stderr, flush=True)
        return True

    def _record(self, items: Sequence[pytest.Item]) -> None:
        """Run all tests once in a fork, unless ``recording`` tells how they went before."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.recording or Path(folder) / "recording"
            if not path.exists():
                child = os.fork()
                if not child:
                    _leave(lambda: self._run_all(items, path))
                os.waitpid(child, 0)
            recorded = [json.loads(line) for line in path.read_text().splitlines()]
        for test, failed, seconds, executed in recorded:
            self._seconds[test] = seconds
            self.switch.executed[test] = set(executed)
            if failed and executed:
                self.unsound.add(test)
        missing = [item.nodeid for item in items if item.nodeid not in self._seconds]
        self.unsound.update(missing[:1])

    def _run_all(self, items: Sequence[pytest.Item], path: Path) -> int:
        _be_quiet(items)
        with path.open("w", encoding="utf-8") as log:
            for item, following in zip(items, [*items[1:], None], strict=True):
                self._run_one(item, following)
                test = item.nodeid
                executed = sorted(self.switch.executed.get(test, ()))
                print(json.dumps([test, self._fails, self._seconds[test], executed]), file=log)
        return 0

    def _run_one(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Run a test; ``_fails`` and ``_seconds`` say how it went."""
        self._fails = False
        self.switch.test = item.nodeid
        started = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self._seconds.setdefault(item.nodeid, time.process_time() - started)

    def _judge(self, items: dict[str, pytest.Item], number: int, asked: list[str]) -> Verdict:
        mutant = self.mutants[number]
        while asked:
            failed = self._first_failure([items[test] for test in asked], number)
            if failed is None:
                break
            if self._first_failure([items[test] for test in asked[: failed + 1]], None) is None:
                return Verdict(mutant, len(asked), asked[failed])
            # It fails without the mutant as well, in this order or by chance.
            del asked[failed]
        at_import = number in self.switch.executed[COLLECTION]
        killer = self._killed_from_the_start(asked, number) if at_import else None
        return Verdict(mutant, len(asked), killer)

    def tests_for(self, items: dict[str, pytest.Item], number: int) -> list[str]:
        """What to ask: tests that execute the place, then others of their files (fixtures)."""
        executing = self.switch.tests_of(number)
        files = {test.partition("::")[0] for test in executing}
        others = {test for test in items if test.partition("::")[0] in files} - executing
        module = self.mutants[number].module
        if number in self.switch.executed[COLLECTION]:
            folder = f"tests/{Path(module).parts[1]}/"
            others |= {test for test in items if test.startswith(folder)} - executing
        ordered = [
            *nearest_first(module, executing, self._seconds),
            *nearest_first(module, others, self._seconds),
        ]
        return self._affordable(ordered)

    def _affordable(self, tests: Sequence[str]) -> list[str]:
        """The first for half of the budget, and for the other half the quickest of the rest."""
        first = list(self._within(self.budget / 2, tests))
        rest = sorted(set(tests).difference(first), key=lambda test: (self._seconds[test], test))
        return [*first, *self._within(self.budget / 2, rest)]

    def _within(self, seconds: float, tests: Sequence[str]) -> Iterator[str]:
        for test in tests:
            seconds -= self._seconds[test]
            if seconds < 0:
                return
            yield test

    def _first_failure(self, items: Sequence[pytest.Item], active: int | None) -> int | None:
        """The position of the first test that fails in a fork, or that ends it."""
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as log:
            child = os.fork()
            if not child:
                _leave(lambda: self._run_until_failure(items, active, log.name))
            _, status = os.waitpid(child, 0)
            started = log.read().count("\n")
        return None if status == 0 else max(started - 1, 0)

    def _run_until_failure(
        self, items: Sequence[pytest.Item], active: int | None, path: str
    ) -> int:
        _be_quiet(items)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self.switch.active = active
        with Path(path).open("w", encoding="utf-8") as log:
            for item, following in zip(items, [*items[1:], None], strict=True):
                print(item.nodeid, file=log, flush=True)
                for timer, seconds in LIMITS:
                    signal.setitimer(timer, seconds + 10 * self._seconds[item.nodeid])
                self._run_one(item, following)
                if self._fails:
                    item.session._setupstate.teardown_exact(None)
                    return 1
        return 0

    def _killed_from_the_start(self, tests: Sequence[str], number: int) -> str | None:
        """Judge a place that is executed at import, by a process of its own."""
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as listed:
            listed.write("\n".join(tests))
            listed.flush()
            mutant = self.mutants[number]
            command = [sys.executable, "-m", "tests.mutation", "--tests", listed.name]
            active = [*command, "--active", f"{mutant.module}:{mutant.place}"]
            return None if _passes(active) or not _passes(command) else "a test, from the import on"


def judge(
    mutants: Sequence[Mutant],
    tests: Sequence[str] = (),
    recording: Path | None = None,
    budget: float = BUDGET,
) -> list[Verdict]:
    """Ask ``tests`` about each of ``mutants``; once per process. Raises BaselineError."""
    tests = tests or [f"tests/{each}" for each in ASKED]
    os.environ["KAI_PY_DATA"] = str(REPOSITORY / "none")
    plugin = Judge(mutants, compile_in(mutants), recording, budget)
    status = pytest.main([*OPTIONS, *tests], plugins=[plugin])
    if plugin.unsound or len(plugin.verdicts) < len(mutants):
        found = "\n  ".join(sorted(plugin.unsound)) or f"pytest ended with {status!r}"
        raise BaselineError(f"tests fail without a mutant:\n  {found}")
    return plugin.verdicts


def ask(tests: Path, active: Mutant | None) -> int:
    """Run the tests listed in a file with ``active`` from the start; the exit code of pytest."""
    compile_in([] if active is None else [active], active=0)
    return pytest.main([*OPTIONS, "-x", f"@{tests}"])


def _passes(command: Sequence[str]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, check=False, timeout=4 * BUDGET
        )
        return done.returncode == 0
    return False


def _be_quiet(items: Sequence[pytest.Item]) -> None:
    plugins = items[0].config.pluginmanager
    plugins.unregister(plugins.get_plugin("terminalreporter"))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)


def _leave(run: Callable[[], int]) -> None:
    """End a fork with the outcome of ``run``, whatever it raises, and nothing of its parent's."""
    code = 1
    try:
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
