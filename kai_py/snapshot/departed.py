"""Which owners are gone while their pods are not? Those pods stay what they were until they go."""

from kai_py.grouping.owners import OwnerObject
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.object_cache import ObjectCache


class DepartedOwners:
    """Deleted owners that ``objects`` keeps for as long as pods depend on them."""

    def __init__(self, objects: ObjectCache, dependencies: Dependencies) -> None:
        """Start empty."""
        self._objects = objects
        self._dependencies = dependencies
        self._departed: dict[str, None] = {}

    def keep(self, old: object | None, new: object | None) -> bool:
        """Whether the change deletes an owner that still has pods; then it is kept."""
        if isinstance(new, OwnerObject):
            self._departed.pop(new.metadata.uid, None)
        if new is not None or not isinstance(old, OwnerObject):
            return False
        uid = old.metadata.uid
        if not self._has_pods(uid):
            return False
        self._objects.keep_departed(old)
        self._departed[uid] = None
        return True

    def forget(self) -> None:
        """Drop those whose last pod is gone."""
        for uid in tuple(self._departed):
            if not self._has_pods(uid):
                del self._departed[uid]
                self._objects.drop_departed(uid)

    def _has_pods(self, uid: str) -> bool:
        return bool(self._dependencies.of((("uid", uid),)))
