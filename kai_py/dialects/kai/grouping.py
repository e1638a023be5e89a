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
from kai_py.dialects.grove import GROVE, with_base_gang_affinity
from kai_py.dialects.kai.pod_groups import POD_GROUP, in_existing_group
from kai_py.dialects.kai.workloads import KaiQueueNaming, with_kai_defaults
from kai_py.dialects.kueue import KUEUE, is_placed_by_kueue, without_topology
from kai_py.dialects.native_groups import NATIVE_GROUP, NATIVE_WORKLOAD
from kai_py.dialects.volcano import volcano_source
from kai_py.dialects.yunikorn import YUNIKORN
from kai_py.grouping.frameworks.spark import SPARK
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.gang_settings import Wording
from kai_py.grouping.group_sources import GroupSource
from kai_py.grouping.grouper import Grouper
from kai_py.grouping.metadata import annotation_or_label
from kai_py.grouping.owners import Owners
from kai_py.grouping.pod_group_annotation import POD_GROUP_ANNOTATION, POD_GROUP_KEY
from kai_py.grouping.queue_choice import Defaults
from kai_py.grouping.rule_table import RuleTable


class KaiGrouping:
    """Says to which gang pods belong, by ``table`` where they don't say it themselves.

    ``kueue_places``: where Kueue chose the nodes, our own constraints on them don't count.
    ``tiers``: node label by the number or name of a tier of Volcano's.
    """

    def __init__(
        self,
        table: RuleTable,
        queue_naming: KaiQueueNaming,
        *,
        kueue_assigns_nodes: bool = False,
        tiers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._queue_naming = queue_naming
        self._kueue_assigns_nodes = kueue_assigns_nodes
        self._grouper = Grouper(
            table,
            sources=_sources(tiers),
            default_queue=queue_naming.default_queue,
            defaults=Defaults.KAI if queue_naming.all_workloads else Defaults.NATIVE,
        )

    def identify(self, pod: Pod, owners: Owners) -> GangSpec:
        """The gang of ``pod``."""
        spec = self._identified(pod, owners)
        if self._kueue_assigns_nodes and is_placed_by_kueue(pod):
            return replace(spec, tree=without_topology(spec.tree))
        return spec

    def _identified(self, pod: Pod, owners: Owners) -> GangSpec:
        asked = self._grouper.context(pod, owners)
        spec = with_base_gang_affinity(self._grouper.gang_spec(asked), asked.chain)
        if spec.owner.api_version != POD_GROUP_API_VERSION:
            spec = with_kai_defaults(spec, asked, self._queue_naming)
            if spec.settings.wording is Wording.KAI and not annotation_or_label(
                pod.metadata, POD_GROUP_KEY
            ):
                spec = in_existing_group(spec, asked)
        if not self._queue_naming.all_workloads or spec.settings.wording is Wording.KAI:
            return spec
        return replace(spec, settings=replace(spec.settings, wording=Wording.KAI))


def _sources(tiers: Mapping[str, str]) -> tuple[GroupSource, ...]:
    """Who decides of several; see ``grouping.sources``."""
    return (
        POD_GROUP_ANNOTATION,
        POD_GROUP,
        GROVE,
        NATIVE_GROUP,
        NATIVE_WORKLOAD,
        COSCHEDULING,
        volcano_source(tiers),
        YUNIKORN,
        KUEUE,
        SPARK,
    )
