"""Periodic maintenance alongside the cycles: repairs that no plan covers.

Leftover claims are released, damaged pods repaired, bindings that the API has lost forgotten, grace
periods of pods of suspended Jobs shortened, reservation pods of shared GPUs deleted when no pod
needs them, and lasting problems of objects reported. Nothing is decided on a stale view.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator

from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.claims.recovery import (
    GroupOwnership,
    LeftoverTracker,
    find_leftover_claims,
    planned_pods,
)
from kai_py.commit.committer import Committer
from kai_py.commit.dependencies import ExecutorDependencies
from kai_py.commit.event_writer import EventWriter
from kai_py.commit.eviction import ForcedEvictions, find_long_graces, shorten_grace
from kai_py.commit.gpu_reservations import GpuReservations
from kai_py.commit.pod_state import fence_pod
from kai_py.commit.reports import NamedTask
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.upkeep.lost_devices import DamagedPod, PodRepair, RepairPasses, find_damaged_pods
from kai_py.commit.upkeep.reservation_pods import GpuUpkeep
from kai_py.grouping.gang import Owner
from kai_py.plan.observations import ObjectProblem
from kai_py.plan.plan import Plan
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.watch.kinds import PODS, RESOURCE_CLAIMS


class Maintenance:
    """The passes; ``plan`` is to be kept up to date with the last plan."""

    def __init__(
        self,
        dependencies: ExecutorDependencies,
        committer: Committer,
        events: EventWriter,
        evictions: ForcedEvictions,
        gpu_reservations: GpuReservations | None,
    ) -> None:
        """``gpu_reservations`` is None where no GPUs are shared."""
        self.plan = Plan()
        self._dependencies = dependencies
        self._committer = committer
        self._events = events
        self._evictions = evictions
        self._gpu_reservations = gpu_reservations
        self._last_problems: tuple[ObjectProblem, ...] = ()
        settings = dependencies.settings
        self._leftovers = LeftoverTracker(settings.claim_grace)
        self._group_ownership = GroupOwnership(
            dependencies.access(settings.status_concurrency),
            dependencies.claiming_groups,
            ObjectBackoff(settings.backoff),
        )

    def background(self) -> Iterator[NamedTask]:
        """What runs beside the cycles."""
        yield "recovery", self._recover
        yield "repair", self._repair
        yield "unseen bindings", self._end_unseen
        yield "grace periods", self._shorten_graces
        if self._gpu_reservations is not None:
            yield "shared GPUs", self._keep_gpus

    async def _recover(self) -> None:
        dependencies, settings = self._dependencies, self._dependencies.settings
        while True:
            await asyncio.sleep(settings.claim_grace / 3)
            await self._group_ownership.refresh()
            in_use = planned_pods(self.plan) | self._committer.pods_in_flight
            in_use |= dependencies.assume_cache.assumed_pods()
            found = find_leftover_claims(
                dependencies.mirror.objects(RESOURCE_CLAIMS).values(),
                dependencies.mirror.objects(PODS).values(),
                settings.scheduler_names,
                in_use,
                dependencies.claiming_groups.our_groups(),
            )
            due = self._leftovers.due(found, asyncio.get_running_loop().time())
            if dependencies.is_fresh:
                self._committer.release_leftovers(due)
            self._report_lasting_problems()

    async def _repair(self) -> None:
        dependencies, settings = self._dependencies, self._dependencies.settings
        mirror = dependencies.mirror
        passes = RepairPasses(
            repair=PodRepair(
                access=dependencies.access(settings.status_concurrency),
                holders=dependencies.holders,
                event_writer=self._events,
                evictions=self._evictions,
                count=dependencies.count_repair,
            ),
            find=lambda: find_damaged_pods(
                mirror.objects(PODS).values(),
                mirror.objects(RESOURCE_CLAIMS),
                settings.scheduler_names,
            ),
            is_written=self._is_written,
            catch_up=dependencies.freshness.catch_up,
        )
        while True:
            await asyncio.sleep(settings.repair_interval)
            if not dependencies.freshness.behind():
                await passes.run_once()

    async def _end_unseen(self) -> None:
        """On a stale view as well, as it may be wrong: what is decided here rests on a read."""
        dependencies, settings = self._dependencies, self._dependencies.settings
        unseen = UnseenBindings(
            dependencies.access(settings.status_concurrency),
            dependencies.assume_cache,
            lambda: self._committer.pods_in_flight,
            settings.claim_grace,
        )
        while True:
            await asyncio.sleep(settings.claim_grace / 3)
            pods = dependencies.mirror.objects(PODS)
            await unseen.run_once(pods.values, asyncio.get_running_loop().time())

    async def _shorten_graces(self) -> None:
        dependencies, settings = self._dependencies, self._dependencies.settings
        access = dependencies.access(settings.status_concurrency)
        while True:
            await asyncio.sleep(settings.repair_interval)
            pods = dependencies.mirror.objects(PODS).values()
            found = find_long_graces(pods, settings.scheduler_names, settings.max_grace)
            for pod in tuple(found):
                await shorten_grace(access, pod, settings.max_grace)

    async def _keep_gpus(self) -> None:
        """Delete reservation pods that are not needed."""
        if self._gpu_reservations is None:
            return
        dependencies, loop = self._dependencies, asyncio.get_running_loop()
        upkeep = GpuUpkeep(
            groups=dependencies.gpu_groups,
            reservations=self._gpu_reservations,
            in_use=self._committer.gpus_in_flight,
            releasing=self._committer.releasing_gpus,
            catch_up=dependencies.freshness.catch_up,
            event_writer=self._events,
            evictions=self._evictions,
            count=dependencies.count_repair,
            scheduler_names=dependencies.settings.scheduler_names,
        )
        while True:
            await asyncio.sleep(dependencies.settings.gpu_interval)
            # Without shared GPUs nothing is decided, however old the view is.
            if not upkeep.has_gpus or dependencies.is_fresh:
                await upkeep.run_once(loop.time())

    def _is_written(self, damaged: DamagedPod) -> bool:
        """Whether a transaction or release is at work on the pod or its claim."""
        claim, committer = damaged.claim.uid, self._committer
        return claim in committer.releasing or any(
            map(committer.is_committing, (claim, damaged.pod.uid))
        )

    def _report_lasting_problems(self) -> None:
        """Report problems of two passes in a row: pools are incomplete while they are written."""
        problems = (*self.plan.problems, *self._unreadable_objects())
        previous, self._last_problems = self._last_problems, problems
        for problem in self._last_problems:
            if problem in previous:
                self._events.report_problem(problem)

    def _unreadable_objects(self) -> Iterator[ObjectProblem]:
        for status in self._dependencies.mirror.status_of_unreadable():
            for each in status.rejected:
                namespace, name = each.key
                unreadable = Owner(status.api_version, each.kind, namespace, name, each.uid)
                reason = f"it cannot be read and is ignored: {each.reason}"
                yield ObjectProblem(unreadable, reason)


log = logging.getLogger(__name__)


class UnseenBindings:
    """Bindings that were made, and that the watch does not show for ``grace`` seconds.

    A pod counts as bound from the decision on, until the watch shows it on its node. If the API's
    data go back in time (etcd is restored from a backup), the binding is undone and no event
    reports it: the pod would wait forever, with capacity that it does not use. So the pod is read
    and fenced: if that proves it to be on no node, it is pending again.

    O(assumed pods) per pass, one read and one write for each that is due.
    """

    def __init__(
        self,
        access: ApiAccess,
        assume_cache: SnapshotBuilder,
        in_flight: Callable[[], Collection[str]],
        grace: float,
    ) -> None:
        """``in_flight``: uids of the pods in running transactions, which end by themselves."""
        self._access, self._assume_cache = access, assume_cache
        self._in_flight, self._grace = in_flight, grace
        self._since: dict[str, float] = {}

    async def run_once(self, pods: Callable[[], Iterable[Pod]], now: float) -> None:
        """Look at all ``pods`` of the mirror; ``now`` on any clock, in seconds."""
        assumed = self._assume_cache.assumed_pods() - frozenset(self._in_flight())
        self._since = {uid: self._since.get(uid, now) for uid in sorted(assumed)}
        due = {uid for uid, since in self._since.items() if now - since >= self._grace}
        # Placeholders of suspended Jobs are no pods: they end with the Job.
        seen = pods() if due else ()
        found = [PodRef.of(pod.metadata) for pod in seen if pod.metadata.uid in due]
        for pod in found:
            if (await fence_pod(self._access, pod)).proves_unused and self._is_assumed(pod.uid):
                self._since.pop(pod.uid, None)
                self._assume_cache.forget(pod.uid)
                log.warning(
                    "pod %s/%s: its binding is not in the API any more; it is pending again",
                    pod.namespace,
                    pod.name,
                )

    def _is_assumed(self, uid: str) -> bool:
        """Whether the assumption still stands after the wait for a read."""
        return uid in self._assume_cache.assumed_pods() and uid not in self._in_flight()
