"""Names that pending pods may misspell: of objects that they refer to, and of this scheduler.

Where an object does not exist, the nearest name is probably the intended one. O(1) per object; a
snapshot costs the namespaces in which such objects came or went.

A pod whose ``spec.schedulerName`` is almost that of this scheduler is handled by none, so nothing
would ever be reported about it. A name by which any pod was placed is that of another scheduler,
however similar. O(1) per pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec import Struct

from kai_py.api.bounded import remember
from kai_py.api.problems import is_misspelling
from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.snapshot.derived_pod import DerivedPod
from kai_py.snapshot.missing_objects import STORAGE_CLASSES, TEMPLATES, VOLUME_CLAIMS
from kai_py.snapshot.tables.pod_table import PodTable, Uids

PENDING_PHASES = ("", "Pending")
MAX_NAMES = 256
"""Names of schedulers that are remembered: tenants choose them."""

Scope = tuple[str, str]
"""Collection and namespace ("" for kinds without one)."""
NamesByScope = Mapping[Scope, frozenset[str]]


class KnownNames(PodTable):
    """The names of templates, volume claims and storage classes where a pending pod misses one.

    Those of ResourceClaims are known with the claims. Names of other scopes are not in a snapshot,
    so that objects which no pod misses do not change it.
    """

    kinds: ClassVar[tuple[str, ...]] = (TEMPLATES, VOLUME_CLAIMS, STORAGE_CLASSES)

    def __init__(self) -> None:
        """Start empty."""
        self._names: dict[Scope, dict[str, None]] = {}
        self._missed: dict[Scope, dict[str, None]] = {}
        self._scope_of: dict[str, Scope] = {}
        self._frozen: dict[Scope, frozenset[str]] = {}

    def apply(self, kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a watched object."""
        metadata = getattr(new if new is not None else old, "metadata", None)
        if metadata is None or (old is None) == (new is None):
            return
        scope = kind.partition(".")[0], metadata.namespace
        names = self._names.setdefault(scope, {})
        if new is not None:
            names[metadata.name] = None
        else:
            names.pop(metadata.name, None)
        if not names:
            del self._names[scope]
        self._frozen.pop(scope, None)

    def place(self, pod: DerivedPod) -> Uids:
        """Note which names a pod that waits needs."""
        missing = pod.parsed.demand.missing
        if missing is None or pod.parsed.gang_spec is None or pod.placement.node:
            return self.release(pod.uid)
        namespace = pod.parsed.pod.metadata.namespace
        scope = missing.collection, "" if missing.collection == STORAGE_CLASSES else namespace
        if self._scope_of.get(pod.uid) != scope:
            self.release(pod.uid)
            self._scope_of[pod.uid] = scope
            self._missed.setdefault(scope, {})[pod.uid] = None
        return ()

    def release(self, uid: str) -> Uids:
        """The pod does not wait any more."""
        scope = self._scope_of.pop(uid, None)
        if scope is not None:
            del self._missed[scope][uid]
            if not self._missed[scope]:
                del self._missed[scope]
                self._frozen.pop(scope, None)
        return ()

    def snapshot(self) -> NamesByScope:
        """The names of the scopes in which a pod misses one."""
        for scope in self._missed:
            if scope not in self._frozen:
                self._frozen[scope] = frozenset(self._names.get(scope, ()))
        return {scope: self._frozen[scope] for scope in self._missed}


class MisnamedScheduler(Struct, frozen=True, order=True):
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
    """Whether some scheduler has reported on the pod."""
    return any(condition.type == "PodScheduled" for condition in pod.status.conditions)


def _owner(pod: Pod) -> tuple[str, str]:
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    return ("Pod", pod.metadata.name) if owner is None else (owner.kind, owner.name)
