"""Leader election by a Lease: of several replicas only its holder may act.

The holder renews the Lease every ``retry`` seconds. A candidate takes it over when it has seen no
renewal for the Lease's own duration, measured on the candidate's clock from the moment it saw the
last change: clocks of different machines are never compared. The holder gives up after ``renew``
seconds without a successful renewal, measured from before that renewal was sent. As ``renew`` is
shorter than ``duration``, it has stopped before another candidate starts:

    holder  ──renewal sent──────────────── renew ──► stops
    others          └─seen──────────────────── duration ──► may take over

When the Lease is lost, ``on_lost`` is called, then the work is cancelled. By default ``on_lost``
ends the process at once: half-cancelled work must not go on writing. A clean stop releases the
Lease, so that a standby takes over without waiting.

Source: client-go ``tools/leaderelection``, whose timing and Lease fields these are, so that
replicas of both kinds may compete.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec import Struct

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.record import Record
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, Conflict, Forbidden, NotFound
from kai_py.watch.resource import define_kind

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


FAILING_SECONDS = 5.0
"""After which failing attempts count as a problem; a missing permission does at once."""


class LeaseSpec(Record, frozen=True):
    """The holder of the Lease; times are compared for equality only."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Record, frozen=True):
    """coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


LEASES = define_kind(Lease, "Lease", "leases", "v1", group="coordination.k8s.io").at()


ADDRESS_ANNOTATION = "scheduling.kai.io/address"


class Leader(Struct, frozen=True):
    """The holder of a Lease as last observed, and where it is reached; empty: not known."""

    identity: str = ""
    address: str = ""


class LeadershipLostError(Exception):
    """The Lease could not be kept; the work done under it has been stopped."""


class Election(Struct, frozen=True):
    """One Lease and one candidate for it; times in seconds."""

    namespace: str
    name: str
    identity: str
    """Unique to this process, also across restarts."""
    duration: float = 15.0
    """Candidates may take the Lease over this long after they saw its last renewal."""
    renew: float = 10.0
    """The holder gives up this long after its last renewal."""
    retry: float = 2.0
    address: str = ""
    """URL at which other replicas reach this one, written on the Lease."""

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew < self.duration:
            raise ValueError(
                f"lease {self.name}: retry ({self.retry}) must be below renew ({self.renew}) and "
                f"renew below duration ({self.duration})"
            )


class Elector:
    """A candidate in an election."""

    def __init__(
        self,
        client: Client,
        election: Election,
        *,
        on_lost: Callable[[], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._client = client
        self._election = election
        self._on_lost = on_lost or client.machine.exit_process
        self._machine = client.machine
        self._clock = clock or client.machine.boot_time
        self._lease: Lease | None = None
        self._observed_at = 0.0
        self._leads_until = -math.inf
        self._failure, self._failing_since = "", 0.0

    def problems(self) -> list[str]:
        """Why this process could not lead, as sentences; none while it can or another does."""
        failure = self._failure
        if not failure or self._clock() < self._failing_since + FAILING_SECONDS:
            return []
        lease = f"{self._election.namespace}/{self._election.name}"
        return [f"cannot take or renew lease {lease}: {failure}"]

    @property
    def leader(self) -> Leader:
        """The candidate that holds the Lease, which may be this one."""
        lease = self._lease
        if lease is None or not (self.leading or self._is_held_by_other()):
            return Leader()
        address = lease.metadata.annotations.get(ADDRESS_ANNOTATION, "")
        return Leader(lease.spec.holder_identity or "", address)

    @property
    def leading(self) -> bool:
        """Whether this process may act at this moment, also if its event loop was blocked."""
        return self._clock() < self._leads_until

    async def lead(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Wait for the Lease, then do the work while holding it, and release the Lease.

        Raises LeadershipLostError, if ``on_lost`` returns, and whatever the work raises.
        """
        await self._acquire()
        logger.info("%s leads", self._election.identity)
        work_task = asyncio.create_task(work())
        renewal_task = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((work_task, renewal_task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await stop_task(work_task)
            await stop_task(renewal_task)
            await self._release()
        if not renewal_task.cancelled():
            lease = f"{self._election.namespace}/{self._election.name}"
            raise LeadershipLostError(
                f"lease {lease} was not renewed"
            ) from renewal_task.exception()
        return work_task.result()

    async def _acquire(self) -> None:
        while True:
            if await self._try_acquire(within=self._election.renew):
                return
            await asyncio.sleep(self._election.retry * self._machine.uniform(1.0, 1.2))

    async def _renew(self) -> None:
        """Renew until that fails for too long; any end except cancelling is a loss."""
        try:
            while self.leading and not self._is_held_by_other():
                await asyncio.sleep(min(self._election.retry, self._leads_until - self._clock()))
                left = self._leads_until - self._clock()
                if left > 0:
                    await self._try_acquire(within=left)
        except Exception:
            logger.exception("cannot renew the lease")
        self._leads_until = -math.inf
        if self._failure:
            logger.warning("lease %s was not renewed: %s", self._election.name, self._failure)
        self._on_lost()

    async def _try_acquire(self, *, within: float) -> bool:
        """Try once to take or renew the Lease; False if that failed or another candidate has it.

        One call that hangs takes at most half of the time, so that there is another attempt.
        """
        started = self._clock()
        within = min(within, self._election.renew / 2)
        try:
            async with asyncio.timeout(within):
                held = await self._read_and_write()
        except TimeoutError:
            self._note_failure(f"no answer within {within:.1f} s")
            return False
        except ApiError as error:
            self._note_failure(error, at_once=isinstance(error, Forbidden))
            return False
        self._failure = ""
        if not held:
            return False
        # Counted from before the request was sent, as the server may have written it that early.
        self._leads_until = started + self._election.renew
        return True

    def _note_failure(self, failure: str | ApiError, *, at_once: bool = False) -> None:
        # The error itself, by which the log knows an outage that was reported already.
        logger.warning("lease %s: %s", self._election.name, failure)
        if not self._failure:
            self._failing_since = self._clock() - (FAILING_SECONDS if at_once else 0.0)
        self._failure = str(failure)

    async def _read_and_write(self) -> bool:
        """Take or renew the Lease; its holder reads it only if another has changed it."""
        if self.leading and self._lease:
            with contextlib.suppress(Conflict, NotFound):
                await self._claim(self._lease)
                return True
        namespace = {"namespace": self._election.namespace}
        try:
            lease = await self._client.get(LEASES, self._election.name, **namespace)
        except NotFound:
            body = {
                "metadata": {"name": self._election.name, **self._annotations(None)},
                "spec": self._claimed_spec(LeaseSpec()),
            }
            self._observe(await self._client.create(LEASES, body, **namespace))
            return True
        self._observe(lease)
        if self._is_held_by_other():
            return False
        await self._claim(lease)
        return True

    async def _claim(self, lease: Lease) -> None:
        self._observe(await self._write(lease, self._claimed_spec(lease.spec)))

    async def _write(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        """Write unless the Lease has changed; a patch leaves labels and owners alone."""
        version = {"resourceVersion": lease.metadata.resource_version}
        body = {"metadata": {**version, **self._annotations(lease)}, "spec": spec}
        return await self._client.patch(
            LEASES, self._election.name, body, namespace=self._election.namespace
        )

    def _annotations(self, lease: Lease | None) -> dict[str, Any]:
        """Our address, or the removal of another's; nothing if the Lease has what it should."""
        written = lease.metadata.annotations.get(ADDRESS_ANNOTATION, "") if lease else ""
        if written == self._election.address:
            return {}
        return {"annotations": {ADDRESS_ANNOTATION: self._election.address or None}}

    def _observe(self, lease: Lease) -> None:
        if self._lease is None or self._lease.spec != lease.spec:
            self._observed_at = self._clock()
        self._lease = lease

    def _is_held_by_other(self) -> bool:
        """Whether another candidate holds the Lease, as far as has been observed."""
        spec = self._lease.spec if self._lease else LeaseSpec()
        if spec.holder_identity in (None, "", self._election.identity):
            return False
        duration = spec.lease_duration_seconds or self._election.duration
        return self._clock() < self._observed_at + duration

    def _claimed_spec(self, spec: LeaseSpec) -> dict[str, Any]:
        is_ours = spec.holder_identity == self._election.identity
        transitions = spec.lease_transitions or 0
        return {
            "holderIdentity": self._election.identity,
            "leaseDurationSeconds": math.ceil(self._election.duration),
            "acquireTime": spec.acquire_time if is_ours else self._now(),
            "renewTime": self._now(),
            "leaseTransitions": transitions if is_ours else transitions + 1,
        }

    async def _release(self) -> None:
        """Release the Lease, so that a standby need not wait; failing to do so is harmless."""
        was_leading, self._leads_until = self.leading, -math.inf
        if not was_leading or self._lease is None:
            return
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(self._election.retry):
                await self._write_release(self._lease)

    async def _write_release(self, lease: Lease) -> None:
        released_spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
        while lease.spec.holder_identity == self._election.identity:
            try:
                await self._write(lease, released_spec)
            except Conflict:
                # The last renewal was cancelled while under way, but was written all the same.
                name, namespace = self._election.name, self._election.namespace
                lease = await self._client.get(LEASES, name, namespace=namespace)
            else:
                return

    def _now(self) -> str:
        return self._machine.utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def stop_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.wait((task,))
