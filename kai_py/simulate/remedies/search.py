"""Search for remedies: a pending gang, its cluster, and a simulation of every candidate.

A remedy is tried as steps on a copy of the cluster; it is suggested only if the gang runs then.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from kai_py.embedded.documents import clone
from kai_py.observe.suggestion import Suggestion, SuggestionStep, Verb
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Stage
from kai_py.simulate.changes import SERVER_FIELDS, ApplySteps, ChangeError
from kai_py.simulate.files.objects import Document
from kai_py.simulate.what_if import (
    Comparison,
    LoadedCluster,
    SettledCluster,
    compare,
    smallest_sufficient,
)
from kai_py.snapshot.accounting import GPU, total
from kai_py.snapshot.gangs import Charge, Gang, Member
from kai_py.snapshot.snapshot import Snapshot

MAX_CACHED_TRIALS = 16
"""Simulations whose outcome is cached: remedies often repeat recent ones."""
JOB_CONTROLLER_LABELS = ("controller-uid", "job-name")
"""Labels that the API server adds to the pods of a Job, also below ``batch.kubernetes.io/``."""


class PartialRemedy(Struct, frozen=True):
    """A change with which the gang does not start, but is stopped at a later stage."""

    text: str
    steps: tuple[SuggestionStep, ...]


@dataclass(frozen=True, slots=True)
class RemedySearch:
    """One pending gang in one cluster, and the outcome without any change (``baseline``)."""

    documents: Sequence[Document]
    cluster: LoadedCluster
    gang: Gang
    baseline: SettledCluster
    stage: Stage
    """The stage that stops it in the baseline."""
    has_time: Callable[[], bool] = lambda: True
    """Whether there is time for another simulation."""
    partial_remedies: list[PartialRemedy] = field(default_factory=list)
    """Changes that brought it to a later stage, in the order of trying."""
    _trials: deque[tuple[Sequence[SuggestionStep], SettledCluster | None]] = field(
        default_factory=lambda: deque(maxlen=MAX_CACHED_TRIALS), init=False
    )

    def starts(self, *steps: SuggestionStep) -> bool:
        """Whether more of the gang runs with ``steps``; False if they can't be made.

        More means minMember, or beyond it another pod that was pending.
        """
        outcome = self._try_steps(steps)
        return outcome is not None and self._runs_more(outcome)

    def smallest_count(
        self, steps: Callable[[int], Sequence[SuggestionStep]], limit: int
    ) -> int | None:
        """The least number from 1 to ``limit`` with whose steps more of the gang runs."""
        return smallest_sufficient(lambda count: count > 0 and self.starts(*steps(count)), limit)

    def verified(self, text: str, *steps: SuggestionStep) -> Iterator[Suggestion]:
        """The suggestion, if the gang starts with it; a partial remedy is recorded instead."""
        outcome = self._try_steps(steps) if steps else None
        if outcome is None:
            return
        if not self._runs_more(outcome):
            if _is_later(outcome.stage_of(self.gang.key), self.stage):
                self._add_partial(PartialRemedy(text, steps))
            return
        yield as_suggestion(text, steps, compare(self.baseline, outcome))

    def _add_partial(self, remedy: PartialRemedy) -> None:
        if remedy not in self.partial_remedies:
            self.partial_remedies.append(remedy)

    def _try_steps(self, steps: Sequence[SuggestionStep]) -> SettledCluster | None:
        """The outcome of steps; None if they can't be made, or there is no time left."""
        for tried, outcome in self._trials:
            if tried == steps:
                return outcome
        if not self.has_time():
            return None
        outcome = self._simulated(steps)
        self._trials.append((steps, outcome))
        return outcome

    def _simulated(self, steps: Sequence[SuggestionStep]) -> SettledCluster | None:
        try:
            return self.cluster.settled(ApplySteps(steps))
        except ChangeError:
            return None

    def _runs_more(self, outcome: SettledCluster) -> bool:
        return self._running_pods(outcome) > self._running_pods(self.baseline)

    def _running_pods(self, settled: SettledCluster) -> int:
        """The number of its running pods; 0 while it has not started."""
        placed = settled.running.get(self.gang.key)
        return len(placed.nodes) if placed is not None else 0

    @property
    def snapshot(self) -> Snapshot:
        """The cluster before any change."""
        return self.cluster.snapshot

    @property
    def charge(self) -> dict[str, float]:
        """The charge of all pending pods to their queue, by resource."""
        return total(member.charge for member in self.gang.pending)

    @property
    def pending_gpus(self) -> float:
        """GPUs that the pending pods request."""
        return self.charge.get(GPU, 0.0)

    def pending_amounts(self) -> Iterator[Mapping[str, float]]:
        """The charge of the pods it lacks to start, then that of all pending pods.

        Of a gang without subgroups: those up to minMember, or one more. Each is followed by the
        same with the claims that it joins, which its queue owes with it.
        """
        gang = self.gang
        lacking = max(gang.tree.min_pods() - len(gang.bound), 1)
        if gang.tree.children or lacking >= len(gang.pending):
            lacking = len(gang.pending)
        for pods in sorted({lacking, len(gang.pending)}):
            own = total(member.charge for member in gang.pending[:pods])
            yield own
            joined = _joined_claims(gang, gang.pending[:pods])
            if joined:
                yield total((own, *joined))

    def queue_object(self, name: str) -> Document | None:
        """The Queue of this name; of two APIs' the one that counts."""
        specs = [spec for spec in self.snapshot.queues if spec.name == name]
        oldest = min(specs, key=lambda spec: spec.created, default=None)
        return next(
            (
                each
                for each in self.of_kind("Queue")
                if each["metadata"]["name"] == name
                and oldest is not None
                and each["apiVersion"] == oldest.api_version
            ),
            None,
        )

    def path(self) -> Iterator[QueueShare]:
        """The gang's queue and its ancestors, as in the baseline."""
        queues, name = self.baseline.queues, self.gang.queue
        while name in queues:
            yield queues[name]
            name = queues[name].parent

    def of_kind(self, *kinds: str) -> Iterator[Document]:
        """Objects of these kinds."""
        return (each for each in self.documents if each["kind"] in kinds)

    def with_uid(self, uid: str) -> Document | None:
        """The object of this uid."""
        return next((d for d in self.documents if d["metadata"].get("uid") == uid), None)

    def waiting_pods(self) -> list[Document]:
        """The gang's pods without a node."""
        uids = {member.pod.uid for member in self.gang.members if not member.node}
        return [pod for pod in self.of_kind("Pod") if pod["metadata"]["uid"] in uids]

    def owners(self, gang: Gang) -> list[Document]:
        """The objects to change for a gang: its owner, or its pods if the owner was not read."""
        owner = self.with_uid(gang.owner.uid)
        if owner is not None and owner["kind"] not in ("Pod", "PodGroup"):
            return [owner]
        uids = {member.pod.uid for member in gang.members}
        return [pod for pod in self.of_kind("Pod") if pod["metadata"]["uid"] in uids]


