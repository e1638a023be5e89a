"""Names of objects that pods refer to: where one does not exist, the nearest is what was meant.

O(1) per object; a snapshot costs the namespaces in which such objects came or went.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids

TEMPLATES = "resourceclaimtemplates"
CLAIMS = "resourceclaims"
VOLUME_CLAIMS = "persistentvolumeclaims"
STORAGE_CLASSES = "storageclasses"

Scope = tuple[str, str]
"""Collection and namespace ("" for kinds without one)."""
NamesByScope = Mapping[Scope, frozenset[str]]


@dataclass(frozen=True, slots=True)
class MissingObject:
    """An object that a pod refers to and that was not found; ``collection``: of its kind."""

    collection: str
    name: str


class KnownNames(PodTable):
    """The names of templates, volume claims and storage classes where a pending pod misses one.

    Those of ResourceClaims are known with the claims. A snapshot has no others: what nothing asks
    for must not change it.
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
