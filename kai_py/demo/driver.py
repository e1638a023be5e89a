"""Who does what when? Plays a script's steps against the API, as users with a client would.

A step begins once everything it builds on has been seen and its pause has passed; if that is not
seen in ``PATIENCE`` seconds more, the demo ends there.
"""

import asyncio
from collections.abc import Callable

from kai_py.demo.events import AnyHappening, StepBegan
from kai_py.demo.script import Script, Seen, Step
from kai_py.demo.workloads import NAMESPACE, job_manifest
from kai_py.embedded.kubelet import RUN_SECONDS
from kai_py.watch.client import Client
from kai_py.watch.errors import NotFound
from kai_py.watch.kinds import JOBS, PODS

PATIENCE = 20.0
JOB_LABEL = "batch.kubernetes.io/job-name"


class Director:
    """Plays steps; ``changed`` is set whenever ``has_seen`` may answer differently."""

    def __init__(
        self,
        client: Client,
        *,
        speed: float,
        tell: Callable[[AnyHappening], None],
        clock: Callable[[], float],
        has_seen: Callable[[tuple[Seen, ...]], bool],
        changed: asyncio.Event,
    ) -> None:
        self._client = client
        self._speed = speed
        self._tell = tell
        self._clock = clock
        self._has_seen = has_seen
        self._changed = changed

    async def play(self, script: Script) -> bool:
        """Play all steps; False when one could not begin."""
        for number, step in enumerate(script.steps, start=1):
            if not await self.wait_for(step.once):
                return False
            await asyncio.sleep(step.pause / self._speed)
            self._tell(_began(step, number, len(script.steps), self._clock()))
            await self._begin(step)
        return await self.wait_for(_last(script))

    async def end(self, job: str) -> None:
        """Let the pods of a Job succeed: their work is done."""
        pods = await self._client.list(
            PODS.at(), namespace=NAMESPACE, label_selector=f"{JOB_LABEL}={job}"
        )
        done = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        for pod in pods.items:
            try:
                await self._client.patch(PODS.at(), pod.metadata.name, done, namespace=NAMESPACE)
            except NotFound:
                continue

    async def wait_for(self, wanted: tuple[Seen, ...]) -> bool:
        """Whether all of this is seen in time."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not self._has_seen(wanted):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _begin(self, step: Step) -> None:
        for job in step.end:
            await self.end(job)
        for workload in step.submit:
            manifest = job_manifest(workload)
            await self._client.create(JOBS.at(), manifest, namespace=NAMESPACE)


def _began(step: Step, number: int, of: int, time: float) -> StepBegan:
    return StepBegan(
        time=time,
        number=number,
        of=of,
        title=step.title,
        submitted=tuple(workload.name for workload in step.submit),
        ended=step.end,
    )


def _last(script: Script) -> tuple[Seen, ...]:
    return tuple(seen for each in script.expectations for seen in each.seen)
