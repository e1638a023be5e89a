"""Looks at the objects after every step: what must never be, and what must not last.

After a step only what must hold at every instant is looked at, on documents as they are stored;
``look_closely`` asks the auditor of the product, with everything that the server has.
"""

from collections import Counter
from collections.abc import Iterator

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import controller_of, is_deleting, is_finished, name_of, uid_of
from kai_py.embedded.node_admission import claim_names
from kai_py.embedded.resources import CLAIMS, JOBS, PODS
from tests.fault_simulation.objects import queue_limits
from tests.fault_simulation.schedule import Settings, Work
from tests.support.audits import audit

LASTING_SECONDS = 300.0
"""How long, in time without any fault, a state may last that is normal in passing."""
AUDITED = frozenset((PODS.storage, CLAIMS.storage))
UNAUDITED = (
    "events",
    "leases.coordination.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
)


class Auditor:
    """Findings by the state of the store; the first one ends a simulation."""

    def __init__(self, api: ApiServer, settings: Settings) -> None:
        self.work: dict[str, Work] = {}
        self._api = api
        self._store = api.store
        self.revision = api.store.revision
        """That of the last change of something that is audited."""
        self._audited_revision = -1
        self._before: set[tuple[str, ...]] = set()
        self._limits = queue_limits(settings)
        self._since: dict[str, float] = {}

    def look(self, calm_seconds: float) -> list[str]:
        """Everything that is wrong now; ``calm_seconds`` is the time that passed without faults."""
        pods = [pod for pod in self._store.list(PODS.storage) if not is_finished(pod)]
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        claims = {name_of(claim): claim for claim in self._store.list(CLAIMS.storage)}
        findings = [*_pods_without_devices(bound, claims), *_devices_used_twice(bound, claims)]
        findings += self._queues_over_limit(bound, claims)
        return findings + self._lasting(pods, bound, claims, calm_seconds)

    @property
    def waits_for_time(self) -> bool:
        """Whether what was seen last becomes wrong if only time passes."""
        return bool(self._since)

    def look_closely(self) -> list[str]:
        """What the auditor of the product finds, twice in a row.

        What has not changed and was not found wrong is not looked at again.
        """
        if self.revision == self._audited_revision and not self._before:
            return []
        self._audited_revision = self.revision
        api = self._api
        stored = [each for each in api.registry.storages() if each.storage not in UNAUDITED]
        documents = [document for resource in stored for document in api.list(resource)]
        found = audit(documents, now=api.clock.now())
        before, self._before = self._before, {each.identity for each in found}
        return [f"audit: {each.message}" for each in found if each.identity in before]

    def remains(self) -> list[str]:
        """What is left over when all work should be done and nothing goes wrong any more."""
        found = [
            f"pod {name_of(pod)} is not finished: {_state(pod)}"
            for pod in self._store.list(PODS.storage)
            if not is_finished(pod)
        ]
        found += [
            f"Job {name_of(job)} is not complete"
            for job in self._store.list(JOBS.storage)
            if not _is_complete(job)
        ]
        return found + [
            f"claim {name_of(claim)} is still allocated"
            for claim in self._store.list(CLAIMS.storage)
            if (claim.get("status") or {}).get("allocation")
        ]

    def _queues_over_limit(self, bound, claims) -> Iterator[str]:
        held: Counter[str] = Counter()
        counted = set()
        for pod in bound:
            work = self.work.get(_job_of(pod))
            # What terminates is charged to no queue any more, as everywhere in the scheduler.
            for name in () if work is None or is_deleting(pod) else claim_names(pod):
                if name in claims and name not in counted:
                    counted.add(name)
                    held[work.queue] += len(_devices(claims[name]))
        for queue, devices in held.items():
            if devices > self._limits[queue]:
                yield f"queue {queue} has {devices} GPUs, more than {self._limits[queue]}"

    def _lasting(self, pods, bound, claims, calm_seconds: float) -> list[str]:
        found = [*self._half_gangs(bound), *_reservations_without_pod(pods, claims)]
        self._since = {each: self._since.get(each, calm_seconds) for each in found}
        return [
            f"{each}, for {calm_seconds - since:.0f} s without faults"
            for each, since in self._since.items()
            if calm_seconds - since > LASTING_SECONDS
        ]

    def _half_gangs(self, bound) -> Iterator[str]:
        running = Counter(_job_of(pod) for pod in bound)
        for pod in self._store.list(PODS.storage):
            if pod["status"].get("phase") == "Succeeded":
                running[_job_of(pod)] += 1
        for job in dict.fromkeys(_job_of(pod) for pod in bound):
            work = self.work.get(job)
            if work is not None and running[job] < (work.min_available or work.pods):
                yield f"gang {job} runs below its minMember"


def _pods_without_devices(bound, claims) -> Iterator[str]:
    for pod in bound:
        for name in claim_names(pod):
            claim = claims.get(name) if name else None
            status = (claim or {}).get("status") or {}
            if claim is None or not status.get("allocation"):
                yield f"pod {name_of(pod)} is {_state(pod)} and its claim is not allocated"
            elif all(each["uid"] != uid_of(pod) for each in status.get("reservedFor") or ()):
                yield f"pod {name_of(pod)} is {_state(pod)} and its claim is not reserved for it"
            elif pod["spec"]["nodeName"] not in {pool for _, pool, _ in _devices(claim)}:
                yield f"pod {name_of(pod)} is {_state(pod)}, its devices are on another node"


def _devices_used_twice(bound, claims) -> Iterator[str]:
    users: dict[tuple[str, str, str], str] = {}
    for name in dict.fromkeys(name for pod in bound for name in claim_names(pod)):
        for device in _devices(claims.get(name) or {}):
            other = users.setdefault(device, name)
            if other != name:
                yield f"device {'/'.join(device)} is used by pods of {other} and of {name}"


def _reservations_without_pod(pods, claims) -> Iterator[str]:
    unfinished = {uid_of(pod) for pod in pods}
    for name, claim in claims.items():
        status = claim.get("status") or {}
        for consumer in status.get("reservedFor") or ():
            if consumer["uid"] not in unfinished:
                yield f"claim {name} is reserved for a pod that is gone: {consumer['name']}"
        if status.get("allocation") and not status.get("reservedFor"):
            yield f"claim {name} is allocated and reserved for nothing"


def _devices(claim) -> list[tuple[str, str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(each["driver"], each["pool"], each["device"]) for each in results]


def _job_of(pod) -> str:
    return (controller_of(pod) or {}).get("name", "")


def _state(pod) -> str:
    place = pod["spec"].get("nodeName")
    ending = ", terminating" if is_deleting(pod) else ""
    return f"{pod['status'].get('phase')} on {place or 'no node'}{ending}"


def _is_complete(job) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)
