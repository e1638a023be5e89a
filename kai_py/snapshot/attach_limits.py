"""How many volumes can be attached to each node, by driver (CSINode ``allocatable.count``)?"""

from collections.abc import Mapping

from kai_py.api.records.storage import CSINode


class AttachLimits:
    """What drivers said of their nodes."""

    def __init__(self) -> None:
        """Nothing is said yet."""
        self._by_node: dict[str, Mapping[str, int]] = {}

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in one change of a CSINode."""
        if isinstance(old, CSINode):
            self._by_node.pop(old.metadata.name, None)
        if isinstance(new, CSINode):
            limits = {
                driver.name: driver.allocatable.count
                for driver in new.spec.drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            }
            if limits:
                self._by_node[new.metadata.name] = limits

    def by_node(self) -> dict[str, Mapping[str, int]]:
        """Node name to driver to volumes; nodes and drivers without a limit are left out."""
        return dict(self._by_node)
