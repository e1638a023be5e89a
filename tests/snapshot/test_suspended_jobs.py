"""Suspended Jobs wait by placeholders, and anyone can pose as one that we suspended."""

import pytest

from kai_py.api.records.core import ObjectMeta, PodSpec
from kai_py.api.records.job import PodTemplate, SuspendedJob, SuspendedJobSpec
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.suspended_jobs import MAX_PLACEHOLDERS
from tests.support.scenario import QUEUE, START, cluster, node, placed, pod, queue


def suspended(name: str, pods: int) -> SuspendedJob:
    spec = pod("x", 1).spec
    return SuspendedJob(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"job-{name}",
            annotations={QUEUE: "team", "scheduling.kai.io/suspended-by": "kai-scheduler"},
        ),
        spec=SuspendedJobSpec(
            parallelism=pods, completions=pods, suspend=True, template=PodTemplate(spec=spec)
        ),
    )


def world(*objects):
    made = cluster(node("n"), queue("team", 8), queue("other", 8))
    for each in objects:
        made.builder.apply("jobs", None, each)
    return made


@pytest.mark.parametrize("pods", [MAX_PLACEHOLDERS + 1, 100_000, 2**31 - 1])
def test_a_job_of_absurdly_many_pods_costs_one_placeholder_and_says_so(pods):
    made = world(suspended("absurd", pods)).add(pod("canary", queue="other"))
    plan = made.plan()
    assert placed(plan) == {"canary": "n"}
    (waiting,) = plan.unplaced
    assert len(waiting.pods) == 1
    assert f"a suspended Job of {pods} pods is not resumed, the maximum is 1000" in waiting.message


def test_a_job_grows_above_the_maximum_and_comes_back():
    small, absurd = suspended("job", 4), suspended("job", 2**31 - 1)
    made = world(small)
    assert len(made.plan().placements[0].pods) == 4
    made.builder.apply("jobs", small, absurd)
    assert not made.plan().placements
    made.builder.apply("jobs", absurd, small)
    (resumed,) = made.plan().placements
    assert (len(resumed.pods), resumed.resume) == (4, True)
    made.builder.apply("jobs", small, None)
    assert not made.builder.snapshot(START).gangs


def test_the_template_of_a_forged_job_may_be_empty():
    forged = suspended("forged", 3)
    empty = SuspendedJobSpec(
        parallelism=3, suspend=True, template=PodTemplate(spec=PodSpec(scheduler_name="other"))
    )
    made = world(SuspendedJob(metadata=forged.metadata, spec=empty))
    assert not made.plan().unplaced
    assert isinstance(made.builder, SnapshotBuilder)
