"""The pods that may be evicted in a cycle, found by what pod rules and node limits read of them."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from kai_py.plan.state.limits.base import NodeLimits
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.pod_selection import Labels, NamespaceLabels, Selection, rules_of, selects
from kai_py.snapshot.selection_index import LabelPostings, selection_parts
from kai_py.snapshot.shape import Shape


class EvictablePod(NamedTuple):
    """A pod of ``CycleState.evictable``."""

    gang: Gang
    member: Member

    @property
    def labels(self) -> Labels:
        """The labels of the pod."""
        return self.member.labels


class EvictablePods:
    """All of them; what is looked up is indexed when it is first asked for."""

    def __init__(
        self, gangs: Iterable[Gang], limits: NodeLimits, namespaces: NamespaceLabels
    ) -> None:
        """``gangs``: those of ``CycleState.evictable``; they are not read yet."""
        self._gangs, self._limits, self._namespaces = gangs, limits, namespaces

    @cached_property
    def _pods(self) -> dict[str, EvictablePod]:
        return {m.pod.uid: EvictablePod(gang, m) for gang in self._gangs for m in gang.bound}

    @cached_property
    def _postings(self) -> LabelPostings[str]:
        return LabelPostings(self._pods)

    @cached_property
    def _by_shape(self) -> dict[int, list[EvictablePod]]:
        """The pods whose shape has required anti-affinity or node limits, by its number."""
        found, matters = dict[int, list[EvictablePod]](), dict[int, bool]()
        for pod in self._pods.values():
            shape = pod.member.shape
            known = matters.get(shape.number)
            if known is None:
                known = bool(rules_of(shape).anti_affinity or self._limits.refusing(shape))
                matters[shape.number] = known
            if known:
                found.setdefault(shape.number, []).append(pod)
        return found

    def selected_by(self, selection: Selection) -> Iterator[EvictablePod]:
        """The pods that a selection selects."""
        base = selection_parts(selection).base
        if base is None:
            return
        for uid in self._postings.matching(base):
            pod = self._pods[uid]
            if selects(selection, pod.member.pod.namespace, pod.labels, self._namespaces):
                yield pod

    def refusing(self, shape: Shape) -> Iterator[EvictablePod]:
        """The pods whose required anti-affinity selects pods of ``shape``."""
        namespaces = self._namespaces
        for pods in self._by_shape.values():
            terms = rules_of(pods[0].member.shape).anti_affinity
            if any(selects(t.selection, shape.namespace, shape.labels, namespaces) for t in terms):
                yield from pods

    def limited(self) -> Iterator[Sequence[EvictablePod]]:
        """The pods that use something of node limits, by shape."""
        refusing = self._limits.refusing
        return (p for p in self._by_shape.values() if refusing(p[0].member.shape))
