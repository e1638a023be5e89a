"""Keys that come and go, listed in order."""


class SortedKeys:
    """A set of keys; its list is made when it is asked for after a change."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[str, None] = {}
        self._listed: tuple[str, ...] | None = ()

    def set(self, key: str, *, present: bool) -> None:
        """Add ``key``, or take it away."""
        if (key in self._keys) is present:
            return
        self._listed = None
        if present:
            self._keys[key] = None
        else:
            del self._keys[key]

    def listed(self) -> tuple[str, ...]:
        """All keys in order; the same object until one comes or goes."""
        if self._listed is None:
            # Kept in order, as sorting what is nearly sorted takes a single pass.
            self._keys = dict.fromkeys(sorted(self._keys))
            self._listed = tuple(self._keys)
        return self._listed
