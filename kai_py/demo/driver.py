"""Runs the steps of a script against the API, as users with a client would.

A step begins once all milestones it depends on have been reached and its pause has passed; if they
are not reached within ``STEP_TIMEOUT`` seconds, the demo ends there.
"""

import asyncio
from collections.abc import Callable

from kai_py.demo.events import AnyDemoEvent, StepStarted
from kai_py.demo.script import MilestoneReached, Script, ScriptStep
from kai_py.demo.workloads import NAMESPACE, job_manifest
from kai_py.embedded.kubelet import RUN_SECONDS
from kai_py.watch.client import Client
from kai_py.watch.errors import NotFound
from kai_py.watch.kinds import JOBS, PODS

STEP_TIMEOUT = 20.0
JOB_LABEL = "batch.kubernetes.io/job-name"


class ScriptDriver:
    """Runs steps; ``changed`` must be set whenever the result of ``has_seen`` may change."""

    def __init__(
        self,
        client: Client,
        *,
        speed: float,
        publish: Callable[[AnyDemoEvent], None],
        clock: Callable[[], float],
        has_seen: Callable[[tuple[MilestoneReached, ...]], bool],
        changed: asyncio.Event,
    ) -> None:
        self._client = client
        self._speed = speed
        self._publish = publish
        self._clock = clock
        self._has_seen = has_seen
        self._changed = changed

    async def run(self, script: Script) -> bool:
        """Run all steps; False when one could not begin."""
        for number, step in enumerate(script.steps, start=1):
            if not await self.wait_for(step.after):
                return False
            await asyncio.sleep(step.pause / self._speed)
            self._publish(_step_started(step, number, len(script.steps), self._clock()))
            await self._start_step(step)
        return await self.wait_for(_final_milestones(script))

    async def end(self, job: str) -> None:
        """Let the pods of a Job succeed."""
        pods = await self._client.list(
            PODS.at(), namespace=NAMESPACE, label_selector=f"{JOB_LABEL}={job}"
        )
        done = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        for pod in pods.items:
            try:
                await self._client.patch(PODS.at(), pod.metadata.name, done, namespace=NAMESPACE)
            except NotFound:
                continue

    async def wait_for(self, wanted: tuple[MilestoneReached, ...]) -> bool:
        """Whether all these milestones are reached in time."""
        try:
            async with asyncio.timeout(STEP_TIMEOUT):
                while not self._has_seen(wanted):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _start_step(self, step: ScriptStep) -> None:
        for job in step.end:
            await self.end(job)
        for workload in step.submit:
            manifest = job_manifest(workload)
            await self._client.create(JOBS.at(), manifest, namespace=NAMESPACE)


def _step_started(step: ScriptStep, number: int, of: int, time: float) -> StepStarted:
    return StepStarted(
        time=time,
        number=number,
        total=of,
        title=step.title,
        submitted=tuple(workload.name for workload in step.submit),
        ended=step.end,
    )


def _final_milestones(script: Script) -> tuple[MilestoneReached, ...]:
    return tuple(
        milestone for expectation in script.expectations for milestone in expectation.milestones
    )
