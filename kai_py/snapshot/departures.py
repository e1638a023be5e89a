"""Nodes that are about to go: the signals of the configuration, looked up on each node."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kai_py.api.node_departures import DEFAULT_SIGNALS, DepartureStage, NodeSignal
from kai_py.api.records.node import Node

STAGES = tuple(DepartureStage)
"""The surest first."""


@dataclass(frozen=True, slots=True)
class Departure:
    """``stage``: how certain it is that the node goes; ``signal``: the reason, for people."""

    stage: DepartureStage
    signal: str


@dataclass(frozen=True, slots=True)
class DepartureSignals:
    """The signals by what they name. One look at a node costs its taints, conditions and labels."""

    taints: dict[str, list[NodeSignal]] = field(default_factory=dict)
    conditions: dict[str, list[NodeSignal]] = field(default_factory=dict)
    labels: dict[str, list[NodeSignal]] = field(default_factory=dict)

    @classmethod
    def of(cls, signals: Iterable[NodeSignal]) -> "DepartureSignals":
        """These signals, by key."""
        made = cls()
        for each in signals:
            for name, by_key in (
                (each.taint, made.taints),
                (each.condition, made.conditions),
                (each.label, made.labels),
            ):
                if name is not None:
                    by_key.setdefault(name, []).append(each)
        return made

    def departure(self, node: Node) -> Departure | None:
        """The surest signal of a node; None if it has none.

        A node that is being deleted is leaving: its finalizers drain it first.
        """
        found = [*self._found(node)]
        if node.metadata.deletion_timestamp is not None:
            found.append(Departure(DepartureStage.LEAVING, "it is being deleted"))
        return min(found, key=lambda each: STAGES.index(each.stage), default=None)

    def _found(self, node: Node) -> Iterator[Departure]:
        for taint in node.spec.taints:
            for each in self.taints.get(taint.key, ()):
                if each.counts(taint.value, taint.effect):
                    yield Departure(each.stage, f"taint {taint.key}")
        for condition in node.status.conditions:
            for each in self.conditions.get(condition.type, ()):
                if condition.status in (each.values or ("True",)):
                    yield Departure(each.stage, f"condition {condition.type}")
        if not self.labels.keys().isdisjoint(node.metadata.labels):
            for key, signals in self.labels.items():
                value = node.metadata.labels.get(key)
                for each in signals if value is not None else ():
                    if each.counts(value or ""):
                        yield Departure(each.stage, f"label {key}={value}")


BUILT_IN = DepartureSignals.of(DEFAULT_SIGNALS)
