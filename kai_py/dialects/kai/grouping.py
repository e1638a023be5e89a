"""Which gang does a pod belong to, in a cluster whose users may speak KAI?

Our own annotations go first, then KAI's PodGroups, then Grove's PodGangs, then groups of other
schedulers, then marks of frameworks, then owners; what is not a KAI PodGroup gets KAI's defaults if
its workload is addressed in KAI's way.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from kai_py.api.records.core import Pod
from kai_py.api.records.kai import POD_GROUP_API_VERSION
from kai_py.dialects.coscheduling import COSCHEDULING
from kai_py.dialects.grove import GROVE, near_its_base
from kai_py.dialects.kai.pod_groups import POD_GROUP, in_known_group
from kai_py.dialects.kai.workloads import Addressing, with_kai_defaults
from kai_py.dialects.kueue import KUEUE, is_placed_by_kueue, without_topology
from kai_py.dialects.native_groups import NATIVE_GROUP, NATIVE_WORKLOAD
from kai_py.dialects.volcano import volcano
from kai_py.dialects.yunikorn import YUNIKORN
from kai_py.grouping.explicit import EXPLICIT, POD_GROUP_KEY
from kai_py.grouping.frameworks.spark import SPARK
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.identify import Grouper
from kai_py.grouping.marks import marked
from kai_py.grouping.owners import Owners
from kai_py.grouping.queue_choice import Defaults
from kai_py.grouping.rule_table import RuleTable
from kai_py.grouping.sources import Source
from kai_py.grouping.terms import Wording


class KaiGrouping:
    """Says to which gang pods belong, by ``table`` where they don't say it themselves.

    ``kueue_places``: where Kueue chose the nodes, our own constraints on them don't count.
    ``tiers``: node label by the number or name of a tier of Volcano's.
    """

    def __init__(
        self,
        table: RuleTable,
        addressing: Addressing,
        *,
        kueue_places: bool = False,
        tiers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._addressing = addressing
        self._kueue_places = kueue_places
        self._grouper = Grouper(
            table,
            sources=_sources(tiers),
            default_queue=addressing.default_queue,
            defaults=Defaults.KAI if addressing.everything else Defaults.NATIVE,
        )

    def identify(self, pod: Pod, owners: Owners) -> GangSpec:
        """The gang of ``pod``."""
        spec = self._identified(pod, owners)
        if self._kueue_places and is_placed_by_kueue(pod):
            return replace(spec, tree=without_topology(spec.tree))
        return spec

    def _identified(self, pod: Pod, owners: Owners) -> GangSpec:
        asked = self._grouper.ask(pod, owners)
        spec = near_its_base(self._grouper.answer(asked), asked.lineage)
        if spec.owner.api_version != POD_GROUP_API_VERSION:
            spec = with_kai_defaults(spec, asked, self._addressing)
            if spec.terms.wording is Wording.KAI and not marked(pod.metadata, POD_GROUP_KEY):
                spec = in_known_group(spec, asked)
        if not self._addressing.everything or spec.terms.wording is Wording.KAI:
            return spec
        return replace(spec, terms=replace(spec.terms, wording=Wording.KAI))


def _sources(tiers: Mapping[str, str]) -> tuple[Source, ...]:
    """Who decides of several; see ``grouping.sources``."""
    return (
        EXPLICIT,
        POD_GROUP,
        GROVE,
        NATIVE_GROUP,
        NATIVE_WORKLOAD,
        COSCHEDULING,
        volcano(tiers),
        YUNIKORN,
        KUEUE,
        SPARK,
    )
