"""Fixtures of the tests that run the controllers of frameworks."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster.controlplane import Process
from tests.cluster.frameworks.controllers import Controller, controller
from tests.support.cluster.clusters import Cluster

RunController = Callable[[Controller], Awaitable[Process]]


@pytest.fixture
async def run_controller(real: Cluster, tmp_path: Path) -> AsyncIterator[RunController]:
    """Start a controller on the real control plane; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def run(which: Controller) -> Process:
            return await stack.enter_async_context(controller(real, which, tmp_path))

        yield run
