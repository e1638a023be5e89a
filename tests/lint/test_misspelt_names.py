"""Fields, keys and names that are almost those that mean something."""

import pytest

from tests.lint.manifests import JOB, POD
from tests.support.linting import lint


@pytest.mark.parametrize(
    ("written", "misspelt", "meant"),
    [
        (JOB, "  paralelism: 2\n  template:", "parallelism"),
        (JOB, "  template:\n    sepc: {}", None),
        (POD, "  nodeSelecter: {a: b}\n  schedulerName:", "nodeSelector"),
        (POD, "  containers: [{name: c, image: i, resource: {}}]\n  schedulerName:", "resources"),
    ],
)
def test_a_field_that_the_api_does_not_have_is_found(written, misspelt, meant):
    at = misspelt.splitlines()[-1] if meant else "  template:"
    report = lint(written.replace(at, misspelt, 1))
    [found] = [each for each in report.errors if "no such field" in each.message]
    assert found.fixed is (meant is not None)
    assert meant is None or f"write {meant}" in found.message
    assert meant is None or meant in report.corrected


def test_a_field_beside_the_one_that_is_meant_stays():
    text = JOB.replace("  template:", "  paralelism: 2\n  parallelism: 3\n  template:")
    report = lint(text)
    [found] = [each for each in report.errors if "no such field" in each.message]
    assert (found.fixed, "write" in found.message) == (False, False)
    assert report.corrected == text


def test_fields_and_annotations_of_every_kind_are_left_alone():
    assert not [each for each in lint(JOB).errors if "field" in each.message]


def test_names_that_are_almost_ours_are_found():
    text = JOB.replace("queue-name", "queue-nmae").replace("kai-scheduler", "kai-schduler")
    report = lint(text.replace("image: i", "image: i, resources: {limits: {nvidia.com/gpus: 1}}"))
    told = "\n".join(each.message for each in report.findings)
    assert "write scheduling.kai.io/queue-name" in told
    assert "kai-scheduler?" in told
    assert "nvidia.com/gpu?" in told
    assert "queue-name: q" in report.corrected


@pytest.mark.parametrize(
    ("kind", "spec", "regarded"),
    [
        ("batch/v1, kind: Job", "{}", True),
        ("jobset.x-k8s.io/v1alpha2, kind: JobSet", "{}", True),
        ("example.com/v1, kind: Own", "{a: {containers: []}}", True),
        ("example.com/v1, kind: Own", "{}", False),
        ("v1, kind: ConfigMap", "{}", False),
    ],
)
def test_names_that_are_almost_ours_are_found_where_they_may_mean_ours(kind, spec, regarded):
    marks = "annotations: {scheduling.kai.io/queue-nmae: q}"
    text = f"{{apiVersion: {kind}, metadata: {{name: n, {marks}}}, spec: {spec}}}\n"
    assert ("queue-name: q" in lint(text).corrected) is regarded


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("agein", "ageing"),
        ("preemption-dealy", "preemption-delay"),
        ("segment-topology-require-placement", "segment-topology-required-placement"),
    ],
)
def test_every_annotation_that_is_read_is_known_when_it_is_misspelt(written, meant):
    report = lint(JOB.replace("queue-name: q", f"queue-name: q, scheduling.kai.io/{written}: x"))
    told = "\n".join(each.message for each in report.findings)
    assert f"write scheduling.kai.io/{meant}" in told


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("kai.scheduler/preemptibility: maybe", '"maybe" is ignored: it may be preemptible, semi'),
        ("kai.scheduler/preemptibility: non-preemptible", ""),
        ("kai.scheduler/task-priority: high", '"high" is ignored: it must be a whole number'),
        ("kai.scheduler/task-priority: '-5'", ""),
        ("kai.scheduler/premptibility: preemptible", "is ignored: kai.scheduler/preemptibility?"),
        ("kai.scheduler/background: 'true'", "is not known and ignored"),
        ("runai/queue: team", "is ignored: newer versions of KAI read kai.scheduler/queue"),
        ("kai.scheduler/gpu-compute-sharing-mode: sm-sharing", "neither compute time nor memory"),
        ("example.com/preemptibility: maybe", ""),
    ],
)
def test_labels_of_kai_that_have_no_effect_are_told(written, message):
    text = JOB.replace("scheduling.kai.io/queue-name: q", written)
    assert written in text
    told = [each.message for each in lint(text).findings if "ignored" in each.message]
    told += [each.message for each in lint(text).findings if "compute time" in each.message]
    assert [each for each in told if message and message in each] == told
    assert bool(told) == bool(message)
