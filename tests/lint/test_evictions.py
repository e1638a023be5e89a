"""Jobs that fail if all of their pods are evicted, and what lint makes of them."""

import pytest

from kai_py.lint.manifest import Severity
from tests.support.linting import lint

JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: train
  annotations: {scheduling.kai.io/queue-name: team}
spec:
  parallelism: 8
  completions: 8
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: main, image: i}]
"""
POLICY = """  podFailurePolicy:
    rules:
    - action: Ignore
      onPodConditions:
      - type: DisruptionTarget
"""


@pytest.mark.parametrize(
    ("before", "after", "warns"),
    [
        ("", "", True),
        ("completions: 8", "completions: 6", False),
        ("parallelism: 8", "backoffLimit: 8\n  parallelism: 8", False),
        ("completions: 8", "backoffLimit: 0\n  completions: 1", True),
        ("schedulerName: kai-scheduler", "schedulerName: other", False),
        ("  template:", f"{POLICY}  template:", False),
    ],
)
def test_a_job_that_an_eviction_would_fail_gets_a_policy(before, after, warns):
    report = lint(JOB.replace(before, after, 1) if before else JOB)
    told = [each for each in report.findings if "exceeds backoffLimit" in each.message]
    assert len(told) == warns
    mistakes = [each for each in report.findings if each.severity is Severity.ERROR]
    assert mistakes == [], "nor is the policy that was added"
    assert ("podFailurePolicy" in report.corrected) == (warns or "podFailurePolicy" in after)
    again = lint(report.corrected).findings
    assert not [each for each in again if "exceeds backoffLimit" in each.message]


@pytest.mark.parametrize(("pods", "counted"), [(1, "pod"), (7, "7 pods")])
def test_what_an_eviction_would_do_names_the_pods(pods, counted):
    text = JOB.replace("completions: 8", f"completions: {pods}\n  backoffLimit: 0")
    assert any(f"evicting its {counted} exceeds" in each.message for each in lint(text).findings)


def test_a_job_whose_pods_restart_is_told_why_it_gets_none():
    report = lint(JOB.replace("Never", "OnFailure"))
    (told,) = [each for each in report.findings if "exceeds backoffLimit" in each.message]
    assert "requires restartPolicy Never" in told.message
    assert not told.fixed
    assert report.corrected == JOB.replace("Never", "OnFailure")


def test_the_jobs_of_a_job_set_get_a_policy_unless_it_restarts():
    template = "".join(f"      {line}\n" for line in JOB.split("spec:\n", 1)[1].splitlines())
    text = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: set}\nspec:\n"
        f"  replicatedJobs:\n  - name: w\n    template:\n      spec:\n{template}"
    )
    assert "podFailurePolicy" in lint(text).corrected
    restarts = text.replace("spec:\n", "spec:\n  failurePolicy: {maxRestarts: 3}\n", 1)
    assert "podFailurePolicy" not in lint(restarts).corrected
