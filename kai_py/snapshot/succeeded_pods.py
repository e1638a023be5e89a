"""Pods that ran to their end, by the gang that they were in, the gang's owner, and their leaf."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple


class _Place(NamedTuple):
    key: str
    owner: str
    leaf: str


class SucceededPods:
    """Pods that succeeded and still exist, and leaves of which one did, also if it is gone."""

    def __init__(self) -> None:
        """No pod has succeeded yet."""
        self._places: dict[str, _Place] = {}
        self._counts: dict[str, dict[str, Counter[str]]] = {}
        self._leaves: dict[str, dict[str, dict[str, None]]] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the pod has succeeded."""
        return uid in self._places

    def add(self, uid: str, key: str, owner: str, leaf: str) -> None:
        """The pod succeeded in the leaf of the gang called ``key`` of ``owner``, by uid."""
        self._places[uid] = _Place(key, owner, leaf)
        self._leaves.setdefault(key, {}).setdefault(owner, {})[leaf] = None
        self._counts.setdefault(key, {}).setdefault(owner, Counter())[leaf] += 1

    def remove(self, uid: str) -> str:
        """The pod is gone; returns the key of the gang."""
        key, owner, leaf = self._places.pop(uid)
        counts = self._counts[key][owner]
        counts[leaf] -= 1
        if not counts[leaf]:
            del counts[leaf]
        if not counts:
            del self._counts[key][owner]
        if not self._counts[key]:
            del self._counts[key]
        return key

    def by_leaf(self, key: str, owner: str) -> Mapping[str, int]:
        """How many pods of a gang have succeeded, by leaf."""
        return self._counts.get(key, {}).get(owner, {})

    def leaves(self, key: str, owner: str) -> Collection[str]:
        """The leaves of a gang in which a pod has succeeded since the gang exists."""
        return self._leaves.get(key, {}).get(owner, ())

    def forget(self, key: str) -> None:
        """No pod of the gang is left that has not ended."""
        if key not in self._counts:
            self._leaves.pop(key, None)
