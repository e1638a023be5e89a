"""Each number that a workload writes has a ceiling, which it may reach and not exceed."""

import pytest

from kai_py.api.records.kai import KaiPodGroupSpec, KaiSubGroup
from kai_py.dialects.kai import group_trees
from kai_py.grouping import counts, gang, grouper, segments
from kai_py.grouping.frameworks import aibrix, jobset, leader_worker_set, volcano_job
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
        (volcano_job, "MAX_DEPENDENT_TASKS", "volcano-job", "Job/joined", 3),
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
    monkeypatch.setattr(group_trees, "MAX_ENTRIES", 3)
    assert [*group_trees.tree_problems_of(spec)] == []
    monkeypatch.setattr(group_trees, "MAX_ENTRIES", 2)
    assert [*group_trees.tree_problems_of(spec)] == [
        "spec.subGroups has 3 entries, the maximum is 2"
    ]


SEGMENTED = {"metadata": {"annotations": {"kai.scheduler/segment-size": "1"}}}
JOB_OF_SEGMENTS = {"spec": {"parallelism": 4, "completions": 4, "template": SEGMENTED}}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (
            "kubeflow.org/v1/TFJob",
            {
                "tfReplicaSpecs": {
                    f"Role{i}": {"replicas": 4, "template": SEGMENTED} for i in range(50)
                }
            },
        ),
        (
            "batch.volcano.sh/v1alpha1/Job",
            {"tasks": [{"name": f"t{i}", "replicas": 4, "template": SEGMENTED} for i in range(50)]},
        ),
        (
            "jobset.x-k8s.io/v1alpha2/JobSet",
            {"replicatedJobs": [{"name": f"j{i}", "template": JOB_OF_SEGMENTS} for i in range(50)]},
        ),
        (
            "orchestration.aibrix.ai/v1alpha1/RoleSet",
            {
                "roles": [
                    {"name": f"r{i}", "replicas": 1, "podGroupSize": 4, "template": SEGMENTED}
                    for i in range(50)
                ]
            },
        ),
    ],
)
def test_segments_are_counted_before_millions_are_made(kind, spec, monkeypatch):
    """Many roles, each with as many segments as one may have, would fill memory."""
    made = []

    def counted(*arguments):
        made.append(arguments)
        return segment_subgroups(*arguments)

    segment_subgroups = segments.segment_subgroups
    monkeypatch.setattr(segments, "MAX_SUBGROUPS", 20)
    monkeypatch.setattr(segments, "segment_subgroups", counted)
    api_version, _, name = kind.rpartition("/")
    owner = {"apiVersion": api_version, "kind": name, "name": "wide", "spec": spec}
    found = grouped({"objects": [owner], "pods": [{"names": ["p"], "owner": f"{name}/wide"}]})
    (gang,) = found.gangs.values()
    assert "more than 20 subgroups" in gang.problem
    assert len(made) <= 5
