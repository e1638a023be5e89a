"""The gangs that differ from one snapshot to the next, found without comparing all of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not

from kai_py.snapshot.gangs import Gang


@dataclass(frozen=True, slots=True, eq=False)
class GangChanges:
    """The ``keys`` that are known to differ between two maps of gangs by key."""

    before: Mapping[str, Gang] = field(default_factory=dict)
    now: Mapping[str, Gang] = field(default_factory=dict)
    keys: Collection[str] = ()

    def between(self, before: Mapping[str, Gang], now: Mapping[str, Gang]) -> Collection[str]:
        """The keys of gangs that came, went or are other objects than before.

        O(1) where that is known, else O(gangs).
        """
        if before is now:
            return ()
        if before is self.before and now is self.now:
            return self.keys
        # Looping in C takes a fraction of the time with 100,000 gangs.
        found = compress(now, map(is_not, map(before.get, now), now.values()))
        return [*found, *[key for key in before if key not in now]]


NOTHING_KNOWN = GangChanges()
