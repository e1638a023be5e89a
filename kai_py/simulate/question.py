"""What would let this gang start? The gang, its cluster, and a trial for every answer.

A remedy is tried as steps on a copy of the cluster; it is an answer only if the gang runs then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kai_py.observe.suggestion import Step, Suggestion, Verb
from kai_py.plan.decisions import QueueShare
from kai_py.simulate.changes import SERVER_FIELDS, ChangeError
from kai_py.simulate.objects import Document
from kai_py.simulate.steps import TakeSteps
from kai_py.simulate.what_if import Present, Settled, compare
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

MADE_LABELS = ("controller-uid", "job-name")
"""Labels that the API server adds to the pods of a Job, also below ``batch.kubernetes.io/``."""


@dataclass(frozen=True, slots=True)
class Question:
    """One gang that waits in one cluster, and how that goes on if nothing changes."""

    documents: Sequence[Document]
    present: Present
    gang: Gang
    without: Settled
    may_try: Callable[[], bool] = lambda: True
    """Whether there is time for another trial."""

    def starts(self, *steps: Step) -> Settled | None:
        """The settled cluster if the gang runs in it; None if not, or if it can't be done."""
        if not self.may_try():
            return None
        try:
            given = self.present.settled(TakeSteps(steps))
        except ChangeError:
            return None
        return given if self.gang.key in given.running else None

    def proven(self, text: str, *steps: Step) -> Iterator[Suggestion]:
        """The suggestion, if it is an answer."""
        given = self.starts(*steps) if steps else None
        if given is not None:
            comes = compare(self.without, given)
            evicted = dict.fromkeys(eviction.gang for eviction in comes.victims)
            gone = {gang_of_step(step) for step in steps if step.verb is Verb.DELETE}
            yield Suggestion(
                text,
                steps,
                evicts=tuple(each for each in evicted if each not in gone),
                starts=tuple(each.gang for each in comes.starts),
                ends=tuple(each.gang for each in comes.loses),
                queues=comes.queues,
            )

    @property
    def snapshot(self) -> Snapshot:
        """The cluster before anything is done."""
        return self.present.snapshot

    @property
    def asked(self) -> float:
        """GPUs that the waiting pods ask for."""
        return sum(member.charge.get(GPU, 0.0) for member in self.gang.pending)

    def path(self) -> Iterator[QueueShare]:
        """The gang's queue and those above it, as they stand if nothing changes."""
        queues, name = self.without.queues, self.gang.queue
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
        """The gang's pods that are on no node."""
        uids = {member.pod.uid for member in self.gang.members if not member.node}
        return [pod for pod in self.of_kind("Pod") if pod["metadata"]["uid"] in uids]

    def owners(self, gang: Gang) -> list[Document]:
        """What to write to for a gang: its owner, or its pods where it has none that was read."""
        owner = self.with_uid(gang.owner.uid)
        if owner is not None and owner["kind"] not in ("Pod", "PodGroup"):
            return [owner]
        uids = {member.pod.uid for member in gang.members}
        return [pod for pod in self.of_kind("Pod") if pod["metadata"]["uid"] in uids]


def first(remedies: Iterator[Iterator[Suggestion]]) -> Iterator[Suggestion]:
    """The first suggestion that is an answer."""
    for found in remedies:
        for suggestion in found:
            yield suggestion
            return


def patch(document: Document, change: dict[str, Any]) -> Step:
    """Patch an object."""
    return _step(Verb.PATCH, document, patch=change)


def delete(document: Document) -> Step:
    """Delete an object and what it owns."""
    return _step(Verb.DELETE, document)


def replace(document: Document, change: Callable[[Document], None]) -> Step:
    """Make an object as new; ``change`` changes its manifest in place."""
    manifest = _manifest(document)
    change(manifest)
    return _step(Verb.REPLACE, document, manifest=manifest)


def gang_of_step(step: Step) -> str:
    """What the gang of an owner is called."""
    return f"{step.namespace}/{step.kind}/{step.name}"


def _step(
    verb: Verb,
    document: Document,
    *,
    patch: dict[str, Any] | None = None,
    manifest: Document | None = None,
) -> Step:
    meta = document["metadata"]
    return Step(
        verb=verb,
        api_version=document["apiVersion"],
        kind=document["kind"],
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        patch=patch,
        document=manifest,
    )


def _manifest(document: Document) -> Document:
    """What a user would write to make the object again."""
    copy: Document = _copied({key: value for key, value in document.items() if key != "status"})
    copy["metadata"] = {k: v for k, v in copy["metadata"].items() if k not in SERVER_FIELDS}
    if copy["kind"] == "Job":
        copy["spec"].pop("selector", None)
        labels = copy["spec"]["template"].get("metadata", {}).get("labels") or {}
        for name in MADE_LABELS:
            labels.pop(name, None)
            labels.pop(f"batch.kubernetes.io/{name}", None)
    return copy


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
