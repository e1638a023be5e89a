"""Grouping with all dialects, in clusters that may use KAI's API.

Our own annotations take precedence, then KAI's PodGroups, then Grove's PodGangs, then groups of
other schedulers, then markers of frameworks, then owners; what is not a KAI PodGroup gets KAI's
defaults if its workload uses KAI's API.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.api.records.kai import POD_GROUP_API_VERSION
from kai_py.dialects.group_reader import COSCHEDULING
from kai_py.dialects.grove import GROVE, with_base_gang_affinity
from kai_py.dialects.kai.pod_groups import POD_GROUP, in_existing_group
from kai_py.dialects.kai.workloads import KaiQueueNaming, with_kai_defaults
from kai_py.dialects.kueue import KUEUE, is_placed_by_kueue, without_topology
from kai_py.dialects.native_groups import NATIVE_GROUP, NATIVE_WORKLOAD
from kai_py.dialects.volcano import volcano_source, with_preemptable
from kai_py.dialects.yunikorn import YUNIKORN
from kai_py.grouping.annotations import POD_GROUP_ANNOTATION, POD_GROUP_KEY
from kai_py.grouping.frameworks.dask import DASK
from kai_py.grouping.frameworks.flink import FLINK
from kai_py.grouping.frameworks.skypilot import SKYPILOT
from kai_py.grouping.frameworks.spark import SPARK
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.gang_settings import Wording
from kai_py.grouping.gang_template import annotation_or_label
from kai_py.grouping.group_sources import GroupSource
from kai_py.grouping.grouper import Grouper
from kai_py.grouping.owner_chain import Owners
from kai_py.grouping.pod_topology import with_pod_topology
from kai_py.grouping.queue_choice import Defaults
from kai_py.grouping.rule_table import RuleTable


class KaiGrouping:
    """Derives the gangs of pods, by ``table`` where they name none themselves.

    ``kueue_assigns_nodes``: ignore our own topology constraints where Kueue chose the nodes.
    ``tiers``: node label by the number or name of a Volcano tier.
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
        context = self._grouper.context(pod, owners)
        spec = with_base_gang_affinity(self._grouper.gang_spec(context), context.chain)
        if spec.owner.api_version != POD_GROUP_API_VERSION:
            spec = with_kai_defaults(spec, context, self._queue_naming)
            spec = with_preemptable(spec, context.chain)
            if spec.settings.wording is Wording.KAI and not annotation_or_label(
                pod.metadata, POD_GROUP_KEY
            ):
                spec = in_existing_group(spec, context)
        spec = with_pod_topology(spec, context)
        if not self._queue_naming.all_workloads or spec.settings.wording is Wording.KAI:
            return spec
        return replace(spec, settings=replace(spec.settings, wording=Wording.KAI))


def _sources(tiers: Mapping[str, str]) -> tuple[GroupSource, ...]:
    """All sources in order of precedence; see ``grouping.group_sources``."""
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
        FLINK,
        DASK,
        SKYPILOT,
    )
