"""How several processes share a run: which tests each gets, and what it tells the others.

With thousands of tests of a few milliseconds, what is done for each test counts.
"""

from functools import cached_property

import pytest
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


class Worker:
    """One of the processes that run tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._send = None

    def pytest_sessionstart(self) -> None:
        """Find out to which plugins reports go: not to the one that prints them."""
        plugins = self._config.pluginmanager
        self._send = plugins.subset_hook_caller(
            "pytest_runtest_logreport", [plugins.get_plugin("terminalreporter")]
        )

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Modules that wait for servers first and the quickest last.

        So the processors are busy from the beginning, and all workers end together.
        """
        first: dict[str, int] = {}
        for item in items:
            module = item.nodeid.partition("::")[0]
            marked = (item.get_closest_marker(name) for name in ("cluster", "slow"))
            turn = next((turn for turn, mark in enumerate(marked) if mark), 2)
            first[module] = min(turn, first.get(module, turn))
        items.sort(key=lambda item: first[item.nodeid.partition("::")[0]])

    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Send the outcome of a test, and of what comes before and after it only failures.

        All six messages of each test would take an eighth of the time of `make test-fast`. Nor does
        this process print them, or anyone read the keywords of a report.
        """
        if item.config.option.durations is not None:
            return None
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed:
                report.keywords = {}
                self._send(report=report)
        return True


class ModuleScheduling(LoadScopeScheduling):
    """What xdist does for ``--dist loadscope``, in time that does not grow with the suite."""

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.collection)}

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope, tests = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[scope] = tests
        node.send_runtest_some([self._positions[name] for name, done in tests.items() if not done])

    def _reschedule(self, node: WorkerController) -> None:
        work = self.assigned_work[node]
        for scope in [scope for scope, tests in work.items() if all(tests.values())]:
            del work[scope]
        super()._reschedule(node)
