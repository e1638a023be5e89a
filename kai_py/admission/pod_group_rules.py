"""Validation of KAI's PodGroups: the tree of their subgroups.

Refused is what prevents a tree: duplicate names, missing parents, cycles. minMember above the
number of subgroups is a warning, as in KAI, for subgroups may be added.
"""

from kai_py.admission.verdict import AdmissionVerdict, edit_verdict
from kai_py.api.records.kai import KaiPodGroup
from kai_py.dialects.kai.subgroups import min_sub_group_problems, tree_problems_of


def judge_pod_group(new: KaiPodGroup, old: KaiPodGroup | None) -> AdmissionVerdict:
    """The verdict on ``new`` in place of ``old``."""
    return edit_verdict(_problems(new), AdmissionVerdict() if old is None else _problems(old))


def _problems(group: KaiPodGroup) -> AdmissionVerdict:
    name, spec = f"PodGroup {group.metadata.namespace}/{group.metadata.name}: ", group.spec
    return AdmissionVerdict(
        tuple(name + text for text in tree_problems_of(spec)),
        tuple(f"{name}{text}: the gang cannot start" for text in min_sub_group_problems(spec)),
    )
