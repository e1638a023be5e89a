"""What others create from a template: the Job of a CronJob, and gangs of other kinds' templates."""

import pytest

from tests.simulate.manifests import QUEUE, job, node, plan

SCHEDULED = {"schedule": "0 0 * * *"}
POD = {"template": {"spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]}}}
TASKS = {"queue": "team", "tasks": [{"name": "a", "replicas": 3, **POD}]}
NODES = [node("n0", gpus=8)]


def rejected(found):
    return {each["object"]: each["problem"] for each in found["rejected"]}


def cron_job(name="nightly", pods=2, **fields):
    made = job(name, pods)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": made["spec"]}
    spec = SCHEDULED | {"jobTemplate": template} | fields
    return {**made, "kind": "CronJob", "spec": spec}


def test_a_cron_job_that_was_never_applied_has_its_job():
    found = plan(*NODES, QUEUE, cron_job())
    assert [each["pod"].rpartition("-")[0] for each in found["placements"]] == [
        "default/nightly",
        "default/nightly",
    ]
    assert rejected(found) == {}
    crowded = plan(*NODES, QUEUE, cron_job(pods=9))
    assert [each["gang"] for each in crowded["pending"]] == ["default/Job/nightly"]


@pytest.mark.parametrize(
    ("meta", "spec", "others"),
    [
        ({"uid": "applied"}, {}, []),
        ({}, {"suspend": True}, []),
        ({}, {}, [job("nightly", 1)]),
        ({}, {"jobTemplate": {"spec": 5}}, []),
        ({}, {"jobTemplate": None}, []),
    ],
)
def test_another_cron_job_gets_none(meta, spec, others):
    given = cron_job(**spec)
    given["metadata"] |= meta
    assert len(plan(*NODES, QUEUE, given, *others)["placements"]) == len(others)


def test_a_cron_job_that_owns_a_job_gets_none():
    owned = job("nightly-1", 1)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    assert len(plan(*NODES, QUEUE, cron_job(), owned)["placements"]) == 1


def test_a_suspended_cron_job_is_reported():
    found = rejected(plan(*NODES, QUEUE, cron_job(suspend=True)))
    assert found == {"CronJob default/nightly": "it is suspended, so that it has no pods"}


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "start"),
    [
        ("batch.volcano.sh/v1alpha1", "CronJob", {"jobTemplate": {"spec": TASKS}}, "3 pods"),
        ("flow.volcano.sh/v1alpha1", "JobTemplate", TASKS, "3 pods"),
        (
            "ray.io/v1",
            "RayCronJob",
            {"jobTemplate": {"rayClusterSpec": {"headGroupSpec": POD}}},
            "1 pod (headgroup 1)",
        ),
        (
            "sparkoperator.k8s.io/v1beta2",
            "ScheduledSparkApplication",
            {"template": {"executor": {"instances": 2}}},
            "1 pod (driver 1) once 2 more fit",
        ),
    ],
)
def test_the_gang_of_what_is_created_is_described(api_version, kind, spec, start):
    made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    problem = rejected(plan(*NODES, QUEUE, made))[f"{kind} default/w"]
    assert f"its gang starts with {start}" in problem
