"""Explanations of the gangs of a cluster that was read as a whole, with suggestions.

Commands ask for them (``explain``), and so does the advisor of a running scheduler. Events say why
controllers could not create pods: a ResourceQuota, an admission webhook or a policy is named in the
message of the refusal.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.choices import Subject
from kai_py.config import Configuration
from kai_py.embedded.documents import is_deleting
from kai_py.observe.event_history import (
    FAILED_CREATE,
    ClusterEvent,
    DecisionHistory,
    decisions_of_events,
)
from kai_py.observe.explanation import (
    NO_PODS,
    OTHER_SCHEDULER,
    Explanation,
    explain_deleted,
    explain_subject,
)
from kai_py.observe.gang_rows import TERMINATING
from kai_py.observe.suggestion import Suggestion
from kai_py.plan.plan import Stage
from kai_py.simulate.files.objects import Document
from kai_py.simulate.remedies.absent_gangs import (
    correct_absent,
    explain_absent,
    is_suspended,
    key_of,
    objects_below,
)
from kai_py.simulate.remedies.suggestions import suggest
from kai_py.simulate.what_if import LoadedCluster
from kai_py.snapshot.snapshot import Snapshot

MAX_ADVISED = 3
"""Most gangs of one answer for which suggestions are searched, the first ones."""
INCOMPLETE = (Stage.BELOW_MIN_MEMBER.value, NO_PODS)
RECENT_SECONDS = 900.0
"""A controller tries again within ten minutes at most, so older refusals are over."""
PREFIX = "Error creating: "


def _ignore_explained(_found: list[Explanation]) -> None:
    """Wait for the end of the search."""


def _ignore_found(_gang: str, _suggestion: Suggestion) -> None:
    """Wait for the end of the search."""


class SearchReport(Struct, frozen=True):
    """Callbacks of a running search: the explanations first, then each suggestion."""

    on_explained: Callable[[list[Explanation]], None] = _ignore_explained
    on_found: Callable[[str, Suggestion], None] = _ignore_found


def explain_cluster(
    documents: Sequence[Document],
    configuration: Configuration,
    *,
    now: float,
    subject: Subject,
    name: str,
    with_suggestions: bool = True,
    has_time: Callable[[], bool] = lambda: True,
    events: Iterable[ClusterEvent] = (),
    since: float = 0.0,
    report: SearchReport | None = None,
) -> list[Explanation]:
    """Explain the gangs that ``name`` stands for, with suggestions for pending ones.

    ``events`` report earlier decisions, of which those after ``since`` are included, and pods that
    the API server refused. ``has_time`` is called before every simulation; once it returns False
    the search ends with the suggestions found so far. ``report`` gets the explanations before the
    search, and each suggestion as it is found.
    """
    report = report or SearchReport()
    cluster, events = LoadedCluster(documents, configuration, now), tuple(events)
    snapshot, plan = cluster.snapshot, cluster.plan(last=not with_suggestions)
    history = DecisionHistory(decisions_of_events(events), snapshot, plan)
    about = partial(history.about, since=since)
    found = explain_subject(
        snapshot, plan, subject, name, decisions=history.decisions, history=about
    )
    absent = explain_absent(documents, subject, name)
    # In the simulation, controllers make the pods that the cluster's controllers could not make.
    if absent is not None and (not found or not is_suspended(absent)):
        found = [replace(absent, history=about(absent.gang))]
    still_there = _without_deleted(documents, snapshot, found)
    noted = _with_deletions(documents, snapshot, still_there)
    found = list(_with_refusals(noted, documents, events, now))
    report.on_explained(found)
    if not with_suggestions:
        return found
    pending = {each.gang for each in plan.unplaced}
    return _with_suggestions(cluster, found, pending, has_time, report)


def _with_suggestions(
    cluster: LoadedCluster,
    found: list[Explanation],
    pending: Container[str],
    has_time: Callable[[], bool],
    report: SearchReport,
) -> list[Explanation]:
    """The explanations with suggestions for the first gangs of ``pending``."""
    documents = cluster.documents
    if found and found[0].state in (OTHER_SCHEDULER, NO_PODS):
        corrected = correct_absent(documents, cluster, cluster.settled(), found[0])
        for each in corrected:
            report.on_found(found[0].gang, each)
        return [replace(found[0], suggestions=corrected), *found[1:]]
    advised = [each.gang for each in found if each.gang in pending][:MAX_ADVISED]
    if not advised:
        return found
    baseline = cluster.settled()
    suggestions = {
        key: suggest(
            documents, cluster, baseline, key, has_time, on_found=partial(report.on_found, key)
        )
        for key in advised
    }
    unfinished = not has_time()
    return [
        replace(each, suggestions=suggestions[each.gang], is_search_unfinished=unfinished)
        if each.gang in suggestions
        else each
        for each in found
    ]


def _without_deleted(
    documents: Sequence[Document], snapshot: Snapshot, found: Iterable[Explanation]
) -> Iterator[Explanation]:
    """The explanations; gangs that end as their workload is gone are deleted ones."""
    uids = {each["metadata"].get("uid") or None for each in documents}
    # Owners of a kind of which none was read may exist; Jobs are always read.
    kinds = {"Job", *(each["kind"] for each in documents)}
    for each in found:
        gang = snapshot.gangs.get(each.gang)
        is_gone = gang is not None and gang.owner.kind in kinds and gang.owner.uid not in uids
        if is_gone and each.state == TERMINATING and each.history:
            deleted = explain_deleted(each.gang, each.history)
            yield replace(deleted, message="its last pods are ending")
        else:
            yield each


def _with_deletions(
    documents: Sequence[Document], snapshot: Snapshot, found: Iterable[Explanation]
) -> Iterator[Explanation]:
    """The explanations; those of gangs with an owner that is being deleted begin with that."""
    deleted = {
        key_of(each): f"{each['kind']} {each['metadata']['name']} is being deleted"
        for each in documents
        if is_deleting(each) and each["kind"] != "Pod"
    }
    for each in found:
        gang = snapshot.gangs.get(each.gang) if deleted else None
        if gang is not None:
            named = [(gang.owner.kind, gang.owner.name)]
            named += (owner for member in gang.members for owner in member.workloads)
            keys = (f"{gang.owner.namespace}/{kind}/{name}" for kind, name in named)
            note = next((deleted[key] for key in keys if key in deleted), "")
            yield replace(each, message=". ".join(filter(None, (note, each.message))))
        else:
            yield each


def _with_refusals(
    found: Iterable[Explanation],
    documents: Sequence[Document],
    events: Iterable[ClusterEvent],
    now: float,
) -> Iterator[Explanation]:
    """The explanations; those of gangs that lack pods end with the last refusal of one."""
    recent = (
        each
        for each in events
        if each.reason == FAILED_CREATE and now - each.last_seen <= RECENT_SECONDS
    )
    last = {
        f"{event.involved_object.namespace}/{event.involved_object.kind}/"
        f"{event.involved_object.name}": event.message.removeprefix(PREFIX)
        for event in sorted(recent, key=lambda each: (each.last_seen, each.message))
    }
    for each in found:
        if each.state in INCOMPLETE and last:
            refused = [last[name] for name in _owners(each.gang, documents) if name in last]
            note = f"The API server refuses its pods: {refused[0]}" if refused else ""
            yield replace(each, message=" ".join(filter(None, (each.message, note))))
        else:
            yield each


def _owners(gang: str, documents: Sequence[Document]) -> Iterator[str]:
    """Keys of the gang's workload and of the objects below it."""
    workload = next((each for each in documents if key_of(each) == gang), None)
    if workload is not None:
        yield gang
        yield from map(key_of, objects_below(documents, workload))
