"""Which owners are gone while their pods are not? Those pods stay what they were until they go."""

from kai_py.grouping.owners import OwnerObject
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.object_cache import ObjectCache


class DeletedOwners:
    """Deleted owners that ``objects`` keeps for as long as pods depend on them."""

    def __init__(self, objects: ObjectCache, dependencies: Dependencies) -> None:
        """Start empty."""
        self._objects = objects
        self._dependencies = dependencies
        self._deleted: dict[str, None] = {}

    def keep(self, old: object | None, new: object | None) -> bool:
        """Whether the change deletes an owner that still has pods; then it is kept."""
        if isinstance(new, OwnerObject):
            self._deleted.pop(new.metadata.uid, None)
        if new is not None or not isinstance(old, OwnerObject):
            return False
        uid = old.metadata.uid
        if not self._has_pods(uid):
            return False
        self._objects.keep_deleted_owner(old)
        self._deleted[uid] = None
        return True

    def drop_unused(self) -> None:
        """Drop those whose last pod is gone."""
        for uid in tuple(self._deleted):
            if not self._has_pods(uid):
                del self._deleted[uid]
                self._objects.drop_deleted_owner(uid)

    def _has_pods(self, uid: str) -> bool:
        return bool(self._dependencies.dependents((("uid", uid),)))
