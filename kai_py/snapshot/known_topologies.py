"""Which topologies are there, and which labels are their levels, the coarsest first?"""

from kai_py.api.records.kai import KaiTopology


class Topologies:
    """Topologies by name."""

    def __init__(self) -> None:
        """None yet."""
        self._levels: dict[str, tuple[str, ...]] = {}

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in a change of a watched object."""
        if isinstance(new, KaiTopology):
            self._levels[new.metadata.name] = new.node_labels
        elif isinstance(old, KaiTopology):
            self._levels.pop(old.metadata.name, None)

    def levels(self) -> dict[str, tuple[str, ...]]:
        """Labels of nodes, by topology."""
        return dict(self._levels)
