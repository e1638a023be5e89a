"""Pending pods whose ``spec.schedulerName`` is almost that of this scheduler.

No scheduler handles such a pod, so nothing would ever be reported about it. A name by which any pod
was placed is that of another scheduler, however similar. O(1) per pod.
"""

from dataclasses import dataclass, field

from kai_py.api.bounded import remember
from kai_py.api.problems import is_misspelling
from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.snapshot.tables.pod_table import PodTable, Uids

PENDING_PHASES = ("", "Pending")
MAX_NAMES = 256
"""Names of schedulers that are remembered: tenants choose them."""


@dataclass(frozen=True, slots=True, order=True)
class MisnamedScheduler:
    """A pod that waits for ``named``, which is not ``meant``; ``owner``: kind and name."""

    pod: PodRef
    owner: tuple[str, str]
    named: str
    meant: str

    @property
    def message(self) -> str:
        """One sentence for people."""
        return (
            f'no pod with spec.schedulerName "{self.named}" was ever placed; '
            f"did you mean {self.meant}?"
        )


@dataclass
class MisnamedSchedulers(PodTable):
    """The pods with a misspelt scheduler name; ``ours``: the right names, the usual one first."""

    ours: tuple[str, ...]
    _waiting: dict[str, MisnamedScheduler] = field(default_factory=dict)
    _placed: dict[str, str] = field(default_factory=dict)
    """The name of the scheduler of each pod on a node, where it is like ours."""
    _meant: dict[str, str] = field(default_factory=dict)

    def observe(self, pod: Pod) -> Uids:
        """Take in a pod of any scheduler."""
        uid, named = pod.metadata.uid, pod.spec.scheduler_name
        meant = "" if named in self.ours else self._meant_by(named)
        self._waiting.pop(uid, None)
        self._placed.pop(uid, None)
        if not meant:
            return ()
        if pod.spec.node_name:
            self._placed[uid] = named
        elif pod.status.phase in PENDING_PHASES and not _is_answered(pod):
            self._waiting[uid] = MisnamedScheduler(
                PodRef.of(pod.metadata), _owner(pod), named, meant
            )
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod does not exist any more."""
        self._waiting.pop(pod.metadata.uid, None)
        self._placed.pop(pod.metadata.uid, None)
        return ()

    def snapshot(self) -> tuple[MisnamedScheduler, ...]:
        """All misspelt scheduler names, in order of their pods."""
        if not self._waiting:
            return ()
        placed = set(self._placed.values())
        return tuple(sorted(each for each in self._waiting.values() if each.named not in placed))

    def _meant_by(self, named: str) -> str:
        if named not in self._meant:
            meant = next((each for each in self.ours if is_misspelling(named, each)), "")
            remember(self._meant, named, meant, MAX_NAMES)
        return self._meant[named]


def _is_answered(pod: Pod) -> bool:
    """Whether some scheduler has said something of the pod."""
    return any(condition.type == "PodScheduled" for condition in pod.status.conditions)


def _owner(pod: Pod) -> tuple[str, str]:
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    return ("Pod", pod.metadata.name) if owner is None else (owner.kind, owner.name)