def _joined_claims(gang: Gang, pods: Sequence[Member]) -> list[Charge]:
    """What each claim costs that other gangs are charged with and that the pods share."""
    own = {member.pod.uid for member in gang.members}
    joined = {each.claim: each for member in pods for each in member.relies_on}
    return [each.charge for each in joined.values() if each.charged_to not in own]


def as_suggestion(
    text: str, steps: tuple[SuggestionStep, ...], comparison: Comparison
) -> Suggestion:
    """The suggestion of ``steps`` with what they cost others, as a simulation has shown."""
    deleted = {gang_of_step(step) for step in steps if step.verb is Verb.DELETE}
    effects = {each.gang: each.effect for each in comparison.victims if each.gang not in deleted}
    return Suggestion(
        text,
        steps,
        evicts=tuple(effects),
        starts=tuple(each.gang for each in comparison.starts),
        stops=tuple(each.gang for each in comparison.stops),
        effects=tuple((gang, effect) for gang, effect in effects.items() if effect),
        queues=comparison.queues,
    )


def _is_later(stage: Stage | None, reference: Stage) -> bool:
    """Whether the gang gets further; stages are declared in the order in which they are met."""
    order = list(Stage)
    return stage is not None and order.index(stage) > order.index(reference)


def first_verified(remedies: Iterator[Iterator[Suggestion]]) -> Iterator[Suggestion]:
    """The first verified suggestion."""
    for found in remedies:
        for suggestion in found:
            yield suggestion
            return


def patch(document: Document, change: dict[str, Any]) -> SuggestionStep:
    """Patch an object."""
    return _step(Verb.PATCH, document, patch=change)


def create(document: Document) -> SuggestionStep:
    """Create an object."""
    return _step(Verb.CREATE, document, manifest=document)


def delete(document: Document) -> SuggestionStep:
    """Delete an object and what it owns."""
    return _step(Verb.DELETE, document)


def replace(document: Document, change: Callable[[Document], None]) -> SuggestionStep:
    """Replace an object by a new one; ``change`` edits its manifest in place."""
    manifest = _manifest(document)
    change(manifest)
    return _step(Verb.REPLACE, document, manifest=manifest)


def gang_of_step(step: SuggestionStep) -> str:
    """The key of the gang of the step's object."""
    return f"{step.namespace}/{step.kind}/{step.name}"


def _step(
    verb: Verb,
    document: Document,
    *,
    patch: dict[str, Any] | None = None,
    manifest: Document | None = None,
) -> SuggestionStep:
    meta = document["metadata"]
    return SuggestionStep(
        verb=verb,
        api_version=document["apiVersion"],
        kind=document["kind"],
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        patch=patch,
        document=manifest,
    )


def _manifest(document: Document) -> Document:
    """The manifest with which a user would create the object again."""
    copy: Document = clone({key: value for key, value in document.items() if key != "status"})
    copy["metadata"] = {k: v for k, v in copy["metadata"].items() if k not in SERVER_FIELDS}
    spec = copy.get("spec")
    if copy["kind"] == "Job" and spec:
        spec.pop("selector", None)
        template = spec.get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        for name in JOB_CONTROLLER_LABELS:
            labels.pop(name, None)
            labels.pop(f"batch.kubernetes.io/{name}", None)
    return copy
