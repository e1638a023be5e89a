"""Each number that a workload writes has a ceiling, which it may reach and not exceed."""

import pytest

from kai_py.api.records.kai import KaiPodGroupSpec, KaiSubGroup
from kai_py.dialects.kai import pod_groups
from kai_py.grouping import counts, gang, grouper, segments
from kai_py.grouping.frameworks import aibrix, jobset, leader_worker_set
from tests.corpus.test_grouping import CASES, grouped
from tests.support import yaml_text

WRITTEN = {path.stem: path for path in CASES}


@pytest.mark.parametrize(
    ("module", "ceiling", "case", "key", "reached"),
    [
        (jobset, "MAX_REPLICATED_JOBS", "jobset", "JobSet/train", 3),
        (jobset, "MAX_SUBGROUPS", "jobset", "JobSet/train", 3),
        (leader_worker_set, "MAX_SIZE", "leaderworkerset", "LeaderWorkerSet/llm", 3),
        (aibrix, "MAX_SUBGROUPS", "aibrix-roleset", "RoleSet/multi", 2),
        (segments, "MAX_SEGMENTS", "pytorchjob-segments", "PyTorchJob/train", 3),
        (counts, "MAX_COUNT", "pytorchjob-segments", "PyTorchJob/train", 6),
        (gang, "MAX_SUBGROUPS", "grove", "PodGang.scheduler.grove.io/near-0", 3),
        (gang, "MAX_TREE_DEPTH", "grove", "PodGang.scheduler.grove.io/serve-0", 2),
        (grouper, "MAX_EXPECTED_PODS", "yunikorn", "Application.yunikorn.apache.org/app", 2),
    ],
)
def test_a_ceiling_can_be_reached_and_not_exceeded(
    module, ceiling, case, key, reached, monkeypatch
):
    written = yaml_text.read(WRITTEN[case].read_text())
    for number in (reached, reached - 1):
        monkeypatch.setattr(module, ceiling, number)
        gangs = grouped(written).gangs.items()
        problem = next(gang.problem for name, gang in gangs if name.startswith(f"default/{key}"))
        assert (str(number) in problem) == bool(problem) == (number < reached), problem


def test_the_subgroups_of_kai_have_a_ceiling(monkeypatch):
    spec = KaiPodGroupSpec(sub_groups=[KaiSubGroup(name=name, min_member=1) for name in "abc"])
    monkeypatch.setattr(pod_groups, "MAX_ENTRIES", 3)
    assert [*pod_groups.tree_problems_of(spec)] == []
    monkeypatch.setattr(pod_groups, "MAX_ENTRIES", 2)
    assert [*pod_groups.tree_problems_of(spec)] == [
        "spec.subGroups has 3 entries, the maximum is 2"
    ]
