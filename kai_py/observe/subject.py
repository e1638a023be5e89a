"""Subjects of explanations: the gangs to which a gang, pod, workload, claim or queue refers.

A name is NAMESPACE/NAME, of a gang NAMESPACE/KIND/NAME or, where no other kind has the name,
NAMESPACE/NAME; of a workload NAMESPACE/KIND/NAME, with the kind in any case; of a queue NAME. A
workload refers to the gangs of all pods below it. Complexity: O(pods).
"""

from collections.abc import Iterator, Sequence

from kai_py.api.choices import Subject
from kai_py.observe.claim_funnel import ClaimFunnel, claim_funnel
from kai_py.observe.cluster_view import pending_by_queue
from kai_py.observe.decision_log import Decision, decisions_about
from kai_py.plan.plan import Plan
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.known_names import MisnamedScheduler


def gang_keys(snapshot: Snapshot, plan: Plan, subject: Subject, name: str) -> Iterator[str]:
    """Keys of the gangs that ``name`` stands for; a missing namespace is ``default``."""
    match subject:
        case Subject.GANG:
            yield from _gangs_named(snapshot, name)
        case Subject.JOB:
            key = _job_gang_key(name)
            # Below a JobSet or another framework a Job is part of a gang.
            yield from (key,) if key in snapshot.gangs else _gangs_of_workload(snapshot, key)
        case Subject.WORKLOAD:
            yield from _gangs_of_workload(snapshot, name)
        case Subject.POD:
            yield from _gang_of_pod(snapshot, *_namespaced(name))
        case Subject.CLAIM:
            yield from _gangs_of_claim(snapshot, *_namespaced(name))
        case Subject.QUEUE:
            yield from gangs_of_queue(snapshot, plan, name)


def named(subject: Subject, name: str) -> str:
    """The kind and the name of a subject in messages: ``deployment default/web``."""
    if subject is not Subject.WORKLOAD:
        return f"{subject} {name}"
    namespace, kind, own_name = _of_workload(name)
    return f"{kind} {namespace}/{own_name}"


def gangs_of_queue(snapshot: Snapshot, plan: Plan, queue: str) -> list[str]:
    """Keys of the gangs of a queue itself: the pending ones first, in their order."""
    gangs = [gang for gang in snapshot.gangs.values() if gang.queue == queue]
    gangs.sort(key=lambda gang: (not gang.pending, -gang.priority, gang.created, gang.key))
    pending = pending_by_queue(snapshot, plan).get(queue, ())
    return list(dict.fromkeys((*pending, *(gang.key for gang in gangs))))


def claim_funnel_of(snapshot: Snapshot, subject: Subject, name: str) -> ClaimFunnel | None:
    """The device funnel of the claim, if the subject is one."""
    return claim_funnel(snapshot, *_namespaced(name)) if subject is Subject.CLAIM else None


def misnamed_scheduler(snapshot: Snapshot, subject: Subject, name: str) -> MisnamedScheduler | None:
    """The pod, or the first of the workload, whose schedulerName is almost this scheduler's."""
    namespace, own_name = _namespaced(name)
    kind = ""
    if subject in (Subject.GANG, Subject.WORKLOAD) and namespace.count("/") == 1:
        namespace, _, kind = namespace.partition("/")
    for each in snapshot.misnamed_schedulers:
        names = (
            (each.pod.name,)
            if subject is Subject.POD
            else (each.owner[1],)
            if subject in (Subject.GANG, Subject.JOB, Subject.WORKLOAD)
            else ()
        )
        of_kind = kind.lower() in ("", each.owner[0].lower())
        if each.pod.namespace == namespace and own_name in names and of_kind:
            return each
    return None


def names_of(snapshot: Snapshot, subject: Subject) -> Iterator[str]:
    """The names that can be explained as ``subject``, as they are written; O(pods)."""
    match subject:
        case Subject.GANG:
            yield from snapshot.gangs
        case Subject.JOB:
            gangs = (key.split("/") for key in snapshot.gangs)
            yield from (f"{parts[0]}/{parts[2]}" for parts in gangs if parts[1] == "Job")
        case Subject.WORKLOAD:
            for gang in snapshot.gangs.values():
                names = dict.fromkeys(each for member in gang.members for each in member.workloads)
                yield from (f"{gang.owner.namespace}/{kind.lower()}/{own}" for kind, own in names)
        case Subject.POD:
            for gang in snapshot.gangs.values():
                yield from (f"{each.pod.namespace}/{each.pod.name}" for each in gang.members)
        case Subject.CLAIM:
            yield from ("/".join(name) for name in snapshot.devices.claims)
        case Subject.QUEUE:
            yield from (spec.name for spec in snapshot.queues)


def deleted_gang_key(subject: Subject, name: str, decisions: Sequence[Decision]) -> str:
    """Key of a deleted gang that ``decisions`` mention; "" if there is none."""
    if subject is Subject.POD:
        pod = "/".join(_namespaced(name))
        return next((each.gang for each in reversed(decisions) if pod in each.pods), "")
    if subject is Subject.WORKLOAD:
        wanted = name.lower()
        return next((each.gang for each in reversed(decisions) if each.gang.lower() == wanted), "")
    key = _job_gang_key(name) if subject is Subject.JOB else name
    return key if decisions_about(key, decisions) else ""


def _gangs_named(snapshot: Snapshot, name: str) -> Iterator[str]:
    """The key itself, or those of the namespace's gangs of any kind that have the name."""
    if name in snapshot.gangs or name.count("/") != 1:
        yield name
        return
    namespace, own_name = _namespaced(name)
    found = sorted(
        key
        for key in snapshot.gangs
        if key.startswith(f"{namespace}/") and key.endswith(f"/{own_name}")
    )
    yield from found or (name,)


def _namespaced(name: str) -> tuple[str, str]:
    namespace, _, own_name = name.rpartition("/")
    return namespace or "default", own_name


def _job_gang_key(name: str) -> str:
    namespace, own_name = _namespaced(name)
    return f"{namespace}/Job/{own_name}"


def _gangs_of_workload(snapshot: Snapshot, name: str) -> list[str]:
    """Keys of the gangs that a workload is, or that have pods below it: those pending first."""
    namespace, kind, own_name = _of_workload(name)

    def is_meant(workload: tuple[str, str]) -> bool:
        return workload[1] == own_name and workload[0].lower() == kind

    found = [
        gang
        for gang in snapshot.gangs.values()
        if gang.owner.namespace == namespace
        and (
            is_meant((gang.owner.kind, gang.owner.name))
            or any(is_meant(each) for member in gang.members for each in member.workloads)
        )
    ]
    return [each.key for each in sorted(found, key=lambda gang: (not gang.pending, gang.key))]


def _of_workload(name: str) -> tuple[str, str, str]:
    """Namespace, kind in lower case, and own name."""
    place, _, own_name = name.rpartition("/")
    namespace, _, kind = place.rpartition("/")
    return namespace or "default", kind.lower(), own_name


def _gang_of_pod(snapshot: Snapshot, namespace: str, name: str) -> Iterator[str]:
    for gang in snapshot.gangs.values():
        if any((m.pod.namespace, m.pod.name) == (namespace, name) for m in gang.members):
            yield gang.key
            return


def _gangs_of_claim(snapshot: Snapshot, namespace: str, name: str) -> Iterator[str]:
    """Keys of the gangs whose pods use the claim, or wait for it."""
    for key, gang in sorted(snapshot.gangs.items()):
        claims = (each for m in gang.members for each in (*m.claims, *m.unready_claims))
        if any((claim.namespace, claim.name) == (namespace, name) for claim in claims):
            yield key
