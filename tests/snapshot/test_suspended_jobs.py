"""Suspended Jobs wait by placeholders, and anyone can pose as one that we suspended."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta, PodSpec
from kai_py.api.records.job import PodTemplate, SuspendedJob, SuspendedJobSpec
from kai_py.api.records.resource import ResourceClaimTemplate, ResourceClaimTemplateSpec
from kai_py.plan.plan import Stage
from kai_py.snapshot import placeholders
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.placeholders import MAX_PLACEHOLDERS
from tests.support.scenario import (
    QUEUE,
    START,
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    node,
    placed,
    pod,
    queue,
)


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


def test_a_namespace_has_no_more_placeholders_than_it_may_have(monkeypatch):
    """Jobs beyond cost one each, whose message says so, until those before have left."""
    monkeypatch.setattr(placeholders, "MAX_PER_NAMESPACE", 10)
    jobs = [suspended(f"j{number}", 4) for number in range(4)]
    made = world(*jobs).add(pod("canary", queue="other"))
    plan = made.plan()
    sizes = {each.gang: len(each.pods) for each in plan.unplaced}
    assert sorted(len(gang.members) for gang in made.snapshot().gangs.values()) == [1, 1, 1, 4, 4]
    assert "canary" in placed(plan)
    waits = [each for each in plan.unplaced if "of its namespace have more than 10" in each.message]
    assert {each.gang for each in waits} == {"default/Job/j2", "default/Job/j3"}, sizes
    made.builder.apply("jobs", jobs[0], None)
    [resumed] = [each for each in made.plan().placements if each.resume]
    assert resumed.gang == "default/Job/j1"
    counts = {key: len(gang.members) for key, gang in made.snapshot().gangs.items()}
    assert [counts[f"default/Job/j{number}"] for number in (1, 2, 3)] == [4, 4, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("a", "b")), st.integers(-1, 8))))
def test_placeholders_are_those_of_the_jobs_that_are_suspended(steps):
    """Whatever changes in which order: none is left over, none too many, none missing for good."""
    most, largest = placeholders.MAX_PER_NAMESPACE, placeholders.MAX_PLACEHOLDERS
    placeholders.MAX_PER_NAMESPACE, placeholders.MAX_PLACEHOLDERS = 9, 6
    try:
        known, jobs, shown = placeholders.SuspendedJobs(), {}, {}
        for number, namespace, pods in steps:
            old, name = jobs.get((number, namespace)), f"j{number}"
            new = suspended(name, pods) if pods >= 0 else None
            if new is not None:
                meta = replace(new.metadata, namespace=namespace, uid=f"{namespace}-{name}")
                new = replace(new, metadata=meta)
            for uid, each in known.change(old, new):
                shown.pop(uid, None)
                shown |= {} if each is None else {uid: each}
            jobs[number, namespace] = new
            check_placeholders(jobs, shown)
    finally:
        placeholders.MAX_PER_NAMESPACE, placeholders.MAX_PLACEHOLDERS = most, largest


def check_placeholders(jobs, shown):
    expected = {}
    for each in filter(None, jobs.values()):
        meta, pods = each.metadata, each.spec.parallelism
        found = [pod for uid, pod in shown.items() if uid.startswith(f"{meta.uid}/")]
        whole = [pod for pod in found if pod.metadata.uid.endswith("/all")]
        assert len(found) == (1 if whole else pods)
        assert whole or pods <= 6
        total, waiting = expected.get(meta.namespace, (0, []))
        counted = 0 if whole else pods
        expected[meta.namespace] = total + counted, [*waiting, *([pods] if whole else [])]
    for total, waiting in expected.values():
        able = [pods for pods in waiting if pods <= 6]
        assert total <= 9
        assert not able or total + max(able) > 9
    owners = {each.metadata.uid for each in filter(None, jobs.values())}
    assert {uid.split("/")[0] for uid in shown} <= owners


def test_the_template_of_a_forged_job_may_be_empty():
    forged = suspended("forged", 3)
    empty = SuspendedJobSpec(
        parallelism=3, suspend=True, template=PodTemplate(spec=PodSpec(scheduler_name="other"))
    )
    made = world(SuspendedJob(metadata=forged.metadata, spec=empty))
    assert not made.plan().unplaced
    assert isinstance(made.builder, SnapshotBuilder)


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "other"])
def test_a_node_in_the_template_of_a_forged_job_takes_nothing_of_that_node(scheduler):
    forged = suspended("forged", 3)
    spec = replace(pod("x", 8).spec, node_name="n", scheduler_name=scheduler)
    job = replace(forged, spec=replace(forged.spec, template=PodTemplate(spec=spec)))
    made = world(job).add(pod("canary", 8, queue="other"))
    assert placed(made.plan()) == {"canary": "n"}
    assert not any(made.builder.snapshot(START).queue_allocated.values())


JOB, TEMPLATE, CLASS, SLICE = "jobs", "resourceclaimtemplates", "deviceclasses", "resourceslices"


@pytest.mark.parametrize("order", list(permutations((JOB, TEMPLATE, CLASS, SLICE))))
def test_what_a_suspended_job_claims_is_charged_whatever_comes_first(order):
    job = suspended("job", 4)
    template = PodTemplate(spec=claiming(pod("x", 0), "").spec)
    objects = {
        JOB: replace(job, spec=replace(job.spec, template=template)),
        TEMPLATE: ResourceClaimTemplate(
            metadata=ObjectMeta(name="gpu", namespace="default"),
            spec=ResourceClaimTemplateSpec(spec=claim("x").spec),
        ),
        CLASS: device_class(),
        SLICE: gpu_slice("n"),
    }
    made = cluster(node("n", 0), queue("team", 3, 3))
    for kind in order:
        made.builder.apply(kind, None, objects[kind])
        plan = made.plan()
    assert made.snapshot().queue_requested["team"]["gpu"] == 4
    assert [each.stage for each in plan.unplaced] == [Stage.QUEUE_MAX]
